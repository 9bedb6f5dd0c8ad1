"""Of a pair that torch gives (values, indices) the second is whole numbers, wherever a list carries it. AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x, test=None):
            scores = torch.sigmoid(self.head(x))
            if self.training:
                losses = dict()
                losses["sum"] = scores.sum()
                return losses
            else:
                return self.decode(scores, test=test)

        def decode(self, scores, test=None):
            top = torch.max(scores, dim=1, keepdim=True)[0]
            keep = top[:, 0] > 0.5
            if keep.sum() == 0:
                return [torch.zeros(1), torch.zeros(1), torch.zeros(1, 5)]
            best, which = scores[keep, :].max(dim=1)
            return [best, which, torch.cat([scores, top], dim=1)]

    def main(loader):
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
  -         loss = model(x)["sum"]
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  -         best, which, boxes = model(x, test=0.5)
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model(x)["sum"]
  +         scaler.scale(loss).backward()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             best, which, boxes = model(x, test=0.5)
            print({read})
    """)


def told(read: str) -> list[str]:
    return [d.message for d in doubts(BEFORE.format(read=read), AFTER.format(read=read)) if d.code == "AMP535"]


@pytest.mark.parametrize(("read", "expected"), [("which", False), ("best", True)])
def test_indices_are_never_half(read: str, expected: bool) -> None:
    assert bool(told(f"{read}.data.cpu().numpy()")) is expected
