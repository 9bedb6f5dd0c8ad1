"""Optimizers of a container that one function steps for losses of different networks: AMP219."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

PROGRAM = """
import torch
from torch import nn
from apex import amp

class Trainer:
    def __init__(self, encoder, decoder):
        self.encoder, self.decoder = encoder, decoder
        self.optimizers = {{
            "one": torch.optim.SGD(encoder.parameters(), lr=0.1),
            "other": torch.optim.SGD(decoder.parameters(), lr=0.1),
        }}
        models, made = amp.initialize([encoder, decoder], list(self.optimizers.values()), opt_level="O1")
        self.optimizers = dict(zip(self.optimizers, made))

    def optimize(self, loss):
        optimizers = list(self.optimizers.values())
        for optimizer in optimizers:
            optimizer.zero_grad()
        with amp.scale_loss(loss, optimizers) as scaled:
            scaled.backward()
        for optimizer in optimizers:
            optimizer.step()

    def first(self, x, y):
        loss = nn.functional.mse_loss({first}, y)
        self.optimize(loss)

    def second(self, x, y):
        loss = nn.functional.mse_loss({second}, y)
        self.optimize(loss)

def main(loader):
    trainer = Trainer(nn.Linear(4, 4).cuda(), nn.Linear(4, 4).cuda())
    for x, y in loader:
        trainer.first(x, y)
        trainer.second(x, y)

main([])
"""
BOTH, ONE = "self.decoder(self.encoder(x))", "self.decoder(x)"
"""What the migration writes."""
WRITTEN = {
    "from apex import amp\n": "",
    '        models, made = amp.initialize([encoder, decoder], list(self.optimizers.values()), opt_level="O1")\n'
    "        self.optimizers = dict(zip(self.optimizers, made))\n": '        self.scaler = torch.amp.GradScaler("cuda")\n',
    "        with amp.scale_loss(loss, optimizers) as scaled:\n            scaled.backward()\n": (
        "        self.scaler.scale(loss).backward()\n"
    ),
    "            optimizer.step()\n": "            self.scaler.step(optimizer)\n        self.scaler.update()\n",
    "        loss = ": '        with torch.autocast("cuda", dtype=torch.float16):\n            loss = ',
}


@pytest.mark.parametrize(("first", "second", "said"), [(BOTH, ONE, 1), (ONE, BOTH, 1), (BOTH, BOTH, 0), (ONE, ONE, 0)])
def test_a_loss_of_some_networks_leaves_optimizers_without_gradients(first: str, second: str, said: int) -> None:
    before = PROGRAM.format(first=first, second=second)
    after = before
    for old, new in WRITTEN.items():
        assert old in after
        after = after.replace(old, new)
    assert [verdict for _, verdict in told(doubts(before, after), "AMP219")] == ["look"] * said
