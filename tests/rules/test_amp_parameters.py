"""A function that is given `amp`, or None, by its callers: mixed precision is on where they give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
import json
import sys
import torch


def prepare(AMP):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if ASKED:
        net, optimizer = amp.initialize(net, optimizer, opt_level="O2")
    return net, optimizer


def train(fp16):
    IMPORT
    net, optimizer = CALL
    for step in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(torch.ones(4, 3) / 3), torch.zeros(4, 2)) / 100
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    return [p.item() for p in net.parameters() for p in p.flatten()]


print(json.dumps(train("--fp16" in sys.argv)))
"""
BOTH = "if fp16:\n        from apex import amp\n    else:\n        amp = None"
FIRST = "amp = None\n    if fp16:\n        from apex import amp"


def program(
    imported: str = BOTH, parameter: str = "amp=None", asked: str = "amp is not None", call: str = "prepare(amp)"
) -> str:
    text = PROGRAM.replace("IMPORT", imported).replace("AMP", parameter)
    return text.replace("ASKED", asked).replace("CALL", call)


@pytest.mark.parametrize("imported", [BOTH, FIRST])
@pytest.mark.parametrize(
    ("parameter", "asked", "call"),
    [
        ("amp=None", "amp is not None", "prepare(amp)"),
        ("amp", "amp", "prepare(amp)"),
        ("amp=None", "amp is not None", "prepare(amp=amp)"),
    ],
)
def test_the_switch_of_the_import_is_that_of_the_scaler(
    tmp_path: Path, imported: str, parameter: str, asked: str, call: str
) -> None:
    """A run without the switch computes in float32 to the bit, and no doubt is told of it."""
    text = program(imported, parameter, asked, call)
    after = check_files({"train.py": text}, device="cpu")["train.py"]
    assert 'torch.amp.GradScaler("cpu", enabled=fp16)' in after
    assert 'torch.autocast("cpu", dtype=torch.float16, enabled=fp16)' in after
    told = {f.code for f in rewrite(text).findings}
    assert not {c for c in told if c.startswith("AMP53")}, told
    mixed, plain = (
        run_files(tmp_path, {"train.py": after.replace('"--fp16" in sys.argv', on)}, "train.py")
        for on in ("True", "False")
    )
    untouched = text.replace("if " + asked, "if False").replace("if fp16:\n        from", "if False:\n        from")
    assert plain == run_files(tmp_path, {"train.py": untouched}, "train.py")
    assert mixed == pytest.approx(plain, rel=1e-2)
    assert mixed != plain


def test_an_import_that_no_switch_holds_is_on_always() -> None:
    after = check_files({"train.py": program("from apex import amp")}, device="cpu")["train.py"]
    assert 'scaler = torch.amp.GradScaler("cpu")\n' in after


def test_two_calls_in_one_statement_that_are_told_otherwise() -> None:
    """One scaler for both could not be right."""
    text = "from apex import amp\n" + program("pass", call="prepare(amp) if fp16 else prepare()")
    result = rewrite(text)
    assert result.after is None
    assert [f.line for f in result.findings if f.status == "manual"]


SOMETIMES = """
import torch
from apex import amp


def train(model, optimizer, amp=None):
    kinds = []
    for _ in range(2):
        output = model(torch.ones(2, 4))
        kinds.append(str(output.dtype))
        loss = output.float().sum()
        optimizer.zero_grad()
        if amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    return kinds[-1]


def plain(model, optimizer):
    return train(model, optimizerGIVEN)


def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    return train(model, optimizer, amp)
"""
USER = """
import json

import torch
from library import main, plain

net = torch.nn.Linear(4, 2)
first = plain(net, torch.optim.SGD(net.parameters(), lr=0.1))
print(json.dumps([first, main(net, torch.optim.SGD(net.parameters(), lr=0.1))]))
"""


@pytest.mark.parametrize("given", ["", ", None", ", amp=None"])
def test_a_call_without_amp_runs_in_float32(given: str, tmp_path: Path) -> None:
    texts = check_files({"library.py": SOMETIMES.replace("GIVEN", given)}, device="cpu")
    assert "enabled=scaler.is_enabled()" in texts["library.py"]
    assert run_files(tmp_path, {**texts, "user.py": USER}, "user.py") == ["torch.float32", "torch.float16"]
