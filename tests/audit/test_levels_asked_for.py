"""What a program computes at each level that its command line may ask for, whichever is the usual one. AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import argparse
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(4)
            self.out = torch.nn.Linear(4, 4)

        def forward(self, x):
            x = self.norm(x)
            return self.out(torch.einsum("ij,kj->ik", x, x))

    def main(loader):
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", {option})
        args = parser.parse_args()
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level={level})
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
  -         loss = model(x).sum()
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model(x).sum()
  +         scaler.scale(loss).backward()
    """)


def told(option: str, level: str = "args.level") -> list[tuple[str, str]]:
    found = doubts(BEFORE.format(option=option, level=level), AFTER.format(option=option))
    return [(d.verdict, d.message) for d in found if d.code == "AMP535" and "einsum" in d.message]


CHOICES = "choices=['O1', 'O2']"


@pytest.mark.parametrize("option", ["default='O2'", f"default='O2', {CHOICES}"])
def test_what_o1_computed_is_told_where_o2_is_the_usual_level(option: str) -> None:
    ((verdict, message),) = told(option)
    assert verdict == "look"
    assert message.startswith("where the opt level asked for is O1: torch.einsum(")
    assert "O1 did not patch einsum" in message


@pytest.mark.parametrize("option", ["default='O1'", f"default='O1', {CHOICES}", ""])
def test_it_is_told_as_what_it_is_where_o1_is_usual(option: str) -> None:
    ((verdict, message),) = told(option)
    assert (verdict, message[:12]) == ("review", "torch.einsum")


@pytest.mark.parametrize("option", ["default='O2', choices=['O0', 'O2']", "default='O3', choices=['O2', 'O3']"])
def test_nothing_of_o1_is_told_where_no_run_can_ask_for_it(option: str) -> None:
    assert not told(option)


def test_a_literal_level_is_the_only_one() -> None:
    assert told("default='O2'", "'O1'")
    assert not told("default='O1'", "'O2'")


def test_a_line_that_runs_in_a_region_and_outside_is_told_of_once() -> None:
    before, after = sides("""
    import torch
  - from apex import amp

    def hinge(out):
        return torch.relu(1 - out).mean()

    def main(loader):
        model = torch.nn.Linear(4, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
  -         out = model(x)
  -         loss = hinge(out)
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             out = model(x)
  +             loss = hinge(out)
  +         scaler.scale(loss).backward()
            print(hinge(out))
    """)
    assert len([d for d in doubts(before, after) if d.code == "AMP535" and "mean is computed" in d.message]) == 1
