"""Where more ways lead to a forward than are looked at, each of the calls it is reached by has some of them."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

PROGRAM = """
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)

  - def run(model, loader, opt=None):
  + def run(model, loader, opt=None, mixed=False):
        for x in loader:
  -         loss = model(x).sum()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=mixed):
  +             loss = model(x).sum()
            if opt is not None:
  -             with amp.scale_loss(loss, opt) as scaled:
  -                 scaled.backward()
  +             scaler.scale(loss).backward()

    def train(model, opt, loader):
  -     run(model, loader, opt)
  +     run(model, loader, opt, mixed=True)

    def predict(model, loader):
        run(model, loader)

    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
  + scaler = torch.amp.GradScaler("cuda")
  - model, opt = amp.initialize(model, opt, opt_level="O1")
    TRAIN
    predict(model, loader)
    """


@pytest.mark.parametrize("often", [1, 23, 24, 40])
def test_the_last_call_is_looked_at_too(often: int) -> None:
    texts = (t.replace("TRAIN", "\n".join(["train(model, opt, loader)"] * often)) for t in sides(PROGRAM))
    before, after = (t.replace("\ntrain", "\n    train") for t in texts)
    assert [verdict for _, verdict in told(doubts(before, after), "AMP531")] == ["review"]
