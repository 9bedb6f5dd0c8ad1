"""Networks that are made anew below a training, where only the weights of what was trained were made half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

PROGRAM = """
    import json
    import types
    import torch
    from apex.fp16_utils import FP16_Optimizer

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.last(x)

    def build(state):
        net = Net()
        net.load_state_dict(state)
        return net

    def half_of(state):
        return build(state).half()

    def main(args):
        model = Net()
        if args.fp16:
            model.half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        dtypes = []
        for x in [torch.ones(2, 4)]:
            INPUT
            output = model(x)
            dtypes.append(str(output.dtype))
            loss = output.float().sum()
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
        RENEWED
        for x in [torch.ones(2, 4)]:
            dtypes.append(str(model(x).dtype))
        return dtypes

    print(json.dumps(main(types.SimpleNamespace(fp16=True))))
    """


def migrated(renewed: str) -> str:
    program = PROGRAM.replace("            INPUT\n", "").replace("RENEWED", renewed)
    return check_files({"main.py": program}, device="cpu")["main.py"]


@pytest.mark.parametrize(
    "renewed",
    [
        "model = build(model.state_dict())",
        "state = model.state_dict()\n        model = Net()\n        model.load_state_dict(state)",
        "model = build(model.state_dict())\n        model = torch.nn.DataParallel(model) if args.many else model",
        "if args.fp16:\n            model = build(model.state_dict())\n        else:\n            model = Net()",
        "if args.fp16:\n            model = build(model.state_dict())\n        elif x.dim() > 2:\n            model = Net()\n"
        "        else:\n            raise ValueError(x)\n        model.eval()",
        "try:\n            model = build(model.state_dict())\n        except RuntimeError:\n            model = Net()",
    ],
    ids=["by a function", "by its class", "wrapped by choice", "in both branches", "or left", "or tried"],
)
def test_a_network_made_anew_stays_in_float32(renewed: str, tmp_path: Path) -> None:
    text = migrated(renewed)
    if "args.many" in text:
        text = text.replace("fp16=True)", "fp16=True, many=False)")
    assert text.count("torch.autocast(") == 1
    assert run_files(tmp_path, {"main.py": text}, "main.py") == ["torch.float16", "torch.float32"]


@pytest.mark.parametrize(
    "renewed",
    [
        "model.eval()",
        "model = half_of(model.state_dict())",
        "model = torch.nn.DataParallel(model)",
        "if args.again:\n            model = build(model.state_dict())",
        "if args.fp16:\n            pass\n        else:\n            model = Net()",
        "if args.fp16:\n            model = model\n        else:\n            model = Net()",
        "for state in []:\n            if state:\n                model = build(state)\n            else:\n"
        "                model = Net()",
    ],
    ids=[
        "the same",
        "made half by a function",
        "wrapped",
        "made anew by choice",
        "in one branch",
        "or as it was",
        "in a loop",
    ],
)
def test_what_may_be_the_network_that_is_trained_keeps_its_region(renewed: str) -> None:
    assert migrated(renewed).count("torch.autocast(") == 2


def test_under_o1_all_networks_ran_mixed(tmp_path: Path) -> None:
    program = PROGRAM.replace("            INPUT\n", "").replace("RENEWED", "model = build(model.state_dict())")
    program = program.replace("        if args.fp16:\n            model.half()\n", "")
    program = program.replace("from apex.fp16_utils import FP16_Optimizer", "from apex import amp")
    program = program.replace(
        "optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    )
    program = program.replace(
        "                optimizer.backward(loss)",
        "                with amp.scale_loss(loss, optimizer) as scaled:\n                    scaled.backward()",
    )
    text = check_files({"main.py": program}, device="cpu")["main.py"]
    assert run_files(tmp_path, {"main.py": text}, "main.py") == ["torch.float16", "torch.float16"]


HALVED_APART = """
    import argparse
    import json
    import torch
    from apex.fp16_utils import FP16_Optimizer

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.last(x)

        def scores(self, x):
            return self.last(x)

    def init_model(args):
        model = Net()
        if args.fp16:
            model.half()
        return model

    def load_model(args):
        model = Net()
        model.load_state_dict(torch.load("best.pt"))
        return model

    def prepare(args, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        return optimizer

    def train_epoch(args, model, loader, optimizer):
        for x in loader:
            loss = model(x).float().sum()
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "best.pt")

    def evaluate(model, loader):
        if hasattr(model, "module"):
            model = model.module
        return [str(model.RUNS(x).dtype) for x in loader]

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--do_train", action="store_true")
        parser.add_argument("--load", action="store_true")
        args = parser.parse_args(ARGUMENTS)
        torch.manual_seed(0)
        loader = [torch.ones(2, 4)]
        model = init_model(args)
        if args.do_train:
            optimizer = prepare(args, model)
            train_epoch(args, model, loader, optimizer)
            said = evaluate(model, loader)
        elif not args.load:
            said = evaluate(model, loader)
        else:
            model = load_model(args)
            said = evaluate(model, loader)
        print(json.dumps(said))

    if __name__ == "__main__":
        main()
    """


@pytest.mark.parametrize("runs", ["forward", "scores"])
def test_what_is_made_half_by_hand_is_set_up_there(runs: str, tmp_path: Path) -> None:
    """The model is half wherever it was made so, trained or not; one that is loaded below is float32."""
    files = {"main.py": HALVED_APART.replace("ARGUMENTS", "").replace("RUNS", runs)}
    results = rewrite_files(files, device="cpu")
    assert not [f for f in results["main.py"].findings if f.code == "AMP531"]
    text = check_files(files, device="cpu")["main.py"]
    training = text[text.index("def train_epoch") : text.index("def evaluate")]
    assert 'torch.autocast("cpu", dtype=torch.float16, enabled=args.fp16)' in training, "training is what calls it"
    for asked, dtype in (["--do_train"], "float16"), ([], "float16"), (["--load"], "float32"):
        program = text.replace("parse_args()", f"parse_args({['--fp16', *asked]})")
        assert run_files(tmp_path, {"main.py": program}, "main.py") == [f"torch.{dtype}"]


SWITCHED_APART = """
    import json
    import types
    import torch
    from apex.fp16_utils import FP16_Optimizer

    def step(model, x, optimizer):
        output = model(x.to(next(model.parameters()).dtype))
        optimizer.backward(output.float().sum())
        optimizer.step()
        return str(output.dtype)

    def main(args):
        model = torch.nn.Linear(4, 1)
        if args.fp16:
            model.half()
        optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
        return [step(model, x, optimizer) for x in [torch.ones(2, 4)]]

    print(json.dumps([main(types.SimpleNamespace(fp16=fp16)) for fp16 in (True, False)]))
    """


def test_the_switch_of_what_is_made_half_is_the_switch(tmp_path: Path) -> None:
    """An FP16_Optimizer over float32 weights only scaled: `--no-fp16` is float32 before and after."""
    text = check_files({"main.py": SWITCHED_APART}, device="cpu")["main.py"]
    assert 'scaler = torch.amp.GradScaler("cpu", enabled=args.fp16)' in text
    assert run_files(tmp_path, {"main.py": text}, "main.py") == [["torch.float16"], ["torch.float32"]]


CALLED = """
    import torch
    from apex.fp16_utils import FP16_Optimizer

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)

    def evaluate(model, batches):
        {inside}
        with torch.no_grad():
            return [str(model(x).dtype) for x in batches]

    def train(batches):
        model = Net()
        model.half()
        optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for x in batches:
            loss = model(x.half()).float().sum()
            optimizer.zero_grad()
            optimizer.backward(loss)
            optimizer.step()
        return model

    def main(batches):
        trained = train(batches)
        fresh = Net().cpu()
        return {calls}
    """


@pytest.mark.parametrize(
    ("calls", "inside", "region"),
    [
        ("evaluate(fresh, batches)", "pass", False),
        ("evaluate(Net().to('cpu').eval(), batches) + evaluate(model=fresh, batches=batches)", "pass", False),
        ("evaluate(trained, batches)", "pass", True),
        ("evaluate(trained, batches) + evaluate(fresh, batches)", "pass", True),
        ("evaluate(fresh.half(), batches)", "pass", True),
        ("evaluate(Net().half(), batches)", "pass", True),
        ("list(map(evaluate, [trained], [batches]))", "pass", True),
        ("evaluate(fresh, batches)", "model = model.half()", True),
    ],
)
def test_what_every_caller_makes_anew_gets_no_region(calls: str, inside: str, region: bool) -> None:
    after = rewrite(CALLED.format(calls=calls, inside=inside)).after or ""
    evaluation = after.partition("def evaluate")[2].partition("def train")[0]
    assert ("autocast" in evaluation) is region


def test_what_every_caller_makes_anew_runs_in_float32() -> None:
    after = rewrite(
        CALLED.format(calls="evaluate(fresh, batches)", inside="pass"), device="cpu", dtype="bfloat16"
    ).after
    names: dict[str, Any] = {}
    exec(after or "", names)
    assert names["main"]([torch.ones(3, 4)]) == ["torch.float32"]


OUT_OF_SIGHT = """
    import torch
    from apex.fp16_utils import FP16_Optimizer
    from nets import Net, Wrapped, load, config, loader, tests, args, show

    model = Net(config).cuda()
    if args.fp16:
        model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    for x in loader:
        loss = model(x)
        if args.fp16:
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    RENEWED
    for x in tests:
        with torch.no_grad():
            y = model(x)
        show(y)
    """


def _out_of_sight(renewed: str) -> tuple[bool, list[str]]:
    """Whether the evaluation has a region; what is said of it."""
    result = rewrite(OUT_OF_SIGHT.replace("RENEWED", renewed.replace("\n", "\n    ")))
    assert result.after is not None
    return "no_grad(), torch.autocast" in result.after, [f.message for f in result.findings if f.code == "AMP531"]


@pytest.mark.parametrize(
    ("renewed", "region"),
    [
        ("model = Net(config)\nmodel.load_state_dict(torch.load('m.pt'))\nmodel.cuda()", False),
        ("model = Net.from_pretrained('m')\nmodel = torch.nn.DataParallel(model)", False),
        ("net = Net(config)\nnet.load_state_dict(torch.load('m.pt'))\nmodel = net", True),  # not followed
        ("model = Net(config)\nif args.fp16:\n    model.half()", True),
        ("model = Wrapped(model)", True),
        ("kept = model\nkept.eval()\nmodel = Wrapped(kept)", True),
        ("model = load(config)", True),
    ],
)
def test_an_object_of_a_class_out_of_sight_is_a_new_network(renewed: str, region: bool) -> None:
    has, said = _out_of_sight(renewed)
    assert has is region
    assert region or not said


def test_an_object_that_was_not_made_half_is_told_as_that_and_not_as_a_process() -> None:
    has, (said,) = _out_of_sight("net = Net(config)\nnet.load_state_dict(torch.load('m.pt'))\nmodel = net")
    assert has
    assert "its weights had not been made half" in said
    assert "set up" not in said
    has, (said,) = _out_of_sight("if args.reload:\n    model = Net(config)")
    assert has
    assert "made anew after it was made half" in said
