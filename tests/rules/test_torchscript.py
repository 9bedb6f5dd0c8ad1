"""TorchScript that no set-up was given stays outside of regions: O1 never reached it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import MODEL, apex, found

SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
LOADED = 'teacher = torch.jit.load("teacher.pt").cuda().eval()'


@pytest.mark.parametrize("called", ["teacher(x)", "teacher.forward(x)"])
@pytest.mark.parametrize("first", [True, False])
def test_a_teacher_that_is_torchscript_stays_in_float32(called: str, first: bool) -> None:
    target = f"with torch.no_grad():\n    target = {called}\n"
    output = "output = model(x)\n"
    body = (target + output if first else output + target) + "loss = criterion(output, target)\n" + SCALED
    result = rewrite(apex(body, model=f"{MODEL}\n{LOADED}"))
    assert result.after is not None
    lines = result.after.splitlines()
    (at,) = (n for n, line in enumerate(lines) if f"target = {called}" in line)
    assert lines[at - 1].strip() == "with torch.no_grad():"
    around = len(lines[at - 1]) - len(lines[at - 1].lstrip())
    assert all(len(line) - len(line.lstrip()) >= around for line in lines if "torch.autocast" in line)
    assert not found(result, "AMP531")
    assert not found(result, "AMP507")


def test_where_its_loss_is_computed_in_one_statement_that_is_told() -> None:
    body = "loss = criterion(model(x), teacher(x))\n" + SCALED
    (told,) = found(rewrite(apex(body, model=f"{MODEL}\n{LOADED}")), "AMP531")
    assert "it is TorchScript" in told.message
    assert told.review == "review"
