"""A class whose users may or may not call the method that sets mixed precision up: both ways are run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite
from tests.rules.trained import check_trained

CONTEXT = """
class Context:
    def __init__(self):
        self.optimizers = []
        self._use_amp = False

    def wrap(self, optimizer):
        self.optimizers.append(optimizer)
        return optimizer

    def configure_amp(self, model, optimizers{parameters}):
        self._use_amp = True
        model, optimizers = amp.initialize(model, optimizers, opt_level="O1"{settings})
        return model, optimizers

    def backward(self, loss):
        if self._use_amp:
            with amp.scale_loss(loss, self.optimizers) as scaled_loss:
                scaled_loss.backward()
        else:
            self.plain = getattr(self, "plain", 0) + 1
            loss.backward()

    def step_optimizer(self, optimizer, clip=0.05):
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), clip)
        optimizer.step()
        optimizer.zero_grad()


context = {"context": Context}["context"]()
context.optimizers.append(optimizer)
"""
CONFIGURED = 'getattr(context, "configure_amp")(model, optimizer)\n'
LOOP = """
for x, y in loader:
    loss = criterion(model(x), y)
    for name, given in (("backward", loss), ("step_optimizer", optimizer)):
        getattr(context, name)(given)
"""
SETTINGS = {
    "none": ("", ""),
    "a scale known at run time": (", loss_scale=None", ", loss_scale=loss_scale"),
    "bounds of the scale": (
        ", low=None, high=2.0**20",
        ", min_loss_scale=low, max_loss_scale=high",
    ),
}


@pytest.mark.parametrize("configured", [CONFIGURED, ""], ids=["configured", "left out"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_there_is_a_disabled_scaler_until_the_method_runs(settings: tuple[str, str], configured: str) -> None:
    parameters, arguments = settings
    context = CONTEXT.replace("{parameters}", parameters).replace("{settings}", arguments)
    after = check_trained(context + configured + LOOP)
    disabled = 'self._use_amp = False\n        self.scaler = torch.amp.GradScaler("cpu", enabled=False)\n'
    assert disabled in after
    assert after.count("torch.amp.GradScaler(") == 2


@pytest.mark.parametrize("base", ["", "(Settings)"])
def test_a_scale_that_the_constructor_was_given_stays_what_it_was(base: str) -> None:
    kept = "        self.loss_scale = float(len(self.optimizers)) or 128.0\n"
    settings = f"class Settings:\n    def __init__(self):\n        self.optimizers = []\n{kept}\n\n"
    context = CONTEXT.replace("{parameters}", "").replace("{settings}", ", loss_scale=self.loss_scale")
    first = "        super().__init__()\n" if base else kept
    context = context.replace("        self._use_amp = False\n", f"{first}        self._use_amp = False\n", 1)
    after = check_trained(
        (settings if base else "") + context.replace("class Context:", f"class Context{base}:") + CONFIGURED + LOOP
    )
    assert "self.loss_scale = None\n" not in after


def test_a_constructor_that_sets_it_up_itself_needs_none() -> None:
    source = source_of(CONTEXT).replace(
        "self._use_amp = False\n", "self._use_amp = False\n        self.configure_amp(model, optimizer)\n"
    )
    after = rewrite(source).after
    assert after is not None
    assert after.count("torch.amp.GradScaler(") == 1


def source_of(context: str) -> str:
    head = "import torch\nfrom apex import amp\n\nfrom project import criterion, loader, model, optimizer\n"
    return head + context.replace("{parameters}", "").replace("{settings}", "") + LOOP


def test_an_update_after_each_of_several_optimizers_is_said() -> None:
    result = rewrite(source_of(CONTEXT))
    (finding,) = (f for f in result.findings if f.code == "AMP210" and f.status == "note")
    assert finding.review == "review"
    assert "after the last of them" in finding.message
    one = CONTEXT.replace("self.optimizers.append(optimizer)", "self.optimizers = optimizer")
    one = one.replace("context.optimizers.append(optimizer)", "context.optimizers = optimizer")
    assert not [f for f in rewrite(source_of(one)).findings if f.code == "AMP210" and f.status == "note"]


def test_a_step_kept_as_a_value_is_refused_where_it_is_kept() -> None:
    kept = CONTEXT.replace(
        "        optimizer.step()\n", "        step = optimizer.step\n        print(step)\n        step()\n"
    )
    result = check_manual(source_of(kept), "AMP216")
    assert result.after is None
    (finding,) = (f for f in result.findings if f.code == "AMP216")
    assert result.before.splitlines()[finding.line - 1].strip() == "step = optimizer.step"
    assert "kept as a value" in finding.message


RETURNS = """
class Trainer:
    def __init__(self, on, fp16):
        self.on, self.fp16 = on, fp16
        self.optimizer = None

    def run(self, model, data, optimizer):
        model = self.prepare(model, optimizer)
        for x, y in data:
            self.train(model, x, y)

    def prepare(self, model, optimizer):
        self.optimizer = optimizer
        if not self.enabled():
            return model
        model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")
        return model

    def enabled(self):
        return self.on and self.fp16

    def train(self, model, x, y):
        loss = criterion(model(x), y)
        if self.enabled():
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        seen.append(grad_norm(model) if not self.enabled() else 0.0)
        clip_grad_norm_(model.parameters(), 10.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


Trainer(ON, True).run(model, loader, optimizer)
"""


@pytest.mark.parametrize("on", ["True", "False"])
def test_a_method_that_returns_above_the_set_up_leaves_a_disabled_scaler(on: str) -> None:
    """A run without mixed precision, which is the default of most programs, stopped with an AttributeError."""
    after = check_trained(RETURNS.replace("ON", on))
    assert 'self.scaler = torch.amp.GradScaler("cpu", enabled=False)\n' in after[: after.index("def run")]
    assert after.count("torch.amp.GradScaler(") == 2


def test_one_that_raises_above_it_needs_none() -> None:
    raising = RETURNS.replace("return model\n        model,", 'raise ValueError("off")\n        model,').replace(
        "ON", "True"
    )
    assert check_trained(raising).count("torch.amp.GradScaler(") == 1
