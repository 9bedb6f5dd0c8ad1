"""What a migration leaves as it is: checks of the loss, traces and exports, recomputation."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex

SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
LOSS = "loss = criterion(model(x), y)\n"


@pytest.mark.parametrize("leave", ["raise SystemExit(1)", "continue", 'print("not finite")'])
def test_an_abort_on_a_non_finite_loss_is_kept(leave: str) -> None:
    check = f"if not torch.isfinite(loss):\n    {leave}\n"
    after = rewrite(apex(LOSS + check + SCALED)).after
    assert after is not None
    kept = f"    if not torch.isfinite(loss):\n        {leave}\n"
    assert after.index(LOSS) < after.index(kept) < after.index("scaler.scale(loss)")


@pytest.mark.parametrize("export", ["torch.jit.trace(model, x)", 'torch.onnx.export(model, x, "model.onnx")'])
def test_a_trace_stays_outside_autocast_whose_weight_cache_it_cannot_hold(export: str) -> None:
    tail = f"with torch.no_grad():\n    traced = {export}\n    print(model(x).argmax())\n"
    after = rewrite(apex(tail=tail)).after
    assert after is not None
    assert f"with torch.no_grad():\n    traced = {export}\n    with torch.autocast(" in after


def test_recomputation_stands_in_the_region_of_its_forward() -> None:
    loop = "output = checkpoint(model, x)\nloss = criterion(output, y)\n" + SCALED
    after = rewrite(apex(loop, imports="from apex import amp\nfrom torch.utils.checkpoint import checkpoint")).after
    assert after is not None
    assert "float16):\n        output = checkpoint(model, x)\n        loss = criterion(output, y)\n    scaler" in after


def test_forwards_without_and_with_gradients_have_a_region_each_because_of_the_weight_cache() -> None:
    loop = "with torch.no_grad():\n    target = model(x)\nloss = criterion(model(x), target)\n" + SCALED
    after = rewrite(apex(loop)).after
    assert after is not None
    assert "with torch.no_grad(), torch.autocast(" in after
    assert after.count("torch.autocast(") == 2


def test_the_backward_stands_outside_autocast() -> None:
    after = rewrite(apex(LOSS + SCALED)).after
    assert after is not None
    assert "        loss = criterion(model(x), y)\n    scaler.scale(loss).backward()\n" in after
