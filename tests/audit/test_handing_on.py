"""Whoever runs what hands on all that it is given owes what is needed at its end, whatever the class is called there."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex import amp

    KINDS = {}

    def register(cls):
        KINDS[cls.__name__] = cls
        return cls

    class Fit:
        def __init__(self, *args, **kwargs):
            self.done = self.go(*args, **kwargs)

        def go(self, model, optimizer, steps=3):
            for _ in range(steps):
                loss = model(torch.ones(1, 2)).sum()
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()

    class Longer(Fit):
        pass

    def main(model, optimizer):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        scaler = None
        RUN
"""
GO = """                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
"""
GONE = """                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
"""


NATIVE = (
    ("    from apex import amp\n", ""),
    (GO, GONE),
    ("optimizer, steps=3", "optimizer, scaler, steps=3"),
    ('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "scaler = torch.amp.GradScaler()"),
)


def found(run: str, now: str | None = None) -> list[str]:
    """What is said of `run`, which is `now` since; of a class that is registered where nothing is run."""
    text = BEFORE if run != "pass" else BEFORE.replace("class Longer", "@register\n    class Longer")
    after = text.replace("RUN", now or run)
    for old, new in NATIVE:
        after = after.replace(old, new)
    return [verdict for _, verdict in told(doubts(text.replace("RUN", run), after), "AMP132")]


@pytest.mark.parametrize(
    "run",
    [
        "for kind in (Fit, Longer): kind(model, optimizer)",
        "for kind in {'a': Longer}.values(): kind(model, optimizer)",
        "Longer(model, optimizer, steps=2)",
        "register(Longer)(model, optimizer)",
        "pass",
    ],
)
def test_what_hands_all_on_is_given_less_than_is_needed(run: str) -> None:
    assert set(found(run)) == {"refuse"}


def test_what_is_given_all_or_makes_nothing_is_none() -> None:
    assert not found("Longer(model, optimizer, steps=2)", "Longer(model, optimizer, scaler, steps=2)")
    assert not found("print(isinstance(model, Fit), issubclass(Longer, (Fit, dict)))")
