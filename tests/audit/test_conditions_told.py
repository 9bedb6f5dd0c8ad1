"""What is told to decide whether a forward ran in half does decide it, and a region whose switch is off is told as one."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.line(x)

    class Trainer:
        def __init__(self, args, model, optimizer, data):
            self.args = args
            GUARD
            self.native = args.fp16 and args.level is None
  -         if args.fp16 and args.level is not None:
  -             model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.model, self.optimizer = model, optimizer

        def train(self, batches):
            for x, y in batches:
                self.evaluate(x)
  -             loss = self.model(x).sum()
  -             with amp.scale_loss(loss, self.optimizer) as scaled_loss:
  -                 scaled_loss.backward()
  +             with torch.autocast("cuda", enabled=self.args.fp16 and self.args.level is not None):
  +                 loss = self.model(x).sum()
  +             loss.backward()
                self.optimizer.step()

        def evaluate(self, x):
            with torch.no_grad():
  -             with torch.cuda.amp.autocast(enabled=self.native):
  +             with REGION:
                    print(self.model(x))

    def main(args):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        Trainer(args, model, optimizer, load()).train(load())

    if __name__ == "__main__":
        main(parse())
    """)
STOPS = "if args.drop and args.schedule is not None:\n                raise ValueError"
ELSE = "if args.folder is None:\n                raise ValueError\n            elif args.drop:\n                raise ValueError"
RETURNS = "if args.dry:\n                return"


def _said(guard: str, region: str = "torch.cuda.amp.autocast(enabled=self.native)") -> list[str]:
    texts = (t.replace("GUARD", guard).replace("REGION", region) for t in (BEFORE, AFTER))
    return [d.message for d in doubts(*texts) if d.code == "AMP531"]


@pytest.mark.parametrize("guard", ["pass", STOPS, ELSE])
def test_what_only_lets_a_run_go_on_decides_nothing(guard: str) -> None:
    (message,) = _said(guard)
    assert "under Apex where fp16 and level is not None; called from" in message


def test_what_leaves_without_a_set_up_does() -> None:
    gained, lost = _said(RETURNS)
    assert "now where dry and fp16 and level is not None, where Apex had not been set up" in gained
    assert "under Apex where not dry and fp16 and level is not None; called from" in lost


def test_a_region_that_is_off_is_there() -> None:
    (message,) = _said("pass")
    assert "the autocast region around it is off there now (self.native)" in message
    assert "no autocast region" not in message


def test_without_one_there_is_none() -> None:
    (message,) = _said("pass", region="torch.enable_grad()")
    assert "no autocast region is around it" in message


def test_the_scaler_is_on_as_the_way_came_by_its_making() -> None:
    """`main(True)`: what `enabled=fp16` says there, a run with another value is none that is compared."""
    before, after = sides("""
    import torch
  - from apex import amp

  - def step(model, optimizer, x, y):
  -     loss = torch.nn.functional.cross_entropy(model(x), y)
  -     with amp.scale_loss(loss, optimizer) as scaled_loss:
  -         scaled_loss.backward()
  -     optimizer.step()
  + def step(model, optimizer, scaler, x, y):
  +     with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
  +         loss = torch.nn.functional.cross_entropy(model(x), y)
  +     scaler.scale(loss).backward()
  +     scaler.step(optimizer)
  +     scaler.update()

    def main(batches, fp16):
        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
  -     if fp16:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda", enabled=fp16)
        for x, y in batches:
            optimizer.zero_grad()
  -         step(model, optimizer, x, y)
  +         step(model, optimizer, scaler, x, y)

    main(load(), True)
    """)
    assert not doubts(before, after)
    off = after.replace("scaler.is_enabled()):", "False):")
    assert [d.code for d in doubts(before, off)] == ["AMP531"]


@pytest.mark.parametrize(
    ("check", "shorter"),
    [
        ('assert kind in ["none", "apex", "native"]', 'assert kind in ["none", "native"]'),
        (
            'if kind not in ("none", "apex", "native"):\n            raise ValueError',
            'if kind not in ("none", "native"):\n            raise ValueError',
        ),
    ],
)
def test_a_value_that_the_program_takes_no_more_is_asked_for_by_no_run(check: str, shorter: str) -> None:
    before, after = sides("""
    import torch
  - from apex import amp

    def main(kind, batches):
        CHECK
        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
  -     if kind == "apex":
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in batches:
            optimizer.zero_grad()
            with torch.autocast("cuda", enabled=kind == "native"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
  -         if kind == "apex":
  -             with amp.scale_loss(loss, optimizer) as scaled_loss:
  -                 scaled_loss.backward()
  -         else:
  -             loss.backward()
  +         loss.backward()
            optimizer.step()
    """)
    before = before.replace("CHECK", check)
    assert [d.code for d in doubts(before, after.replace("CHECK", check))] == ["AMP531"]
    assert not doubts(before, after.replace("CHECK", shorter))


OUT_OF_SIGHT = """
import argparse

import torch
from apex import amp
from somewhere import evaluator

parser = argparse.ArgumentParser()
parser.add_argument("--level")
parser.add_argument("--check", action="store_true")
parser.add_argument("--submit", action="store_true")


def main():
    args = parser.parse_args()
    if args.check and args.submit:
        STOP
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fp16 = bool(args.level)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    evaluate = evaluator.create_evaluator(model)
    for x in evaluate:
        loss = model(x).sum()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


main()
"""


@pytest.mark.parametrize("stop", ['parser.error("one of both")', 'raise SystemExit("one of both")', "print(args)"])
def test_what_is_refused_at_the_start_decides_nothing_of_code_out_of_sight(stop: str) -> None:
    before = OUT_OF_SIGHT.replace("STOP", stop)
    after = before.replace(
        "    if fp16:\n        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)\n",
        '    scaler = torch.amp.GradScaler("cuda", enabled=fp16 and args.level != "O0")\n',
    )
    (message,) = [d.message for d in doubts(before, after) if "is out of sight" in d.message]
    assert "where level and level is not 'O0', and runs" in message


def test_a_network_that_is_none_is_not_run() -> None:
    before, after = sides("""
    import argparse

    import torch
  - from apex import amp

    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--level", default="O1")
    parser.add_argument("--hinge", action="store_true")


    def train(args, batches, model, seen=None):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     if args.fp16:
  -         if seen is not None:
  -             [model, seen], optimizer = amp.initialize([model, seen], optimizer, opt_level=args.level)
  -         else:
  -             model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
  +     scaler = torch.amp.GradScaler("cuda", enabled=args.fp16 and args.level != "O0")
        for x in batches:
  -         target = seen(x) if args.hinge else x
  -         loss = (model(x) - target).sum()
  -         if args.fp16:
  -             with amp.scale_loss(loss, optimizer) as scaled_loss:
  -                 scaled_loss.backward()
  -         else:
  -             loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
  +             target = seen(x) if args.hinge else x
  +             loss = (model(x) - target).sum()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()


    def main():
        args = parser.parse_args()
        model = torch.nn.Linear(2, 2).cuda()
        seen = torch.nn.Linear(2, 2).cuda() if args.hinge else None
        train(args, [], model, seen=seen)


    main()
    """)
    assert not [d.message for d in doubts(before, after) if d.code == "AMP531"]
