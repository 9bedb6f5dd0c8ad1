"""An object has one class: what a loop runs of it in one turn it runs in the next, whichever its subclasses have."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
    import torch
    from apex import amp
    from project import loader

    class Base:
        def prepare(self):
            self.model = torch.nn.Linear(2, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def loop(self):
            for x, y in loader:
                {called}

        def train(self):
            self.prepare()
            self.loop()

    class Usual(Base):
        def train(self):
            super().train()

        def step(self, x, y):
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    class Pair(Base):
        def step(self, x, y):
            first, second = self.optimizer
            first.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            first.step()
    """
STEP = """            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
"""
NATIVE = """            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
"""
SET_UP = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'


@pytest.mark.parametrize(
    ("called", "refused"),
    [("self.step(x, y)", False), ("self.step(x, y); Pair.step(self, x, y)", True)],
)
def test_what_an_object_runs_it_runs_in_each_turn(called: str, refused: bool) -> None:
    before = BEFORE.format(called=called)
    after = before.replace(STEP, NATIVE).replace(SET_UP, 'self.scaler = torch.amp.GradScaler("cuda")')
    assert NATIVE in after
    found = [d for d in doubts(before, after) if d.code == "AMP231" and "without scale" in d.message]
    assert bool(found) is refused
