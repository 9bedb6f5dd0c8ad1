"""`torch.utils.checkpoint.checkpoint(run, x)` runs what it is given where it stands."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils import checkpoint as cp
from apex import amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return RUN


def main(loader):
    model = Net().cuda()
    teacher = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    STEP

    for x, y in loader:
        OUTSIDE
        loss = F.cross_entropy(INSIDE, y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        torch.exp(model(x))


main(batches)
"""
CHANGES = (
    ("from apex import amp\n", ""),
    (
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n',
        '    scaler = torch.amp.GradScaler("cuda")\n',
    ),
    ("        loss = F", '        with torch.autocast("cuda", dtype=torch.float16):\n            loss = F'),
    (
        "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n"
        "        optimizer.step()\n        torch.exp(model(x))\n",
        "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()\n"
        '        with torch.autocast("cuda", dtype=torch.float16):\n            out = model(x)\n        torch.exp(out)\n',
    ),
)


def found(code: str, inside: str, outside: str = "pass", run: str = "self.head(self.body(x))") -> list[int]:
    step = "step = None" if "step" not in inside + outside else "def step(x): return model(x)"
    before = BEFORE.replace("STEP", step).replace("INSIDE", inside).replace("OUTSIDE", outside).replace("RUN", run)
    after = before
    for old, new in CHANGES:
        assert old in after
        after = after.replace(old, new)
    return [line for line, _ in told(doubts(before, after), code)]


FORWARDS = ["checkpoint(step, x)", "cp.checkpoint(step, x)", "checkpoint(model, x)", "cp.checkpoint(teacher, x)"]


@pytest.mark.parametrize("run", FORWARDS)
def test_what_runs_in_a_region_is_in_it(run: str) -> None:
    assert not found("AMP531", run)


@pytest.mark.parametrize("run", FORWARDS)
def test_what_runs_outside_of_any_lost_half_precision(run: str) -> None:
    line = BEFORE.splitlines().index("    STEP" if "step" in run else "        OUTSIDE")
    assert found("AMP531", "model(x)", run) == [line]


@pytest.mark.parametrize(
    ("run", "half"),
    [
        ("checkpoint(self.head, self.body(x))", True),
        ("cp.checkpoint(lambda z: self.head(z), x, use_reentrant=False)", True),
        ("checkpoint(lambda z: self.head(z).float(), x)", False),
        ("checkpoint(F.softmax, self.body(x), -1)", False),
    ],
)
def test_what_it_gives_is_what_that_gives(run: str, half: bool) -> None:
    assert bool(found("AMP535", "model(x)", run=run)) is half
