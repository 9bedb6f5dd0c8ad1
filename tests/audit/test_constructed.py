"""Half values that the constructor of an object keeps, which is given them: what reads them there computes in half (AMP535)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

PROGRAM = """
    import torch
  - from apex import amp

    class Result:
        def __init__(self, scores, labels=None):
            self.scores = KEPT
            self.labels = labels

    model = torch.nn.Linear(4, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  - model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  + scaler = torch.amp.GradScaler("cuda")

    def train(loader):
        for x, y in loader:
  -         loss = torch.nn.functional.cross_entropy(model(x), y)
  -         with amp.scale_loss(loss, optimizer) as scaled_loss:
  -             scaled_loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = torch.nn.functional.cross_entropy(model(x), y)
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
            optimizer.zero_grad()

    def evaluate(loader):
        for x, y in loader:
  -         result = MADE
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             result = MADE
            print(result.READ.exp())

    train(data())
    evaluate(data())
"""


def told_of(made: str, read: str = "scores", kept: str = "scores") -> bool:
    before, after = sides(PROGRAM.replace("MADE", made).replace("READ", read).replace("KEPT", kept))
    return "AMP535" in {d.code for d in doubts(before, after)}


@pytest.mark.parametrize("made", ["Result(model(x))", "Result(model(x), y)", "Result(labels=y, scores=model(x))"])
def test_what_it_keeps_is_half(made: str) -> None:
    assert told_of(made)


@pytest.mark.parametrize(
    ("made", "read", "kept"),
    [
        ("Result(model(x).float())", "scores", "scores"),
        ("Result(model(x))", "scores", "scores.float()"),
        ("Result(model(x), y)", "labels", "scores"),
    ],
)
def test_what_was_cast_and_what_is_another_is_not(made: str, read: str, kept: str) -> None:
    assert not told_of(made, read, kept)
