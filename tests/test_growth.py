"""Work grows with the program, not with its square: counted in calls of Python functions, which no busy machine changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile

HEAD = "import torch\nfrom apex import amp\n"
TRAINING = """

def train_{0}(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
"""
HELPER = "\n\ndef helper_{0}(x, y=None):\n    if y is None:\n        y = x + {0}\n    return [v * 2 for v in y]\n"


def calls(files: dict[str, str]) -> int:
    """How many functions are called to migrate a program."""
    sources = [SourceFile(Path(path), path, text) for path, text in files.items()]
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(counted)
    try:
        results = migrate(Program(sources, root=Path()), Options())
    finally:
        sys.setprofile(None)
        gc.enable()
    assert all(result.status == "migrated" for result in results)
    return count


def functions(number: int) -> dict[str, str]:
    return {"train.py": HEAD + "".join(TRAINING.format(i) for i in range(number))}


def lines(number: int) -> dict[str, str]:
    return {"train.py": HEAD + TRAINING.format(0) + "".join(HELPER.format(i) for i in range(20 * number))}


def programs(number: int) -> dict[str, str]:
    return {f"train_{i}.py": HEAD + TRAINING.format(i) for i in range(number)}


@pytest.mark.parametrize("make", [functions, lines, programs])
def test_twice_the_program_is_little_more_than_twice_the_work(make: Callable[[int], dict[str, str]]) -> None:
    calls(make(1))  # what is found out once for the process
    few, some, many = (calls(make(number)) for number in (4, 8, 16))
    assert many - some < 2.5 * (some - few)
