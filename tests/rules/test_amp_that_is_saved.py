"""A mapping that amp is put into, to be saved, brings the scaler to nobody: who steps is handed it, and the mapping is, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_manual, rewrite, run_files

PROGRAM = """
import json

import torch
from apex import amp


def trainer(model, optimizer):
    def update(x, y):
        loss = torch.nn.functional.mse_loss(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    PUT
    return update, to_save


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
update, to_save = trainer(model, optimizer)
update(torch.ones(2, 4), torch.ones(2, 1))
print(json.dumps(sorted(list(to_save.values())[-1].state_dict())))
"""
PUTS = {
    "written out": 'to_save = {"model": model, "amp": amp}',
    "by keyword": "to_save = dict(model=model, amp=amp)",
    "put in later": 'to_save = {"model": model}\n    to_save["amp"] = amp',
    "added": 'to_save = {"model": model}\n    to_save.update({"amp": amp})',
}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_what_is_saved_is_no_way_to_the_scaler(put: str, tmp_path: Path) -> None:
    text = check_files({"train.py": PROGRAM.replace("PUT", put)}, device="cpu")["train.py"]
    assert "        scaler.scale(loss).backward()" in text
    assert "growth_factor" in run_files(tmp_path, {"train.py": text}, "train.py")


METHODS = """
import json

import torch
from apex import amp


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.parts = {"model": model, "optimizer": optimizer, "amp": amp}

    def update(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        with ASKED.scale_loss(loss, self.parts["optimizer"]) as scaled_loss:
            scaled_loss.backward()
        self.parts["optimizer"].step()
        self.parts["optimizer"].zero_grad()


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
trainer = Trainer(model, optimizer)
trainer.update(torch.ones(2, 4), torch.ones(2, 1))
print(json.dumps(sorted(list(trainer.parts.values())[-1].state_dict())))
"""


@pytest.mark.parametrize("asked", ["amp", 'self.parts["amp"]'])
def test_a_field_is_asked_where_it_was_asked_before(asked: str, tmp_path: Path) -> None:
    text = check_files({"train.py": METHODS.replace("ASKED", asked)}, device="cpu")["train.py"]
    assert ('self.parts["scaler"].scale(loss)' in text) is (asked != "amp")
    assert "growth_factor" in run_files(tmp_path, {"train.py": text}, "train.py")


LIBRARY = """
import torch
from apex import amp
from outfit import training

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in data():
    with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
training.CALL
"""


@pytest.mark.parametrize(
    "call", ["snapshot_object(AMP, filename='amp.ckpt')", "save_ckpt(model, AMP)", "Restorer(AMP)"]
)
def test_a_library_that_saves_is_given_the_scaler(call: str) -> None:
    result = rewrite(LIBRARY.replace("CALL", call.replace("AMP", "amp")))
    assert f"training.{call.replace('AMP', 'scaler')}" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP401"] == ["review"]


def test_one_that_does_something_else_is_not() -> None:
    check_manual(LIBRARY.replace("CALL", "configure(amp)"), "AMP102")
