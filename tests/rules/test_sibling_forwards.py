"""A model that one branch runs by code out of sight, and the other itself: both ran in mixed precision."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite

TRAINER = """
    import torch
    from apex import amp
    from library import util

    class Trainer:
        def __init__(self, model, optimizer, devices):
            self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
            self.devices = devices

        def loss(self, batch):
            {choose}
            return out.float().sum()

        def outputs(self, batch):
            if len(self.devices) > 1:
                return util.run_on_all(batch, self.model, self.devices)
            return self.model(batch)

        def train(self, batches):
            for x in batches:
                loss = self.loss(x)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
    """
CHOICES = [
    "if len(self.devices) > 1:\n                out = util.run_on_all(batch, self.model, self.devices)\n"
    "            else:\n                out = self.model(batch)",
    "if len(self.devices) > 1:\n                out = util.data_parallel(batch, self.model, self.devices)\n"
    "            else:\n                batch = batch.float()\n                out = self.model(batch)",
    "if len(self.devices) < 2:\n                out = self.model(batch)\n"
    "            else:\n                out = util.run_on_all(batch, self.model, self.devices)",
    "out = self.outputs(batch)",
]


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("devices", [1, 2])
def test_each_branch_runs_in_mixed_precision(choose: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []

    def run(batch: torch.Tensor, model: torch.nn.Module, devices: list[int]) -> torch.Tensor:
        out: torch.Tensor = model(batch)
        seen.append(out.dtype)
        return out

    library: Any = ModuleType("library")
    library.util = SimpleNamespace(run_on_all=run, data_parallel=run)
    monkeypatch.setitem(sys.modules, "library", library)
    after = rewrite(TRAINER.format(choose=choose), device="cpu", dtype="bfloat16").after
    names = names_of(after)
    model = torch.nn.Linear(4, 2)
    model.register_forward_hook(lambda m, given, out: seen.append(out.dtype))
    trainer = names["Trainer"](model, torch.optim.SGD(model.parameters(), lr=0.1), list(range(devices)))
    trainer.train([torch.ones(3, 4)])
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize(
    "choose",
    [
        "names = util.describe(self.model) if self.devices else []\n            out = self.model(batch)",
        "if self.devices:\n                extra = util.describe(batch, self.model)\n"
        "            else:\n                out = self.model(batch)",
    ],
)
def test_what_is_no_other_way_to_the_same_value_is_left_alone(choose: str) -> None:
    after = rewrite(TRAINER.format(choose=choose)).after or ""
    described = next(line for line in after.splitlines() if "util.describe" in line)
    above = after.splitlines()[after.splitlines().index(described) - 1]
    assert "autocast" not in above


@pytest.mark.parametrize("choose", CHOICES[:3])
def test_the_audit_sees_it_by_itself(choose: str) -> None:
    before = TRAINER.format(choose=choose)
    after = rewrite(before).after or ""
    assert not [d for d in doubts(before, after) if d.code == "AMP531"]
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n                    out = self.model('
    bare = before.replace("out = self.model(", region).replace("from apex import amp", "import math")
    bare = re.sub(r"self.model, self.optimizer = amp.*", "self.model, self.optimizer = model, optimizer", bare)
    lines = ["self.scaler.scale(loss).backward()", "self.scaler.step(self.optimizer)", "self.scaler.update()"]
    step = f"\n{' ' * 16}".join(lines) + "\n"
    bare = re.sub(r"with amp.scale_loss(.*\n)*.*step\(\)\n", step, bare)
    bare = bare.replace(
        "self.devices = devices", "self.devices = devices\n            self.scaler = torch.amp.GradScaler('cuda')"
    )
    found = [d.message for d in doubts(before, bare) if d.code == "AMP531"]
    assert any("is given self.model and is out of sight" in m for m in found)
