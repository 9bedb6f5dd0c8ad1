"""Two classes with a base in common are two objects: what one keeps has to be handed to the other."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, run_files

PROGRAM = """
import json

import torch
from apex import amp


class Base:
    def train(self, steps):
        for _ in range(steps):
            self.run_step()

    def run_step(self):
        raise NotImplementedError


class Plain(Base):
    def __init__(self, model, data, optimizer):
        super().__init__()
        self.model = model
        self.data = data
        self.optimizer = optimizer

    def run_step(self):
        loss = torch.nn.functional.mse_loss(self.model(self.data[0]), self.data[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Mixed(Plain):
    def run_step(self):
        loss = torch.nn.functional.mse_loss(self.model(self.data[0]), self.data[1])
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
        self.last = loss.item()


class Runner(Base):
    def __init__(self, model, data, optimizer, fp16=True):
        kept = dict(optimizer=optimizer)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            kept.update(dict(amp=amp))
        self.stepper = (Mixed if fp16 else Plain)(model, data, optimizer)
        self.kept = kept

    def run_step(self):
        self.stepper.run_step()


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
data = torch.ones(3, 2), torch.zeros(3, 1)
runner = Runner(model, data, torch.optim.SGD(model.parameters(), lr=0.1))
runner.train(2)
plain = Runner(model, data, torch.optim.SGD(model.parameters(), lr=0.1), fp16=False)
plain.train(1)
print(json.dumps([sorted(runner.kept), runner.stepper.last, sorted(plain.kept)]))
"""


def test_the_scaler_is_handed_to_the_object_that_steps(tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM}, device="cpu")
    assert "(Mixed if fp16 else Plain)(model, data, optimizer, scaler)" in texts["train.py"]
    assert "def __init__(self, model, data, optimizer, scaler):" in texts["train.py"]
    kept, loss, plain = run_files(tmp_path, texts, "train.py")
    assert kept == ["optimizer", "scaler"]
    assert plain == ["optimizer"]
    assert 0 < loss < 10
