"""Which einsum autocast casts: one that comes to a product of matrices. What O1, which patched none, had in float32 is told of."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x, y, z):
            x, y, z = self.norm(x), self.norm(y), self.norm(z)
            return torch.einsum(GIVEN)

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  - model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  + scaler = torch.amp.GradScaler("cuda")
    for x, y, z in data():
  -     loss = model(x, y, z).sum()
  -     with amp.scale_loss(loss, optimizer) as scaled:
  -         scaled.backward()
  +     with torch.autocast("cuda", dtype=torch.float16):
  +         loss = model(x, y, z).sum()
  +     scaler.scale(loss).backward()
    """)
CASES = [
    ("ij,kj->ik", "x, y", True),
    ("ij, ij -> i", "x, y", True),
    ("ij,kj", "x, y", True),
    ("ij,jk,kl->il", "x, y, z", True),
    ("...j,...j->...", "x, y", True),
    ("ij->ji", "x", False),
    ("ij->i", "x", False),
    ("ij,ij->ij", "x, y", False),
    ("ij,kl->ijkl", "x, y", False),
    ("ij,jk,kl->ijkl", "x, y, z", False),
]


@pytest.mark.parametrize(("equation", "given", "casts"), CASES)
def test_it_is_told_of_where_it_is_cast(equation: str, given: str, casts: bool) -> None:
    texts = (t.replace("GIVEN", f'"{equation}", {given}') for t in (BEFORE, AFTER))
    assert any("einsum" in d.message for d in doubts(*texts) if d.code == "AMP535") is casts


def test_one_that_is_put_together_may_be_any() -> None:
    texts = (t.replace("GIVEN", "f'ij,{k}j->i{k}', x, y") for t in (BEFORE, AFTER))
    assert any("einsum" in d.message for d in doubts(*texts) if d.code == "AMP535")


@pytest.mark.parametrize(("equation", "given", "casts"), CASES)
def test_torch_does_so(equation: str, given: str, casts: bool) -> None:
    operands = [torch.randn(4, 4) for _ in given.split(",")]
    with torch.autocast("cpu", dtype=torch.float16):
        assert (torch.einsum(equation, *operands).dtype is torch.float16) is casts
