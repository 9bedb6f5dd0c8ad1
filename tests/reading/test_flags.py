"""A switch as autocast takes it: a real bool."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.switch.bools import as_bool


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
        ('args.amp and args.amp != "O0"', 'bool(args.amp and args.amp != "O0")'),  # it is text
        ('args.fp16 and args.level != "O0"', 'args.fp16 and args.level != "O0"'),
        ("n and n != 0", "bool(n and n != 0)"),
    ],
)
def test_what_may_be_no_bool_is_made_one(text: str, written: str) -> None:
    assert as_bool(Module(Path("train.py"), ""), text) == written


OPTIONS = """import argparse

parser = argparse.ArgumentParser()
{}
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ('parser.add_argument("--amp", type=str, default="")', True),
        ('arg = parser.add_argument\narg("--amp", type=str, default="")', True),
        ('arg = parser.add_argument\narg("--amp", action="store_true")', False),
        ('arg = parser.parse_known_args\narg("--amp", type=str)', False),
        ('parser.add_argument("--amp", action="store_true")', False),
    ],
)
def test_an_option_is_one_under_whatever_name_and_in_whatever_file_it_is_declared(option: str, text: bool) -> None:
    parser = Module(Path("options.py"), OPTIONS.format(option))
    written = "bool(args.amp)" if text else "args.amp"
    assert as_bool(parser, "args.amp") == written
    assert as_bool(Module(Path("train.py"), ""), "args.amp", [parser]) == written
