"""Apex's module as a parameter or an attribute: the checks see its calls as those of the module itself."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

MAIN = """
import torch
from apex import amp
from engine import Engine, train

def main(loader):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    CALL

main(load())
"""
ENGINE = """
import torch

def train(model, optimizer, loader, amp=None):
    for x in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    torch.save({"amp": amp.state_dict(), "model": model.state_dict()}, "last.pt")

class Engine:
    def __init__(self, amp):
        self.amp = amp

    def train(self, model, optimizer, loader):
        for x in loader:
            loss = model(x).sum()
            with self.amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        torch.save({"amp": self.amp.state_dict(), "model": model.state_dict()}, "last.pt")
"""
CALLS = [
    "train(model, optimizer, loader, amp)",
    "train(model, optimizer, loader, amp=amp)",
    "Engine(amp).train(model, optimizer, loader)",
]


def found(call: str, code: str, *edits: tuple[str, str]) -> list[Doubt]:
    """What is told of a migration of both files, with these further edits."""
    before = {"main.py": MAIN.replace("CALL", call), "engine.py": ENGINE}
    text = before["main.py"].replace("from apex import amp\n", "").replace("amp)", "scaler)").replace("amp=", "scaler=")
    text = text.replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "scaler = torch.amp.GradScaler()"
    )
    engine = ENGINE
    for indent, name in (("        ", "amp"), ("            ", "self.amp")):
        scaler = name.replace("amp", "scaler")
        engine = engine.replace(
            f"{indent}loss = model(x).sum()\n{indent}with {name}.scale_loss(loss, optimizer) as scaled:\n"
            f"{indent}    scaled.backward()\n{indent}optimizer.step()\n",
            f'{indent}with torch.autocast("cuda", dtype=torch.float16):\n{indent}    loss = model(x).sum()\n'
            f"{indent}{scaler}.scale(loss).backward()\n{indent}{scaler}.step(optimizer)\n{indent}{scaler}.update()\n",
        )
    engine = (
        engine.replace('"amp": ', '"scaler": ').replace("amp.state", "scaler.state").replace("amp=None", "scaler=None")
    )
    engine = engine.replace("self.amp = amp", "self.scaler = scaler").replace("(self, amp)", "(self, scaler)")
    engine = engine.replace("self.amp.", "self.scaler.")
    for old, new in edits:
        assert old in engine
        engine = engine.replace(old, new)
    after = {"main.py": text, "engine.py": engine}
    return [d for d in doubts_of(before, after) if d.code == code]


@pytest.mark.parametrize("call", CALLS)
def test_a_state_that_is_saved_no_more(call: str) -> None:
    gone = [(f'"scaler": {name}.state_dict(), ', "") for name in ("scaler", "self.scaler")]
    assert [d.path for d in found(call, "AMP431", *gone)]
    assert all("saved here" in d.message for d in found(call, "AMP431", *gone))
    assert not found(call, "AMP431")


@pytest.mark.parametrize("call", CALLS)
def test_a_scale_loss_that_stays_where_initialize_went(call: str) -> None:
    before = {"main.py": MAIN.replace("CALL", call), "engine.py": ENGINE}
    gone = before["main.py"].replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "pass")
    (doubt,) = [
        d for d in doubts_of(before, {"main.py": gone}) if "scale_loss is still used, at engine.py" in d.message
    ]
    assert doubt.code == "AMP135"
    assert not found(call, "AMP135")
