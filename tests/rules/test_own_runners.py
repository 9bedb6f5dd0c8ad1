"""A runner of the program's own, whose hooks it looks up by name and hands itself: they scale, step and save through it."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, rewrite_files, run_files

BASE = """
from apex import amp


class Base:
    def __init__(self, model, optimizer=None, half=None):
        self.model = model
        self.optimizer = optimizer
        self.half = half
        self._hooks = []

    def register(self, hook):
        self._hooks.append(hook)

    def call_hook(self, name):
        for hook in self._hooks:
            getattr(hook, name)(self)

    def resume(self, checkpoint):
        if "optimizer" in checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            if self.half.enable:
                amp.load_state_dict(checkpoint["amp"])
"""
EPOCHS = """
import torch
from run.base import Base
from apex import amp


class Epochs(Base):
    def train(self, loader):
        self.model.train()
        for x, y in loader:
            self.loss = (self.model(x) - y).pow(2).mean()
            self.call_hook("after_train_iter")
        self.call_hook("after_train_epoch")

    def save_checkpoint(self, path):
        amp_state = None
        if self.half.enable:
            amp_state = amp.state_dict()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "amp": amp_state}, path)
"""
HOOKS = """
from apex import amp


class Hook:
    def after_train_iter(self, runner):
        pass

    def after_train_epoch(self, runner):
        pass


class Step(Hook):
    def __init__(self, half=False):
        self.half = half

    def after_train_iter(self, runner):
        runner.optimizer.zero_grad()
        if self.half:
            with amp.scale_loss(runner.loss, runner.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            runner.loss.backward()
        runner.optimizer.step()


class Save(Hook):
    def after_train_epoch(self, runner):
        runner.save_checkpoint("last.pth")
"""
TRAIN = """
import torch
from apex import amp
from run.epochs import Epochs
from run.hooks import Save, Step


def train(cfg, loader):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if cfg.half.enable:
        model, optimizer = amp.initialize(model, optimizer, opt_level=cfg.half.level)
    runner = Epochs(model, optimizer=optimizer, half=cfg.half)
    runner.register(Step(cfg.half.enable))
    runner.register(Save())
    if cfg.resume:
        runner.resume(torch.load(cfg.resume))
    runner.train(loader)
"""
FILES = {"run/__init__.py": "", "run/base.py": BASE, "run/epochs.py": EPOCHS, "run/hooks.py": HOOKS, "train.py": TRAIN}
USE = """
import json
import os
import sys
import warnings
from types import SimpleNamespace

import torch
from train import train

warnings.simplefilter("ignore")  # no GPU
loader = [(torch.ones(4, 2), torch.ones(4, 1)) for _ in range(3)]
for resume in (None, "last.pth"):
    for enable in (False, True):
        train(SimpleNamespace(half=SimpleNamespace(enable=enable, level="O1"), resume=resume), loader)
print(json.dumps(sorted(torch.load("last.pth"))))
"""


def test_hooks_reach_the_scaler_by_the_runner_that_hands_itself_to_them(tmp_path: Path) -> None:
    texts = check_files(FILES)
    assert "runner.scaler.scale(runner.loss).backward()" in texts["run/hooks.py"]
    assert "runner.scaler.step(runner.optimizer)" in texts["run/hooks.py"]
    assert "self.scaler.state_dict()" in texts["run/epochs.py"]
    assert "scaler=scaler)" in texts["train.py"]
    assert run_files(tmp_path, {**texts, "use.py": USE}, "use.py") == ["model", "optimizer", "scaler"]


def test_a_hook_that_nothing_is_seen_to_run_is_refused_with_that_reason() -> None:
    still = BASE.replace("getattr(hook, name)(self)", "hook.run(name)")
    found = rewrite_files({**FILES, "run/base.py": still})["run/hooks.py"].findings
    assert any("nothing in sight calls it with one" in f.message for f in found if f.status == "manual"), found
    messages = [f.message for r in rewrite_files({**FILES, "run/base.py": still}).values() for f in r.findings]
    assert not any("nothing here makes" in text or "nothing in sight calls Epochs" in text for text in messages)
