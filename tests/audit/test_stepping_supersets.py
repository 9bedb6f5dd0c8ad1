"""The step of an optimizer that other code sees less of: it is one object, whoever asks (AMP231)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

# Its optimizer is what either script made: `train` of the first sees only its own, and steps that by a scaler of its own.
FINDER = """
import torch
IMPORTS

class Finder:
    def __init__(self, model, optimizer, scaler=None):
        HELD
        self.model, self.optimizer, self.clip = model, optimizer, 1.0

    def search(self, batches):
        for x in batches:
            self.one(x)

    def one(self, x):
        self.optimizer.zero_grad()
        STEP
"""
OLD = """loss = self.model(x).mean()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), self.clip)
        self.optimizer.step()"""
NEW = """with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):
            loss = self.model(x).mean()
        self.scaler.scale(loss).backward()
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()"""
HELD = """self.scaler = scaler if scaler is not None else torch.amp.GradScaler("cuda", enabled=False)"""
MAIN = """
import sys
import torch
from finder import Finder
IMPORTS

def make(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(model):
    optimizer = make(model)
    TRAIN


def find(model):
    optimizer = make(model)
    SET_UP
    finder.search([torch.randn(3, 4).cuda()])


def main():
    model = torch.nn.Linear(4, 2).cuda()
    if len(sys.argv) > 1:
        train(model)
    else:
        find(model)


if __name__ == "__main__":
    main()
"""
PROBE = """
import torch
from finder import Finder

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
finder = Finder(model, optimizer)
finder.search([torch.randn(3, 4)])
"""
TRAIN = """model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = model(torch.randn(3, 4).cuda()).mean()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()"""
TRAINED = """scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(3, 4).cuda()).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()"""
INITIALIZE = """model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    finder = Finder(model, optimizer)"""
SCALER = """scaler = torch.amp.GradScaler("cuda")
    finder = Finder(model, optimizer, scaler=scaler)"""
BEFORE = {
    "finder.py": FINDER.replace("IMPORTS", "from apex import amp\n").replace("HELD", "pass").replace("STEP", OLD),
    "main.py": MAIN.replace("IMPORTS", "from apex import amp\n").replace("SET_UP", INITIALIZE).replace("TRAIN", TRAIN),
    "probe.py": PROBE,
}


def said(new: str) -> list[str]:
    after = {
        **BEFORE,
        "finder.py": FINDER.replace("IMPORTS", "").replace("HELD", HELD).replace("STEP", new),
        "main.py": MAIN.replace("IMPORTS", "").replace("SET_UP", SCALER).replace("TRAIN", TRAINED),
    }
    return [d.message for d in doubts_of(BEFORE, after) if d.code == "AMP231"]


def test_what_update_ends_is_ended_for_each_of_them() -> None:
    assert said(NEW) == []


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("\n        self.scaler.update()", "again without update()"),
        ("self.scaler.scale(loss)", "what a backward without scale gave"),
    ],
)
def test_what_is_wrong_is_found(left_out: str, message: str) -> None:
    found = said(NEW.replace(left_out, "" if "update" in left_out else "loss"))
    assert any(message in text for text in found)
