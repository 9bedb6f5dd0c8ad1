"""An object that keeps Apex once it was set up, and None before: the branch without it is come by in no run under Apex (AMP532)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch


class Center:
    def __init__(self, model, conf):
        self.model, self.conf = model, conf
        self.amp = None
        self.optimizer = None

    def prepare(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if self.conf.level:
            try:
                from apex import amp
            except ImportError:
                raise ImportError("no Apex")
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.conf.level)
            self.amp = amp

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        if ASKED:
            with self.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()

    def run(self, loader):
        self.prepare()
        for x, y in loader:
            self.step(x, y)


Center(torch.nn.Linear(4, 2).cuda(), conf).run(loader)
"""
END = BEFORE.index("    def step")
AFTER = (
    BEFORE.replace(
        BEFORE[BEFORE.index("        if self.conf.level") : END],
        '        self.scaler = torch.amp.GradScaler("cuda", enabled=bool(self.conf.level))\n\n',
    )
    .replace(
        "        loss = torch",
        '        with torch.autocast("cuda", dtype=torch.float16, enabled=bool(self.conf.level)):\n            loss = torch',
    )
    .replace("        self.amp = None\n", "")
)
AFTER = (
    AFTER[: AFTER.index("        if ASKED")]
    + "        self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n        self.scaler.update()\n\n"
    + AFTER[AFTER.index("    def run") :]
)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("self.amp is not None", 0),
        ("self.amp is not None and self.conf.scale", 1),
        ("self.conf.scale", 1),
    ],
)
def test_a_run_without_apex_is_not_one_that_set_it_up(asked: str, count: int) -> None:
    found = doubts(BEFORE.replace("ASKED", asked), AFTER)
    assert len([d for d in found if d.code == "AMP532" and "not scaled here" in d.message]) == count, found
