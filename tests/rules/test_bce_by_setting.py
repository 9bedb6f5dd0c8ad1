"""A BCELoss that a setting chooses, or that a loss of the program's own derives from, is computed without autocast."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import check_files

TRAIN = """
import torch
from apex import amp
from config import get_config
from data import loader, network
from losses import Loss


def train(cfg):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    criterion = Loss(kind=cfg.TRAIN.LOSS)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


train(get_config())
"""
CONFIG = """
import sys
from yacs.config import CfgNode

_C = CfgNode()
_C.TRAIN = CfgNode()
_C.TRAIN.LOSS = "dice"


def get_config():
    cfg = _C.clone()
    cfg.merge_from_file(sys.argv[1])
    return cfg
"""
LOSSES = """
import torch.nn as nn
import torch.nn.functional as F


class Flat(nn.BCELoss):
    def forward(self, guess, target):
        guess = guess.reshape(-1)
        return ABOVE


class Loss(nn.Module):
    def __init__(self, kind="dice"):
        super().__init__()
        self.kind = kind

    def forward(self, guess, target):
        guess = guess.float().sigmoid()
        loss = 1 - (guess * target).sum() / (guess + target).sum()
        if self.kind == "bce":
            loss = loss + F.binary_cross_entropy(guess, target)
        elif self.kind == "flat":
            flat = Flat()
            loss = loss + flat(guess, target)
        return loss
"""
OFF = 'with torch.autocast("cuda", enabled=False):'
ABOVE = ["super().forward(guess, target.reshape(-1))", "super(Flat, self).forward(guess, target.reshape(-1))"]


@pytest.mark.parametrize("above", ABOVE)
def test_what_a_setting_may_choose_is_looked_at(above: str) -> None:
    """A default that a configuration file replaces is not all that a setting may be."""
    files = {"train.py": TRAIN, "config.py": CONFIG, "losses.py": LOSSES.replace("ABOVE", above)}
    losses = check_files(files)["losses.py"]
    assert losses.count(OFF) == 2
    assert ".forward(guess.float(), target.reshape(-1).float())" in losses


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("kind", ["bce", "flat"])
def test_the_audit_sees_it_by_itself(above: str, kind: str) -> None:
    before = {"train.py": TRAIN, "config.py": CONFIG, "losses.py": LOSSES.replace("ABOVE", above)}
    after = check_files(before)
    other = "flat" if kind == "bce" else "bce"
    raising = before["losses.py"].replace(f'self.kind == "{other}"', "False")
    found = doubts_of({**before, "losses.py": raising}, {**after, "losses.py": raising})
    assert [d.verdict for d in found if d.code == "AMP533"] == ["refuse"]
