"""One of several objects that scale, run the backward and step: which of them a run has is chosen once."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
    import torch
    from apex import amp

    class Mixed:
        def __init__(self, model):
            self.model = model

        def step(self, loss, optimizer, update):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            if update:
                optimizer.step()
                self.model.zero_grad()

    class ByHand:
        def __init__(self, model):
            self.model = model
            self.masters = [p.detach().clone() for p in model.parameters()]

        def step(self, loss, optimizer, update):
            BACKWARD
            if update:
                for master, p in zip(self.masters, self.model.parameters()):
                    master.grad = p.grad.clone()
                optimizer.step()
                self.model.zero_grad()

    class Trainer:
        def __init__(self, model, criterion, kind, name="SGD"):
            self.model, self.criterion = model, criterion
            if kind == "hand":
                self.stepper = ByHand(model)
            self.optimizer = torch.optim.__dict__[name](model.parameters(), lr=0.1)
            if kind == "mixed":
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                self.stepper = Mixed(self.model)

        def run(self, loader):
            for number, (x, y) in enumerate(loader):
                loss = self.criterion(self.model(x), y)
                self.stepper.step(loss, self.optimizer, number % 2)

    Trainer(torch.nn.Linear(2, 2), torch.nn.functional.mse_loss, "mixed").run([])
    """


def test_gradients_of_one_that_scales_never_come_to_one_that_does_not() -> None:
    result = rewrite(PROGRAM.replace("BACKWARD", "loss.backward()"))
    assert not [f for f in result.findings if f.code == "AMP307"]


@pytest.mark.parametrize(
    "backward", ["pass", "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()"]
)
def test_a_reader_without_a_backward_of_its_own_may_meet_them(backward: str) -> None:
    result = rewrite(PROGRAM.replace("BACKWARD", backward))
    assert result.after is None or "unscale_" in result.after[result.after.index("class ByHand") :]
