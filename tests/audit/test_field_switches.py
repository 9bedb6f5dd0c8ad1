"""Switches that are fields of an object, given several values by one method: what they leave of a branch."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

TRAINER = """
import torch
IMPORT


class Trainer:
    def __init__(self, model, optimizer, options):
        self.model, self.optimizer, self.options = model, optimizer, options
        self.set_up()

    def set_up(self):
        self.use_apex = False
        self.use_amp = False
        if self.options.half:
            CHOICE

    def forward(self, x):
        if self.use_amp:
            with torch.autocast("cuda"):
                out = self.model(x)
        else:
            out = self.model(x)
        return out

    def train(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.forward(x), y)
            if self.use_amp:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                BACKWARD
                self.optimizer.step()


trainer = Trainer(torch.nn.Linear(4, 2).cuda(), optimizer, options)
trainer.train(loader)
"""
BEFORE = (
    TRAINER.replace("IMPORT", "from apex import amp")
    .replace(
        "CHOICE",
        """if self.options.kind == "amp":
                self.use_amp = True
                self.scaler = torch.amp.GradScaler("cuda")
            else:
                self.use_apex = True
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")""",
    )
    .replace(
        "BACKWARD",
        """if self.use_apex:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()""",
    )
)
AFTER = TRAINER.replace("IMPORT", "").replace("BACKWARD", "loss.backward()")
ON = 'self.use_amp = True\n            self.scaler = torch.amp.GradScaler("cuda")'


@pytest.mark.parametrize(
    ("choice", "told"),
    [(ON, 0), (f'if self.options.kind == "amp":\n                {ON.replace(chr(10), chr(10) + "    ")}', 1)],
)
def test_a_branch_that_no_run_under_apex_comes_to_any_more(choice: str, told: int) -> None:
    found = [d for d in doubts(BEFORE, AFTER.replace("CHOICE", choice)) if d.code == "AMP531"]
    assert len(found) == told, found
