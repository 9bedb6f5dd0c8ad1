"""None for a scaler that came with the migration: refused where something is asked of it in any case."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
import torch
from apex import amp
from data import loader, model, optimizer


def epoch(model, optimizer, training=True):
    for x in loader:
        loss = model(x).sum()
        if optimizer is not None:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
epoch(model, optimizer)
epoch(model, None)
"""
AFTER = """
import torch
from data import loader, model, optimizer


def enabled(scaler, flag):
    ASKED


def epoch(model, optimizer, scaler, training=True):
    for x in loader:
        REGION:
            loss = model(x).sum()
        if optimizer is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


scaler = torch.amp.GradScaler("cuda")
epoch(model, optimizer, scaler)
epoch(model, None, GIVEN)
"""
ON = "torch.autocast('cuda', enabled={})"


def said(region: str, given: str = "None", asked: str = "return flag") -> list[str]:
    after = AFTER.replace("REGION", f"with {region}").replace("GIVEN", given).replace("ASKED", asked)
    return [verdict for _, verdict in told(doubts(BEFORE, after), "AMP137")]


@pytest.mark.parametrize(
    ("region", "asked"),
    [
        (ON.format("scaler.is_enabled()"), "return flag"),
        (ON.format("enabled(scaler, True)"), "return scaler.is_enabled()"),
        (ON.format("enabled(flag=True, scaler=scaler)"), "on = scaler.is_enabled()\n    return on"),
    ],
)
def test_what_is_asked_of_none_in_any_case_is_refused(region: str, asked: str) -> None:
    assert said(region, asked=asked) == ["refuse"]
    assert not said(region, "scaler", asked)
    assert not said(region, "torch.amp.GradScaler('cuda', enabled=False)", asked)


@pytest.mark.parametrize(
    ("region", "asked"),
    [
        (ON.format("True"), "return flag"),
        (ON.format("scaler is not None and scaler.is_enabled()"), "return flag"),
        (ON.format("scaler.is_enabled() if optimizer else False"), "return flag"),
        (ON.format("enabled(scaler, True)"), "return scaler is not None"),
        (ON.format("enabled(scaler, True)"), "if flag:\n        return scaler.is_enabled()\n    return False"),
        (ON.format("enabled(scaler, True)"), "scaler = scaler or model\n    return scaler.training"),
        (ON.format("enabled(scaler, True)"), "if flag:\n        return True\n    return scaler.is_enabled()"),
    ],
)
def test_what_a_test_may_keep_from_it_is_not(region: str, asked: str) -> None:
    assert not said(region, asked=asked)
