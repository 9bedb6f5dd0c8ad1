"""Programs beside the one that trains: they only predict, or say only what is cast."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files

PREDICTING = """\
import torch
import apex

from project import build, loader, options


def predict(model):
    if options.fp16:
        from apex import amp
    else:
        amp = None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    if amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level=options.level)
    for x in loader:
        with torch.no_grad():
            print(model(x))


if options.fp16:
    apex.amp.register_half_function(torch, "einsum")
predict(build())
"""
PREDICTED = """\
import torch

from project import build, loader, options


def predict(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for x in loader:
        with torch.no_grad(), torch.autocast(
            "cuda", dtype=torch.float16, enabled=bool(options.fp16 and options.level != "O0")
        ):
            print(model(x))


predict(build())
"""


def test_an_optimizer_that_is_only_initialized_needs_no_scaler_whatever_is_said_of_casts() -> None:
    after = rewrite(PREDICTING).after
    assert after is not None
    assert after.replace(" ", "").replace("\n", "") == PREDICTED.replace(" ", "").replace("\n", "").replace(
        'autocast("cuda"', 'autocast("cuda"'
    )
    assert "GradScaler" not in after


@pytest.mark.parametrize("use", ["optimizer.step()", "finish(optimizer)", "amp.state_dict()"])
def test_one_that_is_used_is_no_prediction(use: str) -> None:
    result = rewrite(PREDICTING.replace("            print(model(x))", f"            print(model(x))\n        {use}"))
    assert [f.code for f in result.findings if f.status == "manual"][:1] != []
    assert result.after is None


TRAINER = """\
from apex import amp


def prepare(model, optimizer, fp16):
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    return model, optimizer


def train(model, optimizer, loader):
    model, optimizer = prepare(model, optimizer, True)
    for x, y in loader:
        with amp.scale_loss(model(x, y), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
MAIN = """\
import apex
import torch

from project import loader, options
from trainer import train

if options.fp16:
    try:
        apex.amp.register_half_function(torch, "einsum")
    except ImportError:
        raise ImportError("Please install apex to use fp16 training.")
train(torch.nn.Linear(2, 2), None, loader)
"""


def test_a_registration_in_the_script_of_a_trainer_that_is_migrated() -> None:
    texts = check_files({"main.py": MAIN, "trainer.py": TRAINER})
    assert "apex" not in texts["main.py"]
    assert "raise" not in texts["main.py"]


def test_a_registration_beside_a_trainer_that_stays_with_apex_stays() -> None:
    results = rewrite_files({"main.py": MAIN, "trainer.py": TRAINER.replace("optimizer.step()", "amp.rnn(optimizer)")})
    found = [f for f in results["main.py"].findings if f.status == "manual"]
    assert len(found) == 1
    assert "trainer.py" in found[0].message
    assert results["main.py"].after is None
