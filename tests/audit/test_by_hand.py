"""A forward outside of any region in which something is made half by hand does not run in float32: it raises, AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, program

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
        evaluate(model, data)

    main(parse())
"""
NETWORKS = """
    import torch
    from torch import nn

    def mix(x, a):
        return torch.einsum("nv,vw->nw", (x, a))

    class Graph(nn.Module):
        def forward(self, x, support):
            for a in support:
                x = mix(x, a)
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.graphs = nn.ModuleList([Graph() for _ in range(2)])
            self.a = nn.Parameter(torch.randn(4, 4))
            self.fixed = []

        def forward(self, x):
            x = self.head(x)
            {body}

        def reverse(self, x):
            return self.head(x.contiguous())

        def choose(self, fast):
            self.kind = torch.half if fast else torch.float
"""
EVALUATE = """
    def evaluate(model, data):
        for x in data:
            {call}
"""


def found(body: str = "return x", call: str = "out = model(x)") -> list[str]:
    """What is said of the forward in `evaluate.py`, which has no region."""
    before = {
        "imports": "from apex import amp",
        "set_up": 'model, opt = amp.initialize(model, opt, opt_level="O1")',
        "region": "if True:",
        "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n            opt.step()",
    }
    after = {
        "imports": "",
        "set_up": 'scaler = torch.amp.GradScaler("cuda")',
        "region": 'with torch.autocast("cuda", dtype=torch.float16):',
        "step": "scaler.scale(loss).backward()\n            scaler.step(opt)\n            scaler.update()",
    }
    texts = {
        "train.py": TRAIN.format(**before),
        "networks.py": NETWORKS.format(body=program(body).replace("\n", "\n            ")),
        "evaluate.py": EVALUATE.format(call=call.replace("\n", "\n            ")),
    }
    told = doubts_of(texts, {"train.py": TRAIN.format(**after)})
    here = [d for d in told if d.code == "AMP531" and d.path == "evaluate.py"]
    assert {d.verdict for d in here} == {"review"}
    return [d.message.rpartition("no autocast region is around it now: ")[2].partition(". Put")[0] for d in here]


RAISES = "it raises, as networks.py:{} makes half by hand what networks.py:{} takes beside float32"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("a = torch.relu(self.a).half()\nreturn torch.einsum('nv,vw->nw', x, a)", (23, 24)),
        ("a = self.fixed + [self.a.half()]\nreturn self.graphs[0](x, a)", (23, 5)),
        ("if self.on:\n    a = self.a.to(torch.float16).t()\nreturn x @ a", (24, 25)),
        ("return torch.nn.functional.linear(x.half(), self.a)", (23, 23)),
        ("x = x.type(torch.half)\nreturn self.head(x)", (23, 24)),
        ("x = x.data[-1].to(self.kind)\nreturn self.head(x)", (23, 24)),
    ],
    ids=["einsum", "in a list, by a part and a helper", "under a flag", "linear", "a layer", "a dtype that is kept"],
)
def test_what_a_network_makes_half(body: str, lines: tuple[int, int]) -> None:
    assert found(body) == [RAISES.format(*lines)]


@pytest.mark.parametrize(
    "body",
    [
        "a = self.a.half()\nreturn torch.einsum('nv,vw->nw', x.half(), a)",
        "a = self.a.half()\na = a.float()\nreturn torch.mm(x, a)",
        "a = self.a.half().to(x.dtype)\nreturn torch.mm(x, a)",
        "a = self.a.half()\nreturn x + a",
        "return torch.mm(x, self.a.half() + self.a)",
        "a = torch.mm(x, self.a)\nreturn a.half()",
        "with torch.autocast('cuda', dtype=torch.float16):\n    return torch.mm(x, self.a.half())",
    ],
    ids=["both", "float again", "as another", "a sum", "promoted", "afterwards", "a region of its own"],
)
def test_what_does_not_raise(body: str) -> None:
    assert found(body) == ["it runs in float32"]


def test_what_a_method_is_given() -> None:
    raises = "it raises, as evaluate.py:3 makes half by hand what networks.py:26 takes beside float32"
    assert found(call="x = x.half()\nout = model.reverse(x)") == [raises]
    assert found(call="x = x.half()\nx = x.float()\nout = model.reverse(x)") == ["it runs in float32"]
    assert found(call="x = x.half()\nmodel.half()\nout = model.reverse(x)") == ["it runs in float32"]
