"""What a program makes half itself and hands to a network outside of any region: its weights are float32 now."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, program, told

TRAIN = """
    import torch
    {imports}
    from evaluate import evaluate
    from networks import Net

    def main(args):
        model = Net().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        {set_up}
        for x in data:
            {region}
                loss = model(x).sum()
            {step}
        model.eval()
        evaluate(model, data, args)

    main(parse())
"""
NETWORKS = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 4)

        def forward(self, x):
            {body}
"""
EVALUATE = """
    import torch

    def evaluate(model, data, args):
        model.eval()
        {setting}
        for x, y in data:
            {body}
"""


def found(body: str, *, level: str = "O2", setting: str = "pass", forward: str = "return self.head(x)") -> list[str]:
    """What is said of `evaluate.py`, which nothing changes."""
    parts = {
        "imports": "from apex import amp",
        "set_up": f'model, opt = amp.initialize(model, opt, opt_level="{level}")',
        "region": "if True:",
        "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    }
    after = {
        "imports": "",
        "set_up": 'scaler = torch.amp.GradScaler("cuda")',
        "region": 'with torch.autocast("cuda", dtype=torch.float16):',
        "step": "scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    }
    inner = program(body).replace("\n", "\n            ")
    texts = {
        "train.py": TRAIN.format(**parts),
        "networks.py": NETWORKS.format(body=forward),
        "evaluate.py": EVALUATE.format(setting=setting, body=inner),
    }
    doubts = doubts_of(texts, {"train.py": TRAIN.format(**after)})
    here = [d for d in doubts if d.code == "AMP535" and "is made half here" in d.message]
    assert {d.path for d in here} <= {"evaluate.py"}
    assert told(here, "AMP535") == [(d.line, "review") for d in here]
    return [d.message.partition(",")[0] for d in here]


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_an_input_made_half_is_told(level: str) -> None:
    assert found("x = x.half()\nout = model(x)", level=level) == ["model is given x"]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("if args.fp16:\n    x = x.half()\nout = model(x)", "x"),
        ("x = x.half() if args.fp16 else x\nout = model(x)", "x"),
        ("out = model(x.to(torch.float16))", "x.to(torch.float16)"),
        ("z = x.cuda().to(dtype=torch.half).contiguous()\nout = model(x=z)", "z"),
        ("out = model(x.type(torch.half))", "x.type(torch.half)"),
    ],
    ids=["under a flag", "chosen", "to", "another name", "type"],
)
def test_however_it_is_made_half(body: str, value: str) -> None:
    assert found(body) == [f"model is given {value}"]


@pytest.mark.parametrize(
    ("body", "setting"),
    [
        ("with torch.autocast('cuda', dtype=torch.float16):\n    out = model(x.half())", "pass"),
        ("x = x.half()\nx = x.float()\nout = model(x)", "pass"),
        ("out = model(x)\nx = x.half()", "pass"),
        ("y = y.half()\nout = model(x)", "pass"),
        ("out = model(x.half())", "model.half()"),
        ("out = args.metric(x.half())", "pass"),
    ],
    ids=["in a region", "float again", "afterwards", "another value", "a network made half", "no network"],
)
def test_what_is_right_is_not(body: str, setting: str) -> None:
    assert found(body, setting=setting) == []


def test_nor_a_network_that_opens_a_region_itself() -> None:
    own = "with torch.autocast('cuda', dtype=torch.float16):\n                return self.head(x)"
    assert found("out = model(x.half())", forward=own) == []


def test_nor_runs_that_apex_was_not_set_up_in() -> None:
    """Half inputs and float32 weights raised there before, too."""
    alone = EVALUATE.format(setting="pass", body="out = model(x.half())") + "\n    evaluate(load(), data, parse())\n"
    train = TRAIN.replace("from evaluate import evaluate", "").replace("evaluate(model, data, args)", "pass")
    before = train.format(
        imports="from apex import amp",
        set_up='model, opt = amp.initialize(model, opt, opt_level="O2")',
        region="if True:",
        step="with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    )
    after = train.format(
        imports="",
        set_up='scaler = torch.amp.GradScaler("cuda")',
        region='with torch.autocast("cuda", dtype=torch.float16):',
        step="scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    )
    networks = NETWORKS.format(body="return self.head(x)")
    texts = {"train.py": before, "networks.py": networks, "evaluate.py": alone}
    assert not [d for d in doubts_of(texts, {"train.py": after}) if d.path == "evaluate.py"]
