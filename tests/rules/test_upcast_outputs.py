"""What a model ends in that autocast computes in float32 (a norm, a softmax), or that are whole numbers. Nothing is cast, and
nothing is said of it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp

class Net(nn.Module):
    def __init__(self, norm_layer=nn.LayerNorm):
        super().__init__()
        self.chosen = norm_layer(3)
        self.several = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
        self.drop = nn.Dropout()
        self.body = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)
        self.batch_norm = nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.body(x)
        return GIVEN

def scores(x):
    return F.softmax(x, 1)

def embed(model, x):
    with torch.no_grad():
        return model(x)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
with torch.no_grad():
    for x, y in loader:
        BOUND = model(x)
        print(output.norm())
        print(output.cpu().numpy(), output.cpu())
"""
FLOAT = [
    "F.normalize(x)",
    "self.norm(x)",
    "F.log_softmax(x, 1)",
    "x.exp().sum(1)",
    "torch.softmax(x, 1).squeeze(-1)",
    "scores(x)",
    "F.normalize(x) * x",
    "x / x.norm(dim=1, keepdim=True)",
    "self.norm(x)[:, 0]",
    "self.drop(self.norm(x))",
    "self.several(x)",
    "x + self.chosen(x)",
]
HALF = ["x", "self.batch_norm(x)", "torch.relu(x)", "x / x.norm()", "F.softmax(x, 1, dtype=torch.half)"]


def codes(given: str, level: str, bound: str = "output", **options: str) -> tuple[int, set[str]]:
    """How often something is made float32, and what is told of that."""
    source = PROGRAM.replace("GIVEN", given).replace("LEVEL", level).replace("BOUND", bound)
    result = rewrite(source, **options)
    assert result.after is not None, result.findings
    return result.after.count(".float()"), {f.code for f in result.findings} & {"AMP503", "AMP504", "AMP522"}


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_what_is_float32_is_left_alone(level: str) -> None:
    for given in FLOAT:
        assert codes(given, level) == (0, set())
        assert codes(f"{given}, x", level, "output, other") == (0, set())
        assert codes(f"x, {given}", level, "other, output") == (0, set())
    for given in HALF:
        assert codes(given, level)[0]
        assert codes(f"{given}, x", level, "output, other")[1]


def test_on_the_cpu_autocast_keeps_them_in_half() -> None:
    assert codes("self.norm(x)", "O1", device="cpu")[0]


WHOLE = """
def decode(output):
    return output.argmax(1)

def run(output):
    return decode(torch.sigmoid(output)).view(-1)
"""


@pytest.mark.parametrize("bound", ["output = decode(model(x))", "output = run(model(x))", "output = model.predict(x)"])
def test_whole_numbers_that_a_function_or_a_method_makes_are_left_alone(bound: str) -> None:
    predict = "    def predict(self, x):\n        return self(x).max(1)[1]\n\n    def forward(self, x):"
    source = PROGRAM.replace("    def forward(self, x):", predict).replace("GIVEN", "x").replace("LEVEL", "O1")
    result = rewrite(source.replace("\ndef scores", f"{WHOLE}\ndef scores").replace("BOUND = model(x)", bound))
    assert result.after is not None, result.findings  # a cast would make indices of it that index nothing
    assert ".float()" not in result.after
    assert not {f.code for f in result.findings} & {"AMP504", "AMP535"}
