"""An optimizer whose parameters take no gradient steps nothing, by itself as with Apex; `scaler.step` raises for it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.trained import PRELUDE, check_trained

PROGRAM = """
CLASS


class Head(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.body = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.body(x)


model = Head(4)
MADE
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fixed = torch.optim.Adam(GIVEN, lr=0.1)
model, [optimizer, fixed] = amp.initialize(model, [optimizer, fixed], opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    fixed.zero_grad()
    loss = criterion(model(x) * centers_of(x), y)
    with amp.scale_loss(loss, [optimizer, fixed]) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(model.parameters(), 100))
    optimizer.step()
    fixed.step()
"""
CENTERS = """
class Part(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class Centers(torch.nn.Module):
    def __init__(self, number=1):
        super().__init__()
        self.number = number
        FIELD
        self.part = Part(1.0)
        self.unit = self.points / torch.linalg.norm(self.points)

    def forward(self, x):
        return self.part(x.mean()) * 0 + self.points.sum()
"""
FIELDS = (
    "self.points = torch.nn.Parameter(torch.ones(1))\n        self.points.requires_grad_(False)",
    "self.points = torch.nn.Parameter(torch.ones(1))\n        self.points.requires_grad = False",
    "self.points = torch.nn.Parameter(torch.ones(1), requires_grad=False)",
    "self.points = torch.nn.Parameter(torch.ones(1), False)",
    "self.points = torch.nn.Parameter(torch.ones(1)).requires_grad_(False)",
)
OWN = ("centers = Centers()\ncenters_of = centers", "centers.parameters()")
WHOLE = "centers = torch.nn.Linear(4, 1)\n{}\ncenters_of = centers"
ALONE = "point = torch.nn.Parameter(torch.ones(1){})\n{}\ncenters_of = lambda x: point.sum()"
FROZEN = [
    *((CENTERS.replace("FIELD", field), *OWN) for field in FIELDS),
    ("", WHOLE.format("centers.requires_grad_(False)"), "centers.parameters()"),
    ("", WHOLE.format("for p in centers.parameters():\n    p.requires_grad = False"), "centers.parameters()"),
    ("", WHOLE.format("for p in centers.parameters():\n    p.requires_grad_(False)"), "centers.parameters()"),
    ("", ALONE.format(", requires_grad=False", ""), "[point]"),
    ("", ALONE.format("", "point.requires_grad_(False)"), "[point]"),
]


def program(cls: str, made: str, given: str) -> str:
    return PROGRAM.replace("CLASS", cls).replace("MADE", made).replace("GIVEN", given)


@pytest.mark.parametrize(("cls", "made", "given"), FROZEN)
def test_its_step_stays_its_own(cls: str, made: str, given: str) -> None:
    source = program(cls, made, given)
    after = check_trained(source)
    assert "scaler.step(optimizer)" in after
    assert "\n    fixed.step()" in after
    (finding,) = found(rewrite(PRELUDE + source), "AMP214")
    assert "takes a gradient" in finding.message


TRAINED = [
    (CENTERS.replace("FIELD", "self.points = torch.nn.Parameter(torch.ones(1))"), *OWN),
    (CENTERS.replace("FIELD", FIELDS[0] + "\n        self.more = torch.nn.Linear(1, 1)"), *OWN),
    (CENTERS.replace("FIELD", FIELDS[0]).replace("x * self.scale", "self.scale(x)"), *OWN),
    (CENTERS.replace("FIELD", FIELDS[0]), OWN[0] + "\ncenters.points.requires_grad = True", OWN[1]),
    (CENTERS.replace("FIELD", FIELDS[0]), OWN[0] + "\ncenters.points.requires_grad_()", OWN[1]),
    (CENTERS.replace("FIELD", FIELDS[0]).replace("Centers(torch.nn.Module)", "Centers(Head)"), *OWN),
    ("", WHOLE.format("if seen:\n    centers.requires_grad_(False)"), "centers.parameters()"),
    ("", WHOLE.format("for p in centers.parameters():\n    if p.ndim > 1:\n        p.requires_grad = False"), OWN[1]),
    ("", WHOLE.format("centers.weight.requires_grad = False"), "centers.parameters()"),
    ("", ALONE.format("", ""), "[point]"),
]


@pytest.mark.parametrize(("cls", "made", "given"), TRAINED)
def test_that_of_one_which_may_train_goes_through_the_scaler(cls: str, made: str, given: str) -> None:
    result = rewrite(PRELUDE + program(cls, made, given))
    assert result.after is not None
    assert "scaler.step(fixed)" in result.after
