"""What one factory makes for each that asks it is told apart: a schedule is no model, though `make` makes both."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

REGISTRY = """
def make(cfg, registry):
    chosen = registry.get(cfg.pop("type"))
    return chosen(**cfg)


def build_network(cfg):
    return make(cfg, NETWORKS)


def build_schedule(cfg):
    schedule = make(cfg, SCHEDULES)
    return schedule
"""
BEFORE = """
import torch
from apex import amp
from registry import build_network, build_schedule


def train(cfg, optimizer, batches, criterion):
    model = build_network(cfg.model)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
    plan = build_schedule(cfg.schedule)
    schedule = plan(optimizer, cfg)
    other = MODEL
    for batch in batches:
        loss = criterion(model(batch))
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        print(other(batch))
"""
AFTER = """
import torch
from registry import build_network, build_schedule


def train(cfg, optimizer, batches, criterion):
    model = build_network(cfg.model)
    scaler = torch.amp.GradScaler("cuda")
    plan = build_schedule(cfg.schedule)
    schedule = plan(optimizer, cfg)
    other = MODEL
    for batch in batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(batch))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(other(batch))
"""


def lost(model: str, level: str = "O1", registry: str = REGISTRY) -> list[int]:
    before, after = BEFORE.replace("MODEL", model).replace("LEVEL", level), AFTER.replace("MODEL", model)
    found = doubts_of({"train.py": before, "registry.py": registry}, {"train.py": after})
    return [line for line, _ in told(found, "AMP531")]


def test_a_schedule_of_the_same_factory_is_no_model() -> None:
    assert lost("print") == []


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_the_model_itself_under_another_name_is_told(level: str) -> None:
    assert lost("model", level) == [17]


def test_a_class_that_the_factory_is_seen_to_make_stays_known() -> None:
    registry = (
        REGISTRY.replace("chosen(**cfg)", "chosen(**cfg)\n\n\nNETWORKS = {'net': Net}\nSCHEDULES = {'cosine': Cosine}")
        + """

class Net(torch.nn.Module):
    def forward(self, x):
        return x @ x


class Cosine:
    def __call__(self, optimizer, cfg):
        return optimizer
"""
    )
    assert lost("model", registry="import torch\n" + registry) == [17]
