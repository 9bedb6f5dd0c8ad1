"""Products of tensors outside of any model, which O1 ran in half as everywhere: AMP537."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, told

HEAD = """
import torch
import torch.nn.functional as F
from apex import amp
"""
SET_UP = """
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")
mixing = torch.randn(4, 4).cuda()
for x, y in loader:
{train}
    loss = F.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
{then}
"""
AFTER = """
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
mixing = torch.randn(4, 4).cuda()
for x, y in loader:
{train}
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
{then}
"""


def said(before: str = "", train: str = "pass", then: str = "", *, level: str = "O1") -> list[str]:
    """What is told of a program with so much before its training, in it and after it."""
    filled = {"train": textwrap.indent(train, "    "), "then": then}
    old = HEAD + before + SET_UP.format(level=level, **filled)
    new = HEAD.replace("from apex import amp\n", "") + before + AFTER.format(**filled)
    return [d.message for d in doubts(old, new) if d.code == "AMP537"]


@pytest.mark.parametrize(
    "product",
    [
        "x = x.cuda() @ mixing",
        "x = torch.mm(x, mixing)",
        "x = torch.bmm(x[None], mixing[None])[0]",
        "x = F.linear(x, mixing)",
        "x = x.cuda().mm(mixing)",
        "x = torch.addmm(mixing, x, mixing)",
        "x = mixing.matmul(x.t())",
        "x = F.conv2d(x, mixing[None, None])",
    ],
)
def test_what_o1_ran_in_half_is_told_where_no_region_is(product: str) -> None:
    (message,) = said(train=product)
    assert "O1 reached all products" in message
    assert said(train=product, level="O2") == []


def test_functions_are_told_that_run_after_the_set_up() -> None:
    helper = "\ndef similarity(a, b):\n    return torch.mm(a, b.t())\n"
    (message,) = said(helper, then="print(similarity(mixing, mixing))")
    assert "called from train.py" in message
    assert said(helper + "print(similarity(torch.rand(2, 2).cuda(), torch.rand(2, 2).cuda()))\n") == []


def test_the_tensors_of_a_metric_object_are_told() -> None:
    metric = """
class Retrieval:
    def __init__(self):
        self.bank = torch.zeros(10, 4).cuda()

    def compute(self, queries):
        return (queries @ self.bank.t()).topk(5)
"""
    (message,) = said(metric, then="metric = Retrieval()\nprint(metric.compute(mixing))")
    assert "queries @ self.bank.t()" in message


def test_several_in_one_function_are_told_once() -> None:
    (message,) = said(train="x = torch.mm(x, mixing)\nx = torch.mm(x, mixing.t())")
    assert "line 11" in message


def test_what_is_on_the_cpu_was_left_alone() -> None:
    assert said(then="data = torch.randn(512, 6) @ torch.randn(6, 32)") == []
    assert said(then="print(torch.mm(mixing.cpu(), mixing.cpu().t()))") == []
    assert said(then="a = torch.tensor([[1.0]])\nprint(a.t().mm(a))") == []
    assert said(then="a = torch.ones(2, 2, device='cuda')\nprint(a.t().mm(a))") != []


DATA = """
class Points:
    def __getitem__(self, i):
        points = self.points[i]MOVED
        return torch.mm(points, points.t())

def collate(batch):
    points = torch.stack(batch)MOVED
    return torch.bmm(points, points.transpose(1, 2))
