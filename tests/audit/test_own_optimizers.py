"""Optimizers of the program that keep copies of their own: one that writes half weights back cannot be stepped by a GradScaler."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
    import torch
    from apex import amp


    class Plain({base}):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))
            self.copies = [p.data.float().clone() for g in self.param_groups for p in g["params"]]

        def step(self, closure=None):
            params = [p for g in self.param_groups for p in g["params"]]
            for p, copy in zip(params, self.copies):
                copy.add_(p.grad.data.float(), alpha=-0.1)
                {write}


    def train(model, batches):
        optimizer = {made}
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).float().pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
"""
OWN, OPTIMIZER = "Plain(model.parameters())", "torch.optim.Optimizer"


def told(write: str, base: str = OPTIMIZER, made: str = OWN) -> list[str]:
    result = rewrite(PROGRAM.format(write=write, base=base, made=made))
    return [f.message for f in result.findings if f.code == "AMP534"]


@pytest.mark.parametrize(
    "write",
    ["p.data = copy.half()", "p.data = copy.to(torch.float16)", "p.data = copy.type(torch.half)"],
)
def test_half_weights_that_are_written_back_leave_it_with_apex(write: str) -> None:
    (message,) = told(write)
    assert "Plain writes half weights back here" in message


@pytest.mark.parametrize("write", ["p.data = copy.clone()", "p.data.copy_(copy)", "self.last = copy.half()"])
def test_weights_that_stay_float32_do_not(write: str) -> None:
    assert not told(write)


def test_nor_does_an_optimizer_that_nothing_steps() -> None:
    assert not told("p.data = copy.half()", made="torch.optim.SGD(model.parameters(), lr=0.1)")
