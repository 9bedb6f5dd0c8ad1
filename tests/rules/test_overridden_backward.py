"""Methods that scale the loss and are overridden, or override: the step of their class sees scaled gradients from all."""

from __future__ import annotations

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import check_trained

BASE = """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def step(self, x, y):
        loss = criterion(self.model(x), y)
        self.optimizer.zero_grad()
        self.backward(loss)
        seen.append(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05))
        self.optimizer.step()


"""
LOOP = "\n\nfor x, y in loader:\n    trainer.step(x, y)\n"
IMPORTS = "import torch\nfrom apex import amp\n\nfrom project import criterion, loader, model, optimizer, seen\n\n"


def test_a_subclass_with_a_plain_backward_is_scaled_too() -> None:
    sub = "class Sub(Base):\n    def backward(self, loss):\n        (loss * 2).backward()\n\n\n"
    after = check_trained(BASE + sub + "trainer = Sub(model, optimizer)" + LOOP)
    assert "        self.scaler.scale(loss * 2).backward()\n" in after


def test_the_override_is_shown_for_review() -> None:
    sub = (
        "class Sub(Base):\n    def backward(self, loss):\n        loss.backward()\n\n\ntrainer = Sub(model, optimizer)"
    )
    (finding,) = found(rewrite(IMPORTS + BASE + sub + LOOP), "AMP222")
    assert finding.review == "review"


def test_a_subclass_that_calls_the_method_it_overrides_needs_nothing() -> None:
    sub = "class Sub(Base):\n    def backward(self, loss):\n        super().backward(loss * 2)\n\n\n"
    after = check_trained(BASE + sub + "trainer = Sub(model, optimizer)" + LOOP)
    assert after.count(".scale(") == 1


def test_a_subclass_with_a_step_of_its_own_stays_plain() -> None:
    sub = (
        "class Plain(Base):\n    def backward(self, loss):\n        loss.backward()\n\n"
        "    def step(self, x, y):\n        self.backward(criterion(self.model(x), y))\n        self.optimizer.step()\n\n\n"
    )
    result = rewrite(IMPORTS + BASE + sub + "trainer = Base(model, optimizer)" + LOOP)
    assert result.after is None or ".scale(loss).backward()" in result.after.partition("class Plain")[2]


def test_a_base_class_with_a_plain_backward_and_the_step_is_refused() -> None:
    program = """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def backward(self, loss):
        loss.backward()

    def step(self, x, y):
        self.backward(criterion(self.model(x), y))
        self.optimizer.step()


class Mixed(Base):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()


trainer = Mixed(model, optimizer)
"""
    check_refused(IMPORTS + program + LOOP, "AMP222")
