"""A loss that is made of numbers gives no gradient, and `scaler.step` raises. AMP232."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def main(args, loader, device):
        model = torch.nn.Linear(4, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
  -         out = model(x)
  -         loss = {loss}
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             out = model(x)
  +             loss = {loss}
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
    """)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("torch.zeros(1, requires_grad=True).float().to(device)", True),
        ("torch.tensor(0.0, requires_grad=True, device=device)", True),
        ("out.sum()", False),
        ("torch.zeros(1).to(device) + out.sum()", False),
        ("torch.tensor(out.sum(), requires_grad=True)", False),
    ],
)
def test_a_placeholder_of_a_loss_is_told(loss: str, expected: bool) -> None:
    texts = (t.format(loss=loss) for t in (BEFORE, AFTER))
    found = [d for d in doubts(*texts) if "No inf checks" in d.message]
    assert [verdict for _, verdict in told(found, "AMP232")] == ["review"] * expected


def test_torch_raises_so() -> None:
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    scaler.scale(torch.zeros(1, requires_grad=True)).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
