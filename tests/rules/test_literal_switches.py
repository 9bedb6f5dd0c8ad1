"""A switch that a script sets by a literal, `use_apex = True`, rules in other files too: its value of today is written nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, run_files

TRAIN = """
    import json

    import torch
    from apex import amp
    from criterion import Criterion
    from generator import Generator

    torch.manual_seed(0)
    generator = Generator()
    optimizer = torch.optim.SGD(generator.model.parameters(), lr=0.1)

    use_apex = {value}
    if use_apex:
        generator.model, optimizer = amp.initialize(generator.model, optimizer, opt_level="O1")

    criterion = Criterion(generator, optimizer, {given})
    x = torch.ones(4, 2)
    with torch.no_grad():
        seen = generator.encode(x)
    criterion(x)
    print(json.dumps([str(seen.dtype), criterion.dtype, SCALER_STATE != {}]))
"""
GENERATOR = """
    import torch


    class Generator:
        def __init__(self):
            self.model = torch.nn.Linear(2, 2)

        def encode(self, x):
            return self.model(x)

        def decode(self, x):
            return self.model(x)

        def run(self, x):
            return self.decode(x)
"""
CRITERION = """
    import torch
    from apex import amp


    class Criterion:
        def __init__(self, generator, optimizer, use_amp=False):
            self.generator = generator
            self.optimizer = optimizer
            self.use_amp = use_amp

        def __call__(self, x):
            outputs = self.generator.run(x)
            self.dtype = str(outputs.dtype)
            loss = outputs.float().pow(2).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
"""


def migrated(value: str, given: str) -> dict[str, str]:
    texts = {
        "train.py": TRAIN.replace("{value}", value).replace("{given}", given),
        "generator.py": GENERATOR,
        "criterion.py": CRITERION,
    }
    return check_files(texts, device="cpu")


@pytest.mark.parametrize("given", ["use_amp=use_apex", "use_amp=True", "use_apex"])
@pytest.mark.parametrize("value", ["True", "False"])
def test_regions_and_scaler_follow_what_decided_whether_initialize_ran(given: str, value: str, tmp_path: Path) -> None:
    texts = migrated("True", given)
    assert "enabled=True" not in "".join(texts.values())
    assert "use_amp=True)" not in texts["generator.py"] + texts["criterion.py"]
    texts["train.py"] = texts["train.py"].replace("use_apex = True", f"use_apex = {value}")
    seen: Any = run_files(tmp_path, texts, "train.py")
    dtype = "torch.float16" if value == "True" else "torch.float32"
    assert seen == [dtype, dtype, value == "True"], json.dumps(texts)


def test_a_field_that_is_given_the_switch_is_read_and_none_is_made_beside_it() -> None:
    texts = migrated("True", "use_amp=use_apex")
    assert texts["criterion.py"].count("self.use_amp =") == 1
