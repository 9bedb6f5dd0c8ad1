"""A method of a model that is taken as a value and called elsewhere runs the model: `decode = model.decode` (AMP531)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 3)

    def encode(self, x):
        return self.norm(self.encoder(x))

    def caption(self, h):
        return self._scores(h)

    def _scores(self, h):
        return self.head(h)

    def largest(self):
        return 3

    def forward(self, x):
        return self.caption(self.encode(x))

def word(decoder, h):
    return decoder(h).argmax(1)

def evaluate(model, loader):
    with torch.no_grad():
        for x in loader:
            h = model.encode(x)
            TAKEN

def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).float().sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    evaluate(model, loader)

main(load())
"""
AFTER = (
    BEFORE.replace("from apex import amp\n", "")
    .replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "scaler = torch.amp.GradScaler('cuda')"
    )
    .replace(
        """        loss = model(x).float().sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
""",
        """        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    )
    .replace(
        "            h = model.encode(x)",
        '            with torch.autocast("cuda", dtype=torch.float16):\n                h = model.encode(x)',
    )
)


@pytest.mark.parametrize(
    ("taken", "lost"),
    [
        ("word(model.caption, h)", "decoder"),
        ("step = model.caption\n            word(step, h)", "decoder"),
        ("step = model.caption\n            print(step(h))", "step"),
        ("state.step = model.caption\n            print(state.step(h))", "state.step"),
        ("count = model.largest\n            print(count())", None),
    ],
)
def test_where_it_is_called_without_a_region(taken: str, lost: str | None) -> None:
    found = doubts(BEFORE.replace("TAKEN", taken), AFTER.replace("TAKEN", taken))
    said = {d.message.partition(" ran in half")[0] for d in found if d.code == "AMP531"}
    assert said == ({lost} if lost else set())


def test_in_a_region_it_keeps_its_precision() -> None:
    taken = "word(model.caption, h)"
    now = f'with torch.autocast("cuda", dtype=torch.float16):\n                {taken}'
    assert not [d for d in doubts(BEFORE.replace("TAKEN", taken), AFTER.replace("TAKEN", now)) if d.code == "AMP531"]
