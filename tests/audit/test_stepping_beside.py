"""An optimizer that Apex was not given, and whose parameters a scaled loss reaches (AMP238): its gradients stay scaled."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

PROGRAM = """
import torch
IMPORT
from losses import CenterLoss

def main(loader):
    model = torch.nn.Linear(4, 4).cuda()
    center = CenterLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer_center = torch.optim.SGD(center.parameters(), lr=0.5)
    SETUP
    for x, y in loader:
        optimizer.zero_grad()
        optimizer_center.zero_grad()
        REGION
            out = model(x)
            loss = out.mean() + CENTER
        BACKWARD
        BETWEEN
        optimizer_center.step()
"""
BEFORE = (
    PROGRAM.replace("IMPORT", "from apex import amp")
    .replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    .replace("REGION", "if True:")
    .replace(
        "BACKWARD",
        "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()",
    )
)
AFTER = (
    PROGRAM.replace("IMPORT\n", "")
    .replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    .replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    .replace("BACKWARD", "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        UPDATE")
)


def found(center: str, between: str = "pass", after: str = AFTER, update: str = "scaler.update()") -> list[str]:
    texts = [t.replace("CENTER", center).replace("BETWEEN", between) for t in (BEFORE, after.replace("UPDATE", update))]
    return [verdict for _, verdict in told(doubts(*texts), "AMP238")]


@pytest.mark.parametrize("center", ["center(out, y)", "0.1 * center(model(x), y)"])
def test_it_is_told_to_step_on_scaled_gradients(center: str) -> None:
    assert found(center) == ["review"]


@pytest.mark.parametrize("center", ["other(out, y)", "center(out, y).detach()", "center(out, y).item()"])
def test_not_where_the_loss_does_not_reach_it(center: str) -> None:
    assert not found(center)


def test_not_where_it_gave_what_is_detached() -> None:
    made = "center(x, y).detach()\n            loss = loss + model(given)"
    assert not found("0\n            given = " + made)
    assert found("0\n            given = " + made.replace(".detach()", "")) == ["review"]


def test_not_where_its_gradients_are_its_own() -> None:
    own = "optimizer_center.zero_grad()\n        center(out.detach(), y).backward()"
    assert not found("center(out, y)", own)


def test_not_where_the_scaler_steps_it() -> None:
    after = AFTER.replace("optimizer_center.step()", "scaler.step(optimizer_center)\n        scaler.update()")
    assert not found("center(out, y)", after=after, update="pass")
