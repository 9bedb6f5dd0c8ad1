"""Operations that O1 kept in float32 and autocast does not (gelu, std, var) are named."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, found, initialize

LOOP = """
loss = {}(model(x)).mean()
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""


@pytest.mark.parametrize("name", ["torch.nn.functional.gelu", "torch.std", "torch.var", "torch.nn.GELU()"])
def test_an_operation_that_o1_upcast_is_named_once(name: str) -> None:
    (finding,) = found(rewrite(apex(LOOP.format(name), tail=f"{name}(model(x))")), "AMP508")
    assert finding.review == "as-is"
    assert "float32" in finding.message


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_o2_and_o3_upcast_nothing(level: str) -> None:
    source = apex(LOOP.format("torch.nn.functional.gelu"), initialize(f'opt_level="{level}"'))
    assert not found(rewrite(source), "AMP508")


@pytest.mark.parametrize("name", ["layer_norm", "local_response_norm"])
def test_operations_that_both_keep_in_float32_are_not_named(name: str) -> None:
    assert not found(rewrite(apex(LOOP.format(f"torch.nn.functional.{name}"))), "AMP508")
