"""A helper that only runs the backward, Apex's branch of it or the native one: whoever steps plainly after it is told, AMP122."""

from __future__ import annotations

import pytest

from amp_migrate.engine import FileResult
from tests.rules.helpers import rewrite_files

LIBRARY = """
    import torch
    from apex import amp

    def set_up(args, model, optimizer):
        scaler = torch.amp.GradScaler("cuda", enabled=args.amp == "native")
        if args.amp == "apex":
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        return model, optimizer, scaler

    def scaled_backward(loss, args, scaler, optimizer):
        if args.amp == "apex":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        elif args.amp == "native":
            scaler.scale(loss).backward()
        else:
            loss.backward()
    """
USER = """
    from library import scaled_backward, set_up

    def optimize(args, model, optimizer, scheduler, loader):
        model, optimizer, scaler = set_up(args, model, optimizer)
        for batch in loader:
            loss = model(batch).sum()
            scaled_backward(loss, args, scaler, optimizer)
            {step}
            scheduler.step()
    """


def told(step: str) -> list[str]:
    results: dict[str, FileResult] = rewrite_files({"library.py": LIBRARY, "user.py": USER.format(step=step)})
    found = [f for r in results.values() for f in r.findings if f.code == "AMP122"]
    assert all((f.status, f.review) == ("note", "review") for f in found)
    return [f.message for f in found]


def test_a_plain_step_after_the_native_backward_is_told() -> None:
    (message,) = told("optimizer.step()")
    assert message.startswith("gradients leave scaled_backward times the scale now")
    assert "steps the optimizer itself (user.py:8)" in message


@pytest.mark.parametrize(
    "step",
    [
        "scaler.step(optimizer); scaler.update()",
        "scaler.unscale_(optimizer); optimizer.step()",
        "pass",
    ],
    ids=["by the scaler", "unscaled", "only a scheduler"],
)
def test_a_step_that_is_right_is_not(step: str) -> None:
    assert told(step) == []


PROPERTY = """
    import importlib.util

    import torch
    from apex import amp

    def is_apex_available():
        return importlib.util.find_spec("apex") is not None

    class Trainer:
        def __init__(self, args, model, optimizer):
            self.args = args
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.model, self.optimizer = model, optimizer

        @property
        def {name}(self):
            return self.args.cuda and is_apex_available()

        def train(self, x):
            loss = self.model(x).sum()
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()
            {reads}
    """


@pytest.mark.parametrize(
    ("name", "reads", "value"),
    [
        ("use_apex", "pass", "False"),
        ("use_apex", "print(self.use_apex)", "self.args.cuda"),
        ("use_amp", "pass", "self.args.cuda"),
    ],
    ids=["read by nobody", "read", "another name"],
)
def test_a_property_that_tells_of_apex(name: str, reads: str, value: str) -> None:
    """None is used any more, where that is all it tells; what is still read may be the switch of mixed precision."""
    after = rewrite_files({"train.py": PROPERTY.format(name=name, reads=reads)})["train.py"].after
    assert after is not None
    assert f"            return {value}\n" in after or f"        return {value}\n" in after
