"""What AMP501 says of a region: that it holds a forward, a loss, or both."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp
from data import batches, loader

model = torch.nn.Linear(4, 2).cuda()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

for x, y in loader:
    {train}
    optimizer.zero_grad()
    with amp.scale_loss({scaled}, optimizer) as scaled:
        scaled.backward()
    optimizer.step()

model.eval()
for x, y in batches:
    with torch.no_grad():
        {evaluate}
"""
BOTH, FORWARD, LOSS = (
    "forward and loss run under autocast",
    "the forward runs under autocast",
    "the loss is computed under autocast",
)
TRAIN = "out = model(x)\n    loss = criterion(out, y)"
SAVED = 'out = model(x)\n    torch.save(out, "out.pt")\n    loss = criterion(out, y)'


@pytest.mark.parametrize(
    ("train", "scaled", "evaluate", "said"),
    [
        (TRAIN, "loss", "print(model(x).argmax(-1))", [BOTH, FORWARD]),
        (TRAIN, "loss", "scores = model(x)\n        print(scores)", [BOTH, FORWARD]),
        (TRAIN, "loss", "out = model(x)\n        print(criterion(out, y))", [BOTH, BOTH]),
        (TRAIN, "loss", "val_loss, out = model(x)\n        print(out)", [BOTH, BOTH]),
        (
            "cost = model(x)",
            "cost",
            "print(model(x))",
            [BOTH, FORWARD],
        ),  # what is scaled is a loss, whatever it is called
        (SAVED, "loss", "print(model(x))", [FORWARD, LOSS, FORWARD]),
    ],
)
def test_a_region_is_said_to_hold_what_it_holds(train: str, scaled: str, evaluate: str, said: list[str]) -> None:
    result = rewrite(PROGRAM.format(train=train, scaled=scaled, evaluate=evaluate))
    found = [(f.line, f.message) for f in result.findings if f.code == "AMP501"]
    assert [message for _, message in sorted(found)] == said
