"""Classes beside one another of which one gives its optimizers to initialize and another gives them to none: Apex raises in
that one, and the first is migrated. What is emitted is run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.trained import PRELUDE, check_trained, run

STEP = """
    def step(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.inner(x), y)
        with amp.scale_loss(loss, self.opt, loss_id=0) as scaled_loss:
            scaled_loss.backward()
        seen.append(float(clip_grad_norm_(amp.master_params(self.opt), 1.0)))
        self.opt.step()
"""
MADE = """
class {name}{base}:
    def __init__(self, inner):
        self.inner = inner
        self.opt = torch.optim.SGD(inner.parameters(), lr=0.1)
{more}"""
SET_UP = '        self.inner, self.opt = amp.initialize(self.inner, self.opt, opt_level="O1")\n'
GOOD = MADE.format(name="Good", base="", more=SET_UP + STEP)
NEVER = MADE.format(name="Never", base="", more=STEP)
RUN = """
trainer = Good(model)
for x, y in loader:
    trainer.step(x, y)
"""


@pytest.mark.parametrize("classes", [GOOD + NEVER, NEVER + GOOD], ids=["after", "before"])
def test_a_class_that_gives_its_optimizer_to_none_leaves_the_others(classes: str) -> None:
    result = rewrite(PRELUDE + classes + RUN, device="cpu")
    assert result.after is not None
    manual = [f for f in result.findings if f.status == "manual"]
    assert {f.code for f in manual} == {"AMP102", "AMP116"}
    (cause,) = found(result, "AMP116")
    assert "no amp.initialize is given self.opt, so that Apex raises here" in cause.message
    good = result.after[result.after.index("class Good") :].partition("class Never")[0]
    assert "self.scaler.step(self.opt)" in good
    never = result.after[result.after.index("class Never") :].partition("class Good")[0].partition("trainer =")[0]
    assert never.strip() == (MADE.format(name="Never", base="", more=STEP)).strip()
    without = result.after.replace("from apex import amp\n", "")
    norms, _ = run(without)
    assert len(norms) == 12


def test_what_else_asks_apex_for_casts_goes_with_the_class_that_is_set_up() -> None:
    registered = 'amp.register_float_function(torch, "softmax")\n'
    result = rewrite(PRELUDE + registered + GOOD + NEVER + RUN, device="cpu")
    assert result.after is not None
    assert "register_float_function" not in result.after
    assert {f.code for f in result.findings if f.status == "manual"} == {"AMP102", "AMP116"}


def test_a_class_that_shares_a_base_with_the_one_that_is_set_up_may_be_it() -> None:
    base = MADE.format(name="Base", base="", more=STEP)
    good = "\n\nclass Good(Base):\n    def __init__(self, inner):\n        super().__init__(inner)\n" + SET_UP
    after = check_trained(base + good + RUN)
    assert "scale_loss" not in after


def test_a_class_whose_objects_are_set_up_from_outside_is_migrated() -> None:
    outside = (
        "\nother = Never(build())\nother.inner, other.opt = amp.initialize(other.inner, other.opt, opt_level='O1')\n"
    )
    result = rewrite(PRELUDE + GOOD + NEVER + RUN + outside, device="cpu")
    assert not [f for f in found(result, "AMP116") if "no amp.initialize is given" in f.message]
