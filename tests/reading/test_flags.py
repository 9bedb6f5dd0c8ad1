"""A switch as autocast takes it: a real bool."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.switch.flags import as_bool


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('len(level) and level != "O0"', 'bool(len(level) and level != "O0")'),
        ('config.get("fp16")', 'bool(config.get("fp16"))'),
        ('config.get("fp16", False)', 'config.get("fp16", False)'),
        ('config.get("fp16", 0)', 'bool(config.get("fp16", 0))'),
        ('os.getenv("FP16")', 'bool(os.getenv("FP16"))'),
        ("is_on()", "is_on()"),
        ("args.fp16", "args.fp16"),
    ],
)
def test_what_may_be_no_bool_is_made_one(text: str, written: str) -> None:
    assert as_bool(Module(Path("train.py"), ""), text) == written
