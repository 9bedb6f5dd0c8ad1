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


EACH = """
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for i, (x, y) in enumerate(loader):
    model.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    STEP
"""


@pytest.mark.parametrize(
    ("step", "level", "said"),
    [
        ("if i % 2 == 1:\n        optimizer.step()", "O2", 1),
        ("if i % 2 == 1:\n        optimizer.step()", "O1", 0),
        ("if bad(model):\n        continue\n    optimizer.step()", "O2", 1),
        ("optimizer.step()", "O2", 0),  # Apex's step clears the masters' gradients itself
    ],
)
def test_model_zero_grad_left_the_masters_gradients_which_is_announced(step: str, level: str, said: int) -> None:
    source = apex("pass", EACH.replace("LEVEL", level).replace("STEP", step))
    assert len(found(rewrite(source), "AMP306")) == said


def test_optimizer_zero_grad_cleared_the_masters_too() -> None:
    assert not found(rewrite(apex(prepare=initialize('opt_level="O2"'))), "AMP306")


def test_a_clip_before_the_end_of_scale_loss_acted_and_is_not_announced() -> None:
    """Apex copies the gradients to the masters when the `with` ends."""
    loop = APEX_LOOP.replace(
        "scaled_loss.backward()",
        "scaled_loss.backward()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    )
    source = apex(loop, initialize('opt_level="O2"'))
    assert "clip_grad_norm_" in source
    assert not found(rewrite(source), "AMP305")


def test_a_clip_of_the_masters_or_of_the_weights_where_there_are_none_is_not_announced() -> None:
    both = "amp.master_params(optimizer) if fp16 else model.parameters()"
    assert not found(rewrite("fp16 = True\n" + looped(both, "O2")), "AMP305")


AGENTS = """
import torch
from apex import amp


class Agent:
    def __init__(self):
        self.options = {}


class Scaled(Agent):
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")

    def train(self, batches):
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()

    def warm_up(self, batches):
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()


class Plain(Agent):
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, batches):
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()


def main(batches, kind):
    agent = {"scaled": Scaled, "plain": Plain}[kind](torch.nn.Linear(2, 2))
    agent.train(batches)
"""


@pytest.mark.parametrize(("level", "review"), [("O2", "review"), ("O1", "look")])
def test_a_loss_that_is_never_scaled_trained_nothing_at_o2(level: str, review: str) -> None:
    (finding,) = found(rewrite(AGENTS.replace("O2", level)), "AMP214")
    lines = AGENTS.lstrip("\n").splitlines()
    assert lines.index("    def warm_up(self, batches):") < finding.line <= lines.index("class Plain(Agent):")
    assert finding.review == review
    assert ("nothing was trained" in finding.message) is (review == "review")


def test_a_sibling_that_never_sets_apex_up_is_not_spoken_of() -> None:
    result = rewrite(AGENTS)
    plain = AGENTS.lstrip("\n").splitlines().index("class Plain(Agent):")
    assert not [f for f in result.findings if f.line > plain]
    assert result.after is not None
    assert result.after.endswith(AGENTS[AGENTS.index("class Plain") :])


CLEARED = """
import torch
from apex import amp
from project import build, loader

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
# hack for delay_unscale
{}.zero_grad()
optimizer.step()
for x in loader:
    with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_step_in_a_branch_right_after_the_gradients_were_cleared() -> None:
    program = CLEARED.format("optimizer").replace("\noptimizer.step()", "\nif loader.fresh:\n    optimizer.step()", 1)
    (finding,) = found(rewrite(program), "AMP214")
    assert "trains nothing, as before" in finding.message


@pytest.mark.parametrize(("cleared", "nothing"), [("optimizer", True), ("model", True), ("other", False)])
def test_a_step_whose_gradients_were_just_cleared_trains_nothing(cleared: str, nothing: bool) -> None:
    program = CLEARED.format(cleared).replace(
        "optimizer = torch", "other = torch.optim.SGD(build().parameters(), lr=0.1)\noptimizer = torch", 1
    )
    (finding,) = found(rewrite(program), "AMP214")
    assert ("trains nothing, as before" in finding.message) is nothing
    assert finding.review == ("as-is" if nothing else "review")


@pytest.mark.parametrize(("above", "said"), [(True, 0), (False, 1)])
def test_a_clip_above_the_set_up_acted(above: bool, said: int) -> None:
    first = "model(warm).sum().backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nearly.step()\n"
    setup = initialize('opt_level="O2"')
    prepare = first + setup if above else setup + "\n" + first
    assert len(found(rewrite(apex(prepare=prepare)), "AMP305")) == said
