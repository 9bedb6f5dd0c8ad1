"""`if amp is not None:` asks the scaler, also where a call leaves it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

SAVED = """
import torch
from apex import amp


def save(target, model, amp=None):
    state = {"model": model.state_dict()}
    if TEST:
        state["amp"] = amp.state_dict()
    torch.save(state, target)


def train(model, optimizer, loader, target):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    save(target, model, GIVEN)
"""
EXPORT = """
import io
import json

import torch
import saved

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.ones(3, 2), torch.ones(3, 1))]
first, last = io.BytesIO(), io.BytesIO()
saved.save(first, model)
saved.train(model, optimizer, loader, last)
first.seek(0), last.seek(0)
print(json.dumps([sorted(torch.load(file, weights_only=True)) for file in (first, last)]))
"""
TESTS = {
    "amp is not None": "scaler is not None and scaler.is_enabled()",
    "amp": "scaler is not None and scaler.is_enabled()",
    "len(state) == 1 and amp is not None": "len(state) == 1 and scaler is not None and scaler.is_enabled()",
    "not amp is None": "not (scaler is None or not scaler.is_enabled())",
}


@pytest.mark.parametrize(("test", "asked"), TESTS.items(), ids=TESTS.keys())
@pytest.mark.parametrize("given", ["amp", "amp=amp"])
def test_a_call_may_leave_the_scaler_out(test: str, asked: str, given: str, tmp_path: Path) -> None:
    files = {"saved.py": SAVED.replace("TEST", test).replace("GIVEN", given), "export.py": EXPORT}
    texts = check_files(files, device="cpu")
    assert f"    if {asked}:\n" in texts["saved.py"]
    assert texts["export.py"] == EXPORT.lstrip()
    assert run_files(tmp_path, texts, "export.py") == [["model"], ["model", "scaler"]]


SWITCHED = """
import torch
from parts import args, build, loader


def train(model, optimizer, amp):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if amp is not None:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        if amp:
            print("mixed")
        optimizer.step()
        optimizer.zero_grad()


def main():
    model, optimizer = build()
    if args.fp16:
        from apex import amp

        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    else:
        amp = None
    train(model, optimizer, amp)


main()
"""


def test_a_variable_that_may_be_none_hands_over_a_scaler_that_may_be_off() -> None:
    result = rewrite(SWITCHED)
    assert result.after is not None
    assert "        if scaler.is_enabled():\n            print(" in result.after
    assert "scaler is not None" not in result.after


KEPT = """
import torch


def train(args, model, optimizer, loader):
    if args.fp16:
        from apex import amp
    else:
        amp = None
    if args.fp16 and amp is not None:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    SAVE
"""


@pytest.mark.parametrize(
    ("save", "expected"),
    [
        (
            'torch.save({"amp": amp.state_dict() if amp is not None else amp}, "last.pt")',
            '"scaler": scaler.state_dict() if scaler.is_enabled() else None}',
        ),
        (
            'torch.save({"amp": amp if amp is None else amp.state_dict()}, "last.pt")',
            '"scaler": None if not scaler.is_enabled() else scaler.state_dict()}',
        ),
        (
            'if amp is not None:\n        torch.save(amp.state_dict(), "last.pt")\n'
            '    else:\n        torch.save(amp, "last.pt")',
            'torch.save(None, "last.pt")',
        ),
    ],
)
def test_amp_where_it_is_none_is_none(save: str, expected: str) -> None:
    result = rewrite(KEPT.replace("SAVE", save))
    assert result.after is not None
    assert expected in result.after
    assert not [f for f in result.findings if f.status == "manual"]


def test_amp_that_the_branch_gives_another_value_is_not_none() -> None:
    save = 'if amp is None:\n        amp = torch.nn\n        torch.save(amp, "last.pt")'
    result = rewrite(KEPT.replace("SAVE", save))
    assert "torch.save(None" not in (result.after or "")


LOOKED_UP = """
import json
import torch
from apex import amp

class Trainer:
    def __init__(self, model, optimizer, config):
        self.use_amp = ASKED
        self.model, self.optimizer = model, optimizer
        if self.use_amp:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def train(self, loader):
        for x in loader:
            loss = self.model(x).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("asked", "enabled"),
    [
        ('config.get("amp", False)', "bool(self.use_amp)"),  # a file may say 0, or null
        ('json.load(open("config.json")).pop("amp", True)', "bool(self.use_amp)"),
        ('config.get("amp", False) is True', "self.use_amp"),
        ('{"amp": True}.get("amp", False)', "self.use_amp"),
        ('getattr(config, "amp", False)', "self.use_amp"),
    ],
)
def test_what_a_mapping_holds_is_no_bool_by_its_default(asked: str, enabled: str) -> None:
    result = rewrite(LOOKED_UP.replace("ASKED", asked))
    assert f'GradScaler("cuda", enabled={enabled})' in (result.after or "")


SETTINGS = {
    "config.py": "from yacs.config import CfgNode as CN\n\ncfg = CN()\ncfg.DEVICE = 'cuda'\ncfg.FP16 = False\ncfg.SYNC = False\n",
    "train.py": """
        import torch
        from apex import amp
        from config import cfg

        def train(model, optimizer, loader):
            device = cfg.DEVICE
            if SWITCH:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                loss = model(x).mean()
                if SWITCH:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
    """,
}


@pytest.mark.parametrize(
    ("switch", "enabled"),
    [
        ("device and cfg.FP16", "bool(device and cfg.FP16)"),  # an empty device is no bool
        ("cfg.FP16 and not cfg.SYNC", "cfg.FP16 and not cfg.SYNC"),
        ("cfg.FP16", "cfg.FP16"),
    ],
)
def test_each_side_of_a_switch_has_to_be_a_bool(switch: str, enabled: str) -> None:
    files = {name: text.replace("SWITCH", switch) for name, text in SETTINGS.items()}
    assert f'GradScaler("cuda", enabled={enabled})' in (rewrite_files(files)["train.py"].after or "")
