"""What methods and functions give that operators stand for: the wider dtype of what they are given."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from apex import amp
from data import loader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 8)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, -1)
        std = spread.mul(0.5).exp()
        noise = torch.zeros_like(std).normal_()
        return GIVEN

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    z = model(x)
    print(z.cpu().numpy())
"""
AFTER = (
    BEFORE.replace("from apex import amp\n", "")
    .replace("model, optimizer = amp.initialize", "scaler = torch.amp.GradScaler()  # ")
    .replace("    z = model(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        z = model(x)')
)


@pytest.mark.parametrize(
    ("given", "half"),
    [
        ("mean + torch.mul(noise, std)", False),
        ("mean.add(noise.mul(std))", False),
        ("mean.sub(noise)", False),
        ("torch.div(std, 2)", False),
        ("mean.mul(0.5)", True),
        ("mean.add(mean)", True),
        ("torch.sub(mean, 1)", True),
        ("noise.half().mul(2)", True),
    ],
)
def test_the_wider_dtype_is_given(given: str, half: bool) -> None:
    found = doubts(BEFORE.replace("GIVEN", given), AFTER.replace("GIVEN", given))
    assert ["float16" in d.message for d in found if d.code == "AMP535"] == [True] * half


MASKED = BEFORE.replace(
    "    def forward",
    """    def mask(self, x, dtype=DEFAULT):
        return (x[:, :1] > 0).to(dtype)

    def forward""",
)


@pytest.mark.parametrize(
    ("default", "given", "half"),
    [
        ("torch.float", "mean * self.mask(x)", False),
        ("torch.float32", "mean * self.mask(x)", False),
        ("torch.long", "mean * self.mask(x)", True),
        ("torch.half", "mean * self.mask(x)", True),
        ("torch.float", "mean * self.mask(x, torch.half)", True),
        ("None", "mean * self.mask(x)", True),
    ],
)
def test_the_dtype_that_a_parameter_has_by_default(default: str, given: str, half: bool) -> None:
    before = MASKED.replace("DEFAULT", default).replace("GIVEN", given)
    after = AFTER[: AFTER.index("class Net")] + before[before.index("class Net") : before.index("model = Net")]
    after += AFTER[AFTER.index("model = Net") :]
    found = doubts(before, after)
    assert ["float16" in d.message for d in found if d.code == "AMP535"] == [True] * half
