"""binary_cross_entropy itself kept as a value, by name, key or default, stays out of the region: autocast refuses it."""

from __future__ import annotations

import re

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite

PROGRAM = """
import functools
import torch
import torch.nn.functional as F
from torch.nn.functional import binary_cross_entropy as bce
from apex import amp

TOP

class Criterion(torch.nn.Module):
    def __init__(self, kind="bce"):
        super().__init__()
        HOLDS

    def forward(self, x, y):
        return RETURN

def main(loader, device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sigmoid()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    criterion = Criterion()
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
COMPUTES = "return F.binary_cross_entropy(x, y)"
CHOICE = '{"bce": F.binary_cross_entropy, "mse": F.mse_loss}[kind]'
MADE = "torch.nn.BCELoss()"
PLAIN = 'LOSSES = {"bce": F.binary_cross_entropy, "mse": F.mse_loss}'
WAYS = [
    (PLAIN, "self.fn = LOSSES[kind]", "self.fn(x, y)"),
    (PLAIN, "self.kind = kind", "LOSSES[self.kind](x, y)"),
    (PLAIN.replace("F.binary_cross_entropy", "bce"), "self.fn = LOSSES[kind]", "self.fn(x, y)"),
    ("LOSSES = dict(bce=bce, mse=F.mse_loss)", "self.kind = kind", "LOSSES[self.kind](x, y)"),
    ("part = functools.partial(F.binary_cross_entropy, reduction='sum')", "pass", "part(x, y)"),
    ("", "self.fn = F.binary_cross_entropy if kind == 'bce' else F.mse_loss", "self.fn(x, y)"),
    ("", "self.fns = [F.binary_cross_entropy]", "self.fns[0](x, y)"),
    (f"def compute(x, y):\n    {COMPUTES}\n\nLOSSES = {{'bce': compute}}", "pass", "LOSSES['bce'](x, y)"),
    (f"def compute(x, y):\n    {COMPUTES}", "self.fn = compute", "self.fn(x, y)"),
    ("LOSSES = {'bce': lambda x, y: F.binary_cross_entropy(x, y)}", "pass", "LOSSES['bce'](x, y)"),
    ("part = lambda x, y: F.binary_cross_entropy(x, y)", "pass", "part(x, y)"),
    (f"def pick(kind):\n    return {CHOICE}", "self.fn = pick(kind)", "self.fn(x, y)"),
    (
        f"def pick(kind):\n    if kind:\n        return {MADE}\n    return F.mse_loss",
        "self.fn = pick(kind)",
        "self.fn(x, y)",
    ),
    ("", f"self.mse, self.fn = F.mse_loss, {MADE}", "self.fn(x, y)"),
]


def program(top: str, holds: str, computes: str) -> str:
    return PROGRAM.replace("TOP", top).replace("HOLDS", holds).replace("RETURN", computes)


@pytest.mark.parametrize(("top", "holds", "computes"), WAYS)
def test_it_is_computed_in_float32_without_autocast(top: str, holds: str, computes: str) -> None:
    result = rewrite(program(top, holds, computes), device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP533"]
    inside: list[bool] = []
    kept = torch.nn.functional.binary_cross_entropy

    def function(*given: torch.Tensor, **others: str) -> torch.Tensor:
        inside.append(torch.is_autocast_enabled("cpu") or given[0].dtype != torch.float32)
        return kept(*given, **others)

    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "binary_cross_entropy", function)
        exec(compile(result.after or "", "train.py", "exec"), names)
        names["main"]([(torch.randn(8, 4), torch.rand(8, 2))], "cpu")  # type: ignore[operator]
    assert inside == [False]


@pytest.mark.parametrize(("top", "holds", "computes"), WAYS)
def test_the_audit_sees_it_by_itself(top: str, holds: str, computes: str) -> None:
    before = program(top, holds, computes)
    after = re.sub(r"with torch.autocast\(.cuda., enabled=False\):", "if True:", rewrite(before).after or "")
    assert "if True:" in after
    assert "AMP533" in [d.code for d in doubts(before, after)]


def test_an_attribute_of_the_class_that_is_one_is_told_or_taken_out() -> None:
    text = program("", "pass", "self.fn(x, y)")
    text = text.replace("    def __init__", "    fn = staticmethod(F.binary_cross_entropy)\n\n    def __init__", 1)
    assert {f.code for f in rewrite(text).findings} & {"AMP505", "AMP533"}


def test_a_parameter_that_is_one_by_default_is_told_or_taken_out() -> None:
    text = program("", "self.fn = fn", "self.fn(x, y)").replace('kind="bce"', "fn=F.binary_cross_entropy")
    assert {f.code for f in rewrite(text).findings} & {"AMP505", "AMP533"}


def test_other_functions_stay_in_the_region() -> None:
    top = 'LOSSES = {"bce": F.binary_cross_entropy_with_logits, "mse": F.mse_loss}'
    result = rewrite(program(top, "self.fn = LOSSES[kind]", "self.fn(x, y)"))
    assert "        return self.fn(x, y)\n" in (result.after or "")
    assert not {f.code for f in result.findings} & {"AMP505", "AMP533"}


CALLED = """
import torch
from apex import amp

KINDS = {"bce": torch.nn.BCELoss, "mse": torch.nn.MSELoss}
inside = []


class Net(torch.nn.Linear):
    def forward(self, x):
        inside.append(torch.is_autocast_enabled("cpu"))
        return torch.sigmoid(super().forward(x))


def main(loader, kind):
    model = Net(4, 2)
    criterion = KINDS[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        LOSS
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "loss", ["loss = criterion(model(x), y)", "loss = 0.5 * criterion(model(x), y) + model.weight.abs().mean()"]
)
def test_the_forward_in_the_statement_that_a_region_begins_with_stays_in_it(loss: str) -> None:
    result = rewrite(CALLED.replace("LOSS", loss), device="cpu", dtype="bfloat16")
    names: dict[str, object] = {}
    exec(compile(result.after or "", "train.py", "exec"), names)
    names["main"]([(torch.randn(8, 4), torch.rand(8, 2))], "bce")  # type: ignore[operator]
    assert names["inside"] == [True]
    assert "enabled=False" in (rewrite(CALLED.replace("LOSS", loss)).after or "")
    assert "AMP531" not in {f.code for f in result.findings}
