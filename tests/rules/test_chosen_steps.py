"""Steps that an expression, or a test in a loop over the optimizers, decides on."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite
from tests.rules.trained import check_trained

ONE = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for index, (x, y) in enumerate(loader):
    ready, other = index != 2, index != 3
    optimizer.zero_grad()
    with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
        scaled_loss.backward()
    STEP
    seen.append(model[0].weight.norm().item())
"""
SEVERAL = """
models = [model, other_model := build()]
optimizers = [optimizer, torch.optim.SGD(other_model.parameters(), lr=0.1)]
models, optimizers = amp.initialize(models, optimizers, opt_level="O1", num_losses=2)
for index, (x, y) in enumerate(loader):
    ready, other = index != 2, index != 3
    for optimizer in optimizers:
        optimizer.zero_grad()
    losses = [criterion(m(x), y) for m in models]
    for number, (loss, optimizer) in enumerate(zip(losses, optimizers)):
        with amp.scale_loss(loss, optimizer, loss_id=number) as scaled_loss:
            scaled_loss.backward()
        STEP
    seen.append(other_model[0].weight.norm().item())
"""
CHOICES = [
    ("optimizer.step() if ready else optimizer.zero_grad()", "ready"),
    ("optimizer.zero_grad() if not ready else optimizer.step()", "not not ready"),
    ("optimizer.step() if ready else None", "ready"),
    ("ready and optimizer.step()", "ready"),
    ("ready and other and optimizer.step()", "ready and other"),
]


@pytest.mark.parametrize(("step", "asked"), CHOICES)
def test_an_expression_that_may_leave_the_step_out(step: str, asked: str) -> None:
    after = check_trained(ONE.replace("STEP", step))
    assert "scaler.step(optimizer)\n        scaler.update()\n" in after


@pytest.mark.parametrize(
    ("step", "asked"),
    [*CHOICES, ("if ready:\n            optimizer.step()\n        else:\n            optimizer.zero_grad()", "ready")],
)
def test_an_update_after_a_loop_waits_for_what_its_steps_wait_for(step: str, asked: str) -> None:
    after = check_trained(SEVERAL.replace("STEP", step))
    assert "\n    if ASKED:\n        scaler.update()\n".replace("ASKED", asked) in after.replace(
        "(not ready)", "not ready"
    )


@pytest.mark.parametrize("step", ["if number in active:\n            optimizer.step()", "number and optimizer.step()"])
def test_what_each_turn_of_the_loop_decides_is_not_asked_after_it(step: str) -> None:
    text = SEVERAL.replace("STEP", step)
    assert "if number" not in (rewrite(f"import torch\nfrom apex import amp\n{text}").after or "").partition("seen")[2]


def test_a_choice_that_clips_first_is_left() -> None:
    text = ONE.replace(
        "STEP", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    ready and optimizer.step()"
    )
    check_manual(f"import torch\nfrom apex import amp\n{text}", "AMP231")
