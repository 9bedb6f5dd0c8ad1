"""Events between backward and step, whose listeners the program does not show: gradients are unscaled by then, as with Apex."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

TRAINER = """
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, model, optimizer, handler, every=1):
            self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.handler = handler
            self.every = every

        def train(self, batches):
            for i, x in enumerate(batches):
                loss = self.model(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                total = loss.item()
                {event}
                {step}
    """
STEP = "self.optimizer.step()"
EVENTS = [
    "self.handler.fire_event(Events.BACKWARD)",
    "self.handler.on_after_backward(self)",
    'self.handler.call("after_backward", self)',
    "self.handler.trigger(name='before_step')",
    "self.handler.onBeforeOptimizerStep(self)",
    "if self.handler:\n                    self.handler.after_backward(self)",
]


def program(event: str, step: str = STEP) -> str:
    return TRAINER.format(event=event, step=step)


@pytest.mark.parametrize("event", EVENTS)
def test_it_is_fired_once_gradients_are_unscaled(event: str) -> None:
    result = rewrite(program(event))
    first = event.split("\n")[0]
    assert f"            self.scaler.unscale_(self.optimizer)\n            {first}\n" in (result.after or "")
    assert "this event: what listens to it may read them" in found(result, "AMP301")[0].message


@pytest.mark.parametrize(
    "event",
    [
        'print("after_backward")',
        'self.handler.log("backward done")',
        'self.handler.timer("backward").stop()',
        "self.handler.register_backward_hook(total)",
        "self.handler.fire_event(Events.BATCH_END)",
        "pass",
    ],
)
def test_what_fires_no_such_event_is_left_alone(event: str) -> None:
    assert "unscale_" not in (rewrite(program(event)).after or "unscale_")


def test_one_of_every_micro_batch_is_told_and_stays() -> None:
    event = EVENTS[0]
    result = rewrite(program(event, f"if (i + 1) % self.every == 0:\n                    {STEP}"))
    assert "unscale_" not in (result.after or "unscale_")
    (told,) = found(result, "AMP301")
    assert (told.review, "sees gradients times the scale now" in told.message) == ("review", True)


def test_a_clip_beside_it_is_unscaled_before_both() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)"
    after = rewrite(program(f"{EVENTS[1]}\n                {clip}")).after or ""
    assert after.count("unscale_") == 1
    assert after.index("unscale_") < after.index("on_after_backward") < after.index("clip_grad_norm_")


def test_what_listens_sees_the_gradients_of_the_loss() -> None:
    after = rewrite(program(EVENTS[1]), device="cpu").after or ""
    names = names_of(after.replace('GradScaler("cpu"', 'GradScaler("cpu", init_scale=1024.0'))
    seen: list[float] = []

    class Handler:
        def on_after_backward(self, trainer: Any) -> None:
            seen.append(float(trainer.model.bias.grad[0]))

    model = torch.nn.Linear(4, 2)
    trainer = names["Trainer"](model, torch.optim.SGD(model.parameters(), lr=0.1), Handler())
    trainer.train([torch.ones(3, 4)])
    assert seen == [3.0]


@pytest.mark.parametrize("event", EVENTS[:4])
@pytest.mark.parametrize("unscaled", [True, False])
def test_the_audit_sees_it_by_itself(event: str, unscaled: bool) -> None:
    after = rewrite(program(event)).after or ""
    if not unscaled:
        after = after.replace("            self.scaler.unscale_(self.optimizer)\n", "")
    seen = [d for d in doubts(program(event), after) if d.code == "AMP232" and "this event comes" in d.message]
    assert bool(seen) is not unscaled
