"""Values that hang on themselves: questions about them end, and say what the rest of it says."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.values.dtypes import Dtypes
from amp_migrate.reading.values.returned import Returns
from tests.reading.test_project import project
from tests.reading.test_values import asked
from tests.rules.helpers import check_files, run_files

NETWORK = """
import torch.nn as nn
from functools import partial

class Net(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
{made}

    def forward(self, x):
        ask(self.model(x))
"""


@pytest.mark.parametrize(
    ("made", "returned", "dtype"),
    [
        ("self.model = [nn.Linear(3, 3)]\nself.model = nn.Sequential(*self.model)", "tensor", "unknown"),
        ("self.model = [nn.LSTM(3, 3)]\nself.model = nn.Sequential(*self.model)", "other", "unknown"),
        ("self.model = nn.Linear(3, 3)\nself.model = nn.Sequential(nn.ReLU(), self.model)", "tensor", "half"),
        ("self.model = nn.Linear(3, 3)\nself.model = nn.Sequential(self.model, nn.LSTM(3, 3))", "unknown", "half"),
        ("self.model = nn.Sequential(self.model)", "unknown", "unknown"),
        ("self.a = nn.Sequential(self.model)\nself.model = nn.Sequential(self.a, nn.Linear(3, 3))", "tensor", "half"),
        ("self.norm = norm\nself.norm = partial(self.norm, eps=1)\nself.model = self.norm(3)", "unknown", "float32"),
    ],
)
def test_a_network_that_stands_in_itself(made: str, returned: str, dtype: str) -> None:
    p = project(net=NETWORK.format(made=textwrap.indent(made, " " * 8)))
    _, ((module, node), *_) = asked(p)
    assert p.once(Returns).of(module, node) == returned
    assert p.once(Dtypes).of(module, node) == dtype


WRAPPING = """
import torch.nn as nn

class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        {body}

def build(kind, fetched):
    net = {inner}
    if kind:
        net = Wrapped(net)
    if fetched:
        net = Wrapped(net)
    return net

class Trainer:
    def __init__(self, model):
        self.model = model

    def train(self, x):
        ask(self.model(x){asked})

Trainer(build(1, 2))
"""


@pytest.mark.parametrize(
    ("inner", "body", "item", "dtype"),
    [
        ("nn.Linear(3, 3)", "return self.net(x)['out']", "", "half"),
        ("fetched(kind)", "return self.net(x)['out']", "", "unknown"),
        ("nn.Linear(3, 3)", "return self.net(x)[0]", "", "half"),
        ("nn.LayerNorm(3)", "return self.net(x)['out']['b']", "", "float32"),
        ("nn.Linear(3, 3)", "return {'out': self.net(x)['out']}", "['out']", "half"),
        ("nn.Linear(3, 3)", "a, b = self.net(x)\n        return b", "", "half"),
        ("nn.Linear(3, 3)", "return self.net(x).max(1)", "[0]", "half"),
    ],
)
def test_a_network_that_runs_one_of_its_own_class(inner: str, body: str, item: str, dtype: str) -> None:
    """What wraps a network under a condition may wrap what was wrapped before."""
    p = project(net=WRAPPING.format(inner=inner, body=body, asked=item))
    _, ((module, node), *_) = asked(p)
    p.once(Returns).of(module, node)
    assert p.once(Dtypes).of(module, node) == dtype


DECAYED = """
import json
import torch
import torch.nn as nn
from apex import amp

net, teacher = nn.Linear(3, 3), nn.Linear(3, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
for x in [torch.ones(2, 3)]:
    optimizer.zero_grad()
    out = {start}
    for _ in range(2):
        out = out * 0.5
        out += torch.softmax(teacher(x), 1)
    loss = net(x).sum() + out.sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    print(json.dumps([str(out.detach().cpu().numpy().dtype), float(out.sum().detach())]))
"""


@pytest.mark.parametrize(("start", "cast"), [("torch.zeros(2, 3)", False), ("net(x)", True)])
def test_a_sum_that_decays_in_a_loop_is_asked_for_its_dtype(start: str, cast: bool, tmp_path: Path) -> None:
    texts = check_files({"train.py": DECAYED.format(start=start)})
    assert ("out = net(x).float()" in texts["train.py"]) is cast
    dtype, _ = run_files(tmp_path, texts, "train.py")
    assert dtype == "float32"


BASES = """
class Model:
    def __init__(self, model=None, size=1):
        self.model = model

"""
CLASS = """
class Model{number}(Model{above}):
    def __init__(self, *args, **kwargs):
        if kwargs:
            super().__init__(*args, **kwargs)
        super().__init__(*args, size=2)
        super().__init__(*args, **kwargs)
"""


def test_what_is_handed_on_by_many_ways_is_given_once() -> None:
    deep = 14  # three ways each: five million in all
    classes = "".join(CLASS.format(number=n, above=n - 1 if n else "") for n in range(deep))
    p = project(net=f"{BASES}{classes}\nclass Net:\n    pass\n\nnet = Net()\nModel{deep - 1}(net)\n")
    (module,) = p.modules
    base = p.class_named("net.Model")
    assert base is not None
    assert p.class_named("net.Net") in p.instances[Slot(base.methods["__init__"].scope, "model")]
    assert Slot(base.family, "model") in p.reaches([Slot(module.root, "net")])


def test_a_function_that_hands_more_on_to_itself() -> None:
    p = project(
        net="def run(*args):\n    run(1, *args)\n    last(*args)\n\ndef last(a, b):\n    pass\n\nnet = make()\nrun(net)\n"
    )
    (module,) = p.modules
    (last,) = (f for f in p.functions.values() if f.name == "last")
    reached = p.reaches([Slot(module.root, "net")])
    assert {Slot(last.scope, "a"), Slot(last.scope, "b")} <= reached


def test_what_a_class_is_handed_as_itself_is_no_argument_that_it_hands_on() -> None:
    text = """
    class Base:
        def train(self, model, loader):
            pass

    class Sub(Base):
        def train(self, *args):
            Base.train(self, *args)

    class Last(Sub):
        def train(self, *args):
            Sub.train(self, *args)

    model, loader = make()
    Last().train(model, loader)
    """
    p = project(net=textwrap.dedent(text))
    (module,) = p.modules
    base = p.class_named("net.Base")
    assert base is not None
    train = base.methods["train"].scope
    assert Slot(train, "model") in p.reaches([Slot(module.root, "model")])
    assert Slot(train, "loader") not in p.reaches([Slot(module.root, "model")])
