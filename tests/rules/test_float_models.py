"""FP16_Optimizer around the optimizer of a model that nothing makes half."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

TRAINED = """
    import torch
    from apex.fp16_utils import FP16_Optimizer

    model = torch.nn.Linear(4, 1).cuda()
    MADE
    optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        optimizer.backward(loss)
        optimizer.step()
    """


@pytest.mark.parametrize(("made", "review"), [("pass", "review"), ("model = model.half()", "look")])
def test_a_model_that_nothing_makes_half_ran_in_float32(made: str, review: str) -> None:
    result = rewrite(TRAINED.replace("MADE", made))
    assert "torch.autocast" in (result.after or "")
    (told,) = [f for f in result.findings if f.code == "AMP701"]
    assert told.review == review
    assert ("with Apex it ran in float32" in told.message) is (review == "review")
    assert ("in place of float16 weights" in told.message) is (review == "look")
