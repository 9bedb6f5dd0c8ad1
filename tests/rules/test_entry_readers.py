"""A class whose backward, clip and step a framework calls: in which order, only the framework says."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE, check_trained

HOOKS = """
class Hook:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
        self.max_norm = 0.05

    def forward(self, batch):
        x, y = batch
        self.loss = criterion(self.model(x), y)

    def backward(self, batch):
        with amp.scale_loss(self.loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    {clip}

    def step(self, batch):
        {step}


def framework(hook):
    for batch in loader:
        for name in ("forward", "backward", "clip", "{last}"):
            getattr(hook, name)(batch)


framework(Hook(model, optimizer))
seen.append(model[0].weight.norm().item())
"""
STEP = "self.optimizer.step()\n        self.optimizer.zero_grad()"


def program(*body: str, name: str = "clip", step: str = STEP, last: str = "step") -> str:
    lines = "\n        ".join(body)
    return PRELUDE + HOOKS.format(clip=f"def {name}(self, batch):\n        {lines}", step=step, last=last)


@pytest.mark.parametrize(
    "body",
    [
        ["clip_grad_norm_(self.model.parameters(), self.max_norm)"],
        ["clip_grad_norm_(amp.master_params(self.optimizer), self.max_norm)"],
        ["if self.max_norm:", "    clip_grad_norm_(self.model.parameters(), self.max_norm)"],
        ["for q in self.model.parameters():", "    q.grad.data.clamp_(-0.01, 0.01)"],
    ],
)
def test_the_method_that_clips_unscales(body: list[str]) -> None:
    source = program(*body)
    after = check_trained(source.removeprefix(PRELUDE))
    assert after.index("def clip") < after.index("self.scaler.unscale_(self.optimizer)") < after.index("def step")
    (finding,) = found(rewrite(source), "AMP301")
    assert finding.review == "review"


def test_a_method_that_calls_the_step_is_the_one_a_framework_calls() -> None:
    source = program(
        "clip_grad_norm_(self.model.parameters(), self.max_norm)",
        step=f"{STEP}\n\n    def finish(self, batch):\n        self.step(batch)",
        last="finish",
    )
    assert "unscale_" in check_trained(source.removeprefix(PRELUDE))


def test_a_step_that_reads_gradients_itself_unscales_itself() -> None:
    source = program("pass", step=f"clip_grad_norm_(self.model.parameters(), self.max_norm)\n        {STEP}")
    check_trained(source.removeprefix(PRELUDE))
    (finding,) = found(rewrite(source), "AMP301")
    assert finding.review == "as-is"


NORM = "seen.append(grad_norm(self.model))"
CLIP = "clip_grad_norm_(self.model.parameters(), self.max_norm)"


@pytest.mark.parametrize(
    "source",
    [
        program(NORM),
        program(f"{CLIP}\n\n    def log(self, batch):\n        {NORM}"),
        program(CLIP, step=f"{NORM}\n        {STEP}"),
    ],
    ids=["one that only looks", "two", "the step as well"],
)
def test_what_the_order_of_the_calls_decides_is_refused(source: str) -> None:
    check_refused(source, "AMP307")


def test_nothing_comes_between_a_backward_and_a_step_in_one_method() -> None:
    source = program(f"{NORM}\n\n    def log(self, batch):\n        {NORM}", step="pass")
    source = source.replace("scaled_loss.backward()\n", f"scaled_loss.backward()\n        {STEP}\n")
    result = rewrite(source)
    assert result.after is not None
    assert "unscale_" not in result.after
