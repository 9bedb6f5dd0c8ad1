"""A flag spelled `args.fp16` is asked only where `args` has it: each script's parser says which options there are."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told
from tests.rules.helpers import rewrite_files

NET = """
    import torch

    def predict(model, x):
        rows = []
        for row in x:
            rows.append(model(row))
        return torch.stack(rows)
"""
TRAIN = """
    import argparse
    import torch
    from apex import amp
    from net import predict

    def add_args(parser):
        parser.add_argument("--fp16", action="store_true")

    def main(args):
        model = torch.nn.Linear(2, 2).cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            model, opt = amp.initialize(model, opt, opt_level="O1")
        for x in load():
            loss = predict(model, x).sum()
            opt.zero_grad()
            if args.fp16:
                with amp.scale_loss(loss, opt) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            opt.step()
"""
OTHER = """
    import torch
    from net import predict

    {options}

    def main(args):
        {first}
        model = torch.load(args.weights)
        torch.save(predict(model, torch.load(args.inputs)).float(), args.out)
"""
OPTIONS = """def add_args(parser):
        parser.add_argument("--weights")
        parser.add_argument("--inputs")
        parser.add_argument("--out")
"""


def other(options: str = OPTIONS, first: str = "pass") -> str:
    return OTHER.format(options=options, first=first)


def text_of(files: dict[str, str], name: str) -> str:
    result = rewrite_files(files)[name]
    return result.before if result.after is None else result.after


def test_a_script_whose_parser_lacks_the_option_is_not_asked_for_it() -> None:
    files = {"net.py": NET, "train.py": TRAIN, "other.py": other()}
    results = rewrite_files(files)
    assert "GradScaler" in (results["train.py"].after or "")
    assert "args.fp16" not in text_of(files, "other.py")


@pytest.mark.parametrize(
    "script",
    [
        other(OPTIONS + '        parser.add_argument("--fp16", action="store_true")\n'),
        other("# the options are declared elsewhere"),
        other(first="print(args.fp16)"),
    ],
)
def test_one_that_has_it_or_may_have_it_is(script: str) -> None:
    assert "args.fp16)" in text_of({"net.py": NET, "train.py": TRAIN, "other.py": script}, "other.py")


# Another command line, whose options are what is handed over where more is read of it than the script's own parser has.
MORE = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--fp16")
parser.add_argument("--steps")
"""


@pytest.mark.parametrize(
    ("script", "call", "expected"),
    [
        (other(), "", True),
        (other(), "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--fp16')\n", True),
        (other(OPTIONS + '        parser.add_argument("--fp16")\n'), "", False),
        (other("# elsewhere"), "", False),
        (other(first="args.fp16 = True"), "", False),
        (other(first="print(args.steps)"), "", True),
        (other(first="print(args.steps)"), MORE, False),
    ],
)
def test_the_audit_refuses_what_reads_another_parsers_option(script: str, call: str, expected: bool) -> None:
    after = script.replace("load(args.inputs))", "load(args.inputs), args.fp16)")
    found = doubts_of({"other.py": script, "rest.py": call, "train.py": TRAIN}, {"other.py": after})
    assert bool([x for x in told(found, "AMP131") if x[1] == "refuse"]) is expected


SELF_TESTED = """
    import torch


    def train(args, model, data):
        optimizer = torch.optim.Adam(model.parameters())
        if args.fp16:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)
        for x in data:
            loss = model(x).mean()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            model.zero_grad()
        evaluate(args, model, data)


    def evaluate(args, model, data):
        model.eval()
        with torch.no_grad():
            return [model(x) for x in data]


    def run(args):
        model = torch.nn.Linear(2, 2)
        if args.do_train:
            train(args, model, [torch.ones(2, 2)])
        if args.do_predict:
            print("RESULT", len(evaluate(args, model, [torch.ones(2, 2)])))


    def test():
        class Args:
            def __init__(self, kind):
                self.kind = kind
                self.do_train = {trains}
                self.do_predict = True
                {set}

        args = Args("small")
        run(args)


    if __name__ == "__main__":
        test()
"""
MAIN = """
    import argparse
    from task import run

    parser = argparse.ArgumentParser()
    for option in ("do_train", "do_predict", "fp16"):
        parser.add_argument("--" + option, action="store_true")
    parser.add_argument("--fp16_opt_level", default="O1")
    run(parser.parse_args())
"""


@pytest.mark.parametrize(
    ("fields", "trains", "refused"),
    [
        ("self.fp16 = False", "True", False),  # known not to be on, so the level is not asked for
        ("self.fp16 = True", "True", False),  # Apex asked for the level, too
        ("self.fp16 = True", "False", True),
        ("self.fp16 = kind == 'large'", "False", True),
        ("self.fp16 = False\n                if kind: self.fp16 = True", "False", True),
    ],
)
def test_an_object_that_stands_in_for_the_options_is_known_by_its_constructor(
    fields: str, trains: str, refused: bool
) -> None:
    text = SELF_TESTED.replace("{set}", fields).replace("{trains}", trains)
    results = rewrite_files({"task.py": text, "main.py": MAIN})
    assert [f.code for f in results["task.py"].findings if f.status == "manual" and not f.cause] == (
        ["AMP131"] if refused else []
    )
    assert (results["task.py"].after is None) == refused


@pytest.mark.parametrize(("trains", "refused"), [("True", False), ("False", True)])
def test_settings_that_a_run_would_need_written_otherwise_together_stay(trains: str, refused: bool) -> None:
    """Where half precision is switched on as well as training, the level was asked for before; to come by that, training has to
    be off: both are written the other way round."""
    text = SELF_TESTED.replace("{set}", "self.fp16 = False").replace("{trains}", trains)
    text = text.replace("(self, kind)", "(self)").replace("self.kind = kind", "pass").replace('Args("small")', "Args()")
    text = text.replace("len(evaluate(args, model,", "len(predict(args, load(args),")
    text += "\n\n    def predict(args, model, data):\n        return evaluate(args, model, data)\n"
    result = rewrite_files({"task.py": text, "main.py": MAIN})["task.py"]
    assert bool([f for f in result.findings if f.code == "AMP131" and f.status == "manual"]) is refused
