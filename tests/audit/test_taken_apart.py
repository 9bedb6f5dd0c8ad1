"""What takes the outputs of several networks apart tells which of them run there: AMP535."""

from __future__ import annotations

from tests.audit.helpers import doubts, told

TRAIN = """
import torch
from torch import nn
IMPORT


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return y, SECOND


class Triple(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return y, y, y.float().mean()


model = Triple() if args.triple else Pair()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for x in data:
    if args.triple:
        REGION
            y, other, loss = model(x)
    else:
        REGION
            y, mask = model(x)
            loss = y.float().mean()
        hits = mask.sum(1)
    BACKWARD
"""
BEFORE = (
    TRAIN.replace("IMPORT", "from apex import amp")
    .replace("SETUP", 'model, opt = amp.initialize(model, opt, opt_level="O1")')
    .replace("REGION", "if True:")
    .replace("BACKWARD", "with amp.scale_loss(loss, opt) as scaled:\n        scaled.backward()\n    opt.step()")
)
AFTER = (
    TRAIN.replace("IMPORT\n", "")
    .replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    .replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    .replace("BACKWARD", "scaler.scale(loss).backward()\n    scaler.step(opt)\n    scaler.update()")
)


INSIDE = AFTER.replace("y, mask = model(x)", "y, mask = model(x)\n            print(mask.cpu().numpy())")


def test_what_numpy_gets_within_the_region_is_not_said_to_be_outside_of_it() -> None:
    before = BEFORE.replace("y, mask = model(x)", "y, mask = model(x)\n            print(mask.cpu().numpy())")
    found = doubts(before.replace("SECOND", "torch.sigmoid(y)"), INSIDE.replace("SECOND", "torch.sigmoid(y)"))
    (message,) = [d.message for d in found if "numpy()" in d.message]
    assert "float16 in the autocast region" in message or "goes to the CPU" in message


def sums(second: str) -> list[str]:
    before, after = BEFORE.replace("SECOND", second), AFTER.replace("SECOND", second)
    return [verdict for _, verdict in told(doubts(before, after), "AMP535")]


def test_a_mask_is_not_what_another_network_gives_in_its_place() -> None:
    assert sums("torch.cat([torch.ones(1, 4).bool(), x > 0])") == []
    assert sums("torch.zeros(2, 4, dtype=torch.long)") == []


def test_half_that_the_network_of_that_place_gives_is_told_of() -> None:
    assert sums("torch.sigmoid(y)") == ["review"]
