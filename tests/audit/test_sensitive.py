"""What Apex computed in float32 and half precision spoils, of what leaves a region: told, however it is spelled."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
    import torch.nn.functional as F
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x)

    def main(loader):
        model = Net().cuda()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, opt = amp.initialize(model, opt, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
  -         loss = F.mse_loss(model(x), y)
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = F.mse_loss(model(x), y)
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()
  -     out = model(x)
  +     with torch.autocast("cuda", dtype=torch.float16):
  +         out = model(x)
        return {value}

    main(load())
""")


@pytest.mark.parametrize(
    "value",
    [
        "F.softplus(out).mean()",
        "F.softplus(-out).mean()",
        "torch.stack([F.softplus(1 - s).mean() for s in out]).sum()",
        "F.softmin(out, dim=1)",
        "torch.log(out + 1).mean()",
    ],
)
def test_it_is_told(value: str) -> None:
    assert told(doubts(BEFORE.format(value=value), AFTER.format(value=value)), "AMP535") == [(23, "review")]


@pytest.mark.parametrize("value", ["F.softplus(out.float()).mean()", "out.argmax(1)", "F.softplus(x).mean()"])
def test_what_is_float32_is_not(value: str) -> None:
    assert not told(doubts(BEFORE.format(value=value), AFTER.format(value=value)), "AMP535")
