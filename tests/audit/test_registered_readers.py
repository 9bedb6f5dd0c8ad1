"""Functions that are registered for an event, and read gradients between the backward and the step: AMP231."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import collections
import torch
import torch.nn.functional as F
from apex import amp

def log_norm(trainer):
    print(sum(p.grad.norm() for p in trainer.model.parameters()))

def rate(trainer):
    print(trainer.optimizer.param_groups[0]["lr"])

class Log:
    def after_backward(self, trainer):
        log_norm(trainer)

    def after_step(self, trainer):
        rate(trainer)

HEAD

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.handlers = START

    def on(self, event, f):
        KEEP

    def call(self, event):
        RUN

    def fit(self, loader):
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            BACKWARD
            EVENT
            STEP

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
INITIALIZE
trainer = Trainer(model, optimizer)
REGISTER
trainer.fit(loader)
"""
WAYS = {
    "set default": (
        "{}",
        "self.handlers.setdefault(event, []).append(f)",
        "for f in self.handlers.get(event, []):\n            f(self)",
    ),
    "default": (
        "collections.defaultdict(list)",
        "self.handlers[event].append(f)",
        "for f in self.handlers[event]:\n            f(self)",
    ),
    "one each": ("{}", "self.handlers[event] = f", "self.handlers[event](self)"),
    "a list": ("[]", "self.handlers.append(f)", "for f in self.handlers:\n            f(self)"),
    "pairs": (
        "[]",
        "self.handlers.append((event, f))",
        "for name, f in self.handlers:\n            if name == event:\n                f(self)",
    ),
}
NAMED = ("[]", "self.handlers.append(f)", "for f in self.handlers:\n            getattr(f, event)(self)")


def told(way: tuple[str, str, str], register: str, event: str, *, unscale: bool = False, head: str = "") -> list[str]:
    """The verdicts on the order of the step of a migration that unscales at the event, or not."""
    start, keep, run = way
    whole = PROGRAM.replace("START", start).replace("KEEP", keep).replace("RUN", run).replace("REGISTER", register)
    whole = whole.replace("HEAD", head)
    backward = "with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()"
    initialize = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    before = whole.replace("BACKWARD", backward).replace("INITIALIZE", initialize)
    before = before.replace("STEP", "self.optimizer.step()").replace("EVENT", event)
    after = whole.replace("BACKWARD", "scaler.scale(loss).backward()").replace(
        "INITIALIZE", 'scaler = torch.amp.GradScaler("cuda")'
    )
    step = "scaler.step(self.optimizer)\n            scaler.update()"
    after = after.replace("EVENT", f"scaler.unscale_(self.optimizer)\n            {event}" if unscale else event)
    after = after.replace("STEP", step).replace("from apex import amp\n", "")
    return [d.verdict for d in doubts(before, after) if d.code == "AMP231" and "scaled" in d.message]


@pytest.mark.parametrize("way", WAYS)
def test_a_registered_reader_is_found(way: str) -> None:
    on, call = 'trainer.on("after_backward", log_norm)', 'self.call("after_backward")'
    assert told(WAYS[way], on, call) == ["refuse"]
    assert not told(WAYS[way], on, call, unscale=True)
    assert not told(WAYS[way], on.replace("log_norm", "rate"), call)
    assert not told(WAYS[way], on, "pass")


def test_methods_that_run_by_their_name() -> None:
    on = 'trainer.on("log", Log())'
    assert told(NAMED, on, 'self.call("after_backward")') == ["refuse"]
    assert not told(NAMED, on, 'self.call("after_backward")', unscale=True)
    assert not told(NAMED, on, 'self.call("after_step")')


def test_decorators_register_as_well() -> None:
    hooks = "HOOKS = {}\ndef hook(name):\n    def put(f):\n        HOOKS[name] = f\n        return f\n    return put\n"
    reader = '@hook("after_backward")\ndef look(trainer):\n    log_norm(trainer)'
    run = ("{}", "pass", "HOOKS[event](self)")
    assert told(run, "", 'self.call("after_backward")', head=f"{hooks}\n{reader}") == ["refuse"]
    assert not told(run, "", 'self.call("after_backward")', head=hooks)
