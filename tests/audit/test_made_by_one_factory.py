"""Networks that one factory makes, each in a run of its own: only the one that Apex was given was half under O2 and O3."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

NETS = """
    import torch

    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.head(x)

    class Narrow(Wide):
        pass

    KEPT = {}

    def build(name):
        if name == "wide":
            net = Wide()
        elif name == "narrow":
            net = Narrow()
        else:
            raise KeyError(name)
        return net

    def shared(name):
        if name not in KEPT:
            KEPT[name] = build(name)
        return KEPT[name]
    """
MAIN = """
    import argparse
    import torch
    from apex import amp
    from apex.parallel import DistributedDataParallel as DDP
    from nets import build, shared
    from data import loader

    def main(args):
        MAKE
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        student, optimizer = amp.initialize(student, optimizer, opt_level=args.opt_level)
        if args.distributed:
            teacher, student = DDP(teacher), DDP(student)
        train(teacher, student, optimizer)

    def train(teacher, student, optimizer):
        teacher.eval()
        for x in loader:
            with torch.no_grad():
                wanted = teacher(x)
            loss = (student(x) - wanted).pow(2).mean()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--opt_level", default="O1")
        parser.add_argument("--distributed", action="store_true")
        parser.add_argument("--teacher")
        parser.add_argument("--student")
        main(parser.parse_args())
    """


def _told(make: str) -> list[str]:
    """What is said of networks that Apex was not given."""
    main = MAIN.replace("MAKE", make.replace("\n", "\n        "))
    result = rewrite_files({"nets.py": NETS, "main.py": main})["main.py"]
    assert result.after is not None
    return [f.message for f in result.findings if f.code in ("AMP507", "AMP531")]


@pytest.mark.parametrize(
    "make",
    [
        "teacher = build(args.teacher)\nstudent = build(args.student)",
        "teacher, student = build(args.teacher), build(args.student)",
        "teacher = build(args.teacher).cuda()\nstudent = build(args.student).cuda()",
        "student = build(args.student)\nteacher = build(args.teacher)\nteacher = teacher.cuda()",
    ],
)
def test_another_run_of_the_factory_made_what_apex_was_not_given(make: str) -> None:
    (message,) = _told(make)
    assert "teacher" in message
    assert "O2 and O3 left it in float32" in message


@pytest.mark.parametrize(
    "make",
    [
        "student = build(args.student)\nteacher = student",
        "teacher = shared(args.teacher)\nstudent = shared(args.student)",
    ],
)
def test_what_may_be_the_same_object_is_not_told_of(make: str) -> None:
    assert not _told(make)
