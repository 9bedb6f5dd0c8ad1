"""A plain backward beside a scaled one, both into one step: Apex had unscaled the other gradients, native has not yet."""

from __future__ import annotations

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import apex, check_refused, found, native

SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
NATIVE = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n"
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n'


def test_a_plain_backward_above_a_scaled_one_is_scaled_too() -> None:
    before = "loss = criterion(model(x), y)\nother = criterion(model(-x), y)\nother.backward()\n" + SCALED
    after = (
        f"{REGION}    loss = criterion(model(x), y)\n    other = criterion(model(-x), y)\n"
        "scaler.scale(other).backward()\n" + NATIVE
    )
    result = check_rewrite(apex(before), native(after))
    (finding,) = found(result, "AMP217")
    assert finding.review == "review"


def test_a_plain_backward_whose_gradients_are_cleared_stays() -> None:
    before = "other = criterion(model(-x), y)\nother.backward()\noptimizer.zero_grad()\nloss = criterion(model(x), y)\n"
    result = rewrite(apex(before + SCALED))
    assert result.after is not None
    assert "    other.backward()\n" in result.after
    assert not found(result, "AMP217")


def test_a_plain_backward_whose_gradients_are_read_before_the_scaled_one_is_refused() -> None:
    before = "other = criterion(model(-x), y)\nother.backward()\nx = x + x.grad.sign()\nloss = criterion(model(x), y)\n"
    check_refused(apex(before + SCALED), "AMP217")
