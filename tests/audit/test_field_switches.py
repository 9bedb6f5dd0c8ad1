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


FALLBACK = """
import torch
IMPORT


class Trainer:
    def __init__(self, half):
        self.half = half
        GUARD
        self.model = torch.nn.Linear(4, 4).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        SET_UP

    def set_up(self):
        START

    def train(self, batches):
        for x in batches:
            with REGION:
                loss = self.model(x).sum()
            BACKWARD


Trainer(True).train(torch.ones(3, 2, 4).cuda())
"""
GUARDED = """try:
            from PACKAGE import amp
        except ImportError:
            self.half = False"""
WITH_APEX = {
    "SET_UP": "if self.half:\n            self.set_up()",
    "START": 'self.model, self.optimizer = apex.amp.initialize(self.model, self.optimizer, opt_level="O1")',
    "REGION": "torch.enable_grad()",
    "BACKWARD": (
        "if self.half:\n                with apex.amp.scale_loss(loss, self.optimizer) as scaled_loss:\n"
        "                    scaled_loss.backward()\n            else:\n                loss.backward()\n"
        "            self.optimizer.step()"
    ),
    "IMPORT": "import apex",
}
NATIVE = {
    "SET_UP": "self.set_up()",
    "START": 'self.scaler = torch.amp.GradScaler("cuda", enabled=self.half)',
    "REGION": 'torch.autocast("cuda", dtype=torch.float16, enabled=self.half)',
    "BACKWARD": (
        "self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n            self.scaler.update()"
    ),
    "IMPORT": "",
}


@pytest.mark.parametrize(("package", "told"), [("apex", 0), ("fast", 1)])
def test_what_a_field_is_given_for_want_of_apex_is_no_run_with_it(package: str, told: int) -> None:
    before, after = (FALLBACK, FALLBACK)
    for word, text in (*WITH_APEX.items(), ("GUARD", GUARDED.replace("PACKAGE", package))):
        before = before.replace(word, text)
    for word, text in (*NATIVE.items(), ("GUARD", "")):
        after = after.replace(word, text)
    found = [d for d in doubts(before, after) if d.code == "AMP531" and "not been set up" in d.message]
    assert len(found) == told, found
