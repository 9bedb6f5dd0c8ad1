"""Under O2 the masters were stepped: what touched the model's own gradients did not reach them."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, apex, found, initialize

CLIP = "torch.nn.utils.clip_grad_norm_({}, 1.0)\noptimizer.step()"


def looped(parameters: str, level: str) -> str:
    return apex(APEX_LOOP.replace("optimizer.step()", CLIP.format(parameters)), initialize(f'opt_level="{level}"'))


def test_o2_clipping_of_the_models_own_parameters_had_no_effect_which_is_said() -> None:
    (finding,) = found(rewrite(looped("model.parameters()", "O2")), "AMP305")
    assert finding.review == "review"


@pytest.mark.parametrize(
    ("parameters", "level"), [("amp.master_params(optimizer)", "O2"), ("model.parameters()", "O1")]
)
def test_a_clip_that_worked_before_is_not_announced(parameters: str, level: str) -> None:
    assert not found(rewrite(looped(parameters, level)), "AMP305")


@pytest.mark.parametrize(("level", "said"), [("O2", 1), ("O1", 0)])
def test_model_zero_grad_left_the_masters_gradients_which_is_announced(level: str, said: int) -> None:
    loop = APEX_LOOP.replace("optimizer.zero_grad()", "model.zero_grad()")
    assert len(found(rewrite(apex(loop, initialize(f'opt_level="{level}"'))), "AMP306")) == said


def test_optimizer_zero_grad_cleared_the_masters_too() -> None:
    assert not found(rewrite(apex(prepare=initialize('opt_level="O2"'))), "AMP306")
