"""Several scalers are told apart by the optimizer that a name may hold, not by how it is written: each is given a scale of
its own here, so a loss scaled by one and stepped by another trains wrongly."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch

from tests.rules.trained import check_trained

SETUP = """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.05)
[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1", num_losses=2)
"""
FIRST = """
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer, loss_id=0) as scaled_loss:
        scaled_loss.backward()
    seen.append(loss.item())
"""
SECOND = """
    loss = criterion(other(x), y)
    second.zero_grad()
    with amp.scale_loss(loss, second, loss_id=1) as scaled_loss:
        scaled_loss.backward()
"""

APART = {
    "an alias steps": SETUP + "alias = second\n" + FIRST + "    optimizer.step()\n" + SECOND + "    alias.step()\n",
    "an alias is clipped": SETUP
    + "alias = second\n"
    + FIRST
    + "    optimizer.step()\n"
    + SECOND
    + "    clip_grad_norm_(amp.master_params(alias), 0.1)\n    second.step()\n",
    "an alias steps what is clipped": SETUP
    + "alias = second\n"
    + FIRST
    + "    optimizer.step()\n"
    + SECOND
    + "    clip_grad_norm_(amp.master_params(second), 0.1)\n    alias.step()\n",
    "an alias is scaled": SETUP
    + "alias = optimizer\n"
    + FIRST.replace("loss, optimizer", "loss, alias")
    + "    optimizer.step()\n"
    + SECOND
    + "    second.step()\n",
    "attributes beside names": f"""
other = build()


class Trainer:
    def __init__(self):
        self.net, self.other = model, other
        one = torch.optim.SGD(self.net.parameters(), lr=0.1)
        two = torch.optim.SGD(self.other.parameters(), lr=0.05)
        [self.net, self.other], [self.first, self.second] = amp.initialize(
            [self.net, self.other], [one, two], opt_level="O1", num_losses=2
        )

    def run(self):
        optimizer, second = self.first, self.second
{"".join("        " + line + chr(10) for line in (FIRST + "    self.first.step()" + SECOND).splitlines())}
            self.second.step()


Trainer().run()
""",
}
TOGETHER = {
    "a helper steps either": """
def finish(which):
    which.step()
    which.zero_grad()
"""
    + SETUP
    + FIRST
    + "    finish(optimizer)\n"
    + SECOND
    + "    finish(second)\n",
    "a loop steps both": SETUP
    + FIRST
    + SECOND
    + "    for each in (optimizer, second):\n        each.step()\n        each.zero_grad()\n",
}


@pytest.fixture(autouse=True)
def _unlike_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    made, create = count(), torch.amp.GradScaler

    def unlike(device: str, **options: Any) -> torch.amp.GradScaler:
        return create(device, init_scale=2.0 ** (4 + 6 * next(made)), **options)

    monkeypatch.setattr(torch.amp, "GradScaler", unlike)


@pytest.mark.parametrize("program", APART.values(), ids=APART)
def test_the_scaler_that_scaled_is_the_one_that_steps(program: str) -> None:
    assert check_trained(program).count("GradScaler(") == 2


@pytest.mark.parametrize("program", TOGETHER.values(), ids=TOGETHER)
def test_one_scaler_serves_optimizers_that_cannot_be_told_apart(program: str) -> None:
    assert check_trained(program).count("GradScaler(") == 1