"""


def test_what_data_are_loaded_with_is_on_the_cpu() -> None:
    then = "loader = torch.utils.data.DataLoader(Points(), collate_fn=collate)\nprint(Points()[0])"
    assert said(DATA.replace("MOVED", ""), then=then) == []
    assert len(said(DATA.replace("MOVED", ".cuda()"), then=f"{then}\nprint(collate(y))")) == 1
    assert len(said(DATA.replace("MOVED", ""), then="print(collate(y))")) == 1


def test_arrays_are_no_tensors() -> None:
    assert said("import numpy as np\n", then="a = np.ones((2, 2))\nprint(a @ a.T)\nprint(np.matmul(a, a))") == []


def test_what_a_region_gives_is_half_now_too() -> None:
    then = "with torch.no_grad(), torch.autocast('cuda', dtype=torch.float16):\n    found = model(mixing)\n"
    assert said(then=f"{then}print(torch.mm(found, found.t()))") == []
    assert said(then=then.replace("found =", "found, _ =") + "print(torch.mm(found, found.t()))") == []
    assert said(then=f"{then}bank = []\nbank.append(found)\nbank = torch.cat(bank)\nprint(bank @ bank.t())") == []
    assert said(then=f"{then}kept = found.float()\nprint(kept @ mixing)") != []


SWITCHED = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
x = torch.randn(4, 4).cuda()
print(torch.mm(x, x))
"""


def test_a_switch_is_named() -> None:
    after = SWITCHED.replace("from apex import amp\n", "").replace("if args.fp16:\n    model, ", "")
    call = 'optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    found = doubts(SWITCHED, after.replace(call, 'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)'))
    assert told(found, "AMP537") == [(13, "look")]
    assert "where fp16" in next(d.message for d in found if d.code == "AMP537")


def test_products_of_networks_are_told_of_their_calls() -> None:
    network = """
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.mm(x, x.t())
net = Net()
net.eval()
"""
    assert said(network, then="print(net(mixing))") == []


PICKED = """
def dot(a, b):
    return torch.mm(a, b.t())

def pick(name):
    if name == "dot":
        return dot

def evaluate(model, loader):
    score = pick(args.name)
    rows, others = [], []
    for x in loader:
        with torch.no_grad():
            found = lookup(model, x)
        rows.extend(found[0]MOVED.split(1))
        others.append(found[1]MOVED)
    rows = torch.cat(rows)
    others = torch.cat(others)
    return score(rows, others)
"""


@pytest.mark.parametrize(("moved", "told_of"), [(".cpu()", 0), (".cuda()", 1), ("", 1), (".to(args.device)", 1)])
def test_what_is_handed_on_is_where_the_calls_of_it_have_their_tensors(moved: str, told_of: int) -> None:
    found = said(PICKED.replace("MOVED", moved), then="print(evaluate(mixing, loader))")
    assert len(found) == told_of


@pytest.mark.parametrize(
    ("made", "told_of"),
    [
        ("rows = []\nfor x, y in loader:\n    rows.append(y.cpu())\nrows = torch.cat(rows)", 0),
        ("rows = []\nfor x, y in loader:\n    rows.append(y.cuda())\nrows = torch.cat(rows)", 1),
        ("rows = torch.cat([y.cpu(), y.cpu()])", 0),
        ("rows = torch.cat([y.cpu(), read()])", 1),
        ("rows = torch.cat([])", 1),
    ],
)
def test_a_list_is_where_all_is_that_is_put_into_it(made: str, told_of: int) -> None:
    assert len(said(then=f"{made}\nprint(torch.mm(rows, rows.t()))")) == told_of


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("    out = x + 1\n", 1),
        ("    out = out + 1\n", 0),
        ("    if y is None:\n        out = x + 1\n", 0),
        ("", 0),
    ],
)
def test_a_name_that_held_an_output_and_was_given_another_tensor(given: str, count: int) -> None:
    then = f"for x, y in loader:\n    AROUND\n{given}    print(F.mse_loss(torch.matmul(out, mixing), x))\n"
    old = HEAD + SET_UP.format(level="O1", train="    pass", then=then.replace("AROUND", "out = model(x)"))
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n        out = model(x)'
    new = HEAD.replace("from apex import amp\n", "") + AFTER.format(
        train="    pass", then=then.replace("AROUND", region)
    )
    assert len([d for d in doubts(old, new) if d.code == "AMP537"]) == count
