"""Conditions: which only ask whether Apex is installed, what is left of the others, and when they are bools."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amp_migrate.reading.conditions.conjunctions import conjunction
from amp_migrate.reading.conditions.tests import Availability, availability
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.bools import as_bool

GUARD = """
try:
    from apex import amp
    HAS_APEX = True
except ImportError:
    amp = None
    HAS_APEX = False
"""


def read(test: str, head: str = GUARD) -> tuple[Module, Availability, ast.expr]:
    module = Module(Path("m.py"), f"{head}\nif {test}:\n    pass\n")
    stmt = module.tree.body[-1]
    assert isinstance(stmt, ast.If)
    return module, availability(Project([module]), module), stmt.test


@pytest.mark.parametrize(
    ("test", "value"),
    [
        ("HAS_APEX", True),
        ("not HAS_APEX", False),
        ("HAS_APEX is True", True),
        ("amp is not None", True),
        ("amp is None", False),
        ("amp", True),
        ("is_apex_available()", True),
        ("HAS_APEX and amp is not None", True),
        ("HAS_APEX or fp16", True),
        ("not HAS_APEX and fp16", False),
        ("fp16", None),
        ("HAS_APEX and fp16", None),
        ("fp16 is None", None),
    ],
)
def test_tests_that_only_ask_whether_apex_is_there_have_a_value(test: str, value: bool | None) -> None:
    _, available, node = read(test)
    assert available.value(node) is value


@pytest.mark.parametrize(
    "head",
    [
        "HAS_APEX = False\ntry:\n    import apex\n    HAS_APEX = True\nexcept ImportError:\n    pass\n",
        "HAS_APEX = True\ntry:\n    import apex\nexcept ImportError:\n    HAS_APEX = False\n",
        "try:\n    import apex\nexcept ImportError:\n    HAS_APEX = False\nelse:\n    HAS_APEX = True\n",
        "try:\n    import apex\n    HAS_APEX: bool = True\nexcept ImportError:\n    HAS_APEX: bool = False\n",
    ],
)
def test_flags_are_read_from_every_form_of_guard(head: str) -> None:
    _, available, node = read("HAS_APEX", head)
    assert available.value(node) is True


def test_a_flag_that_says_the_opposite_is_false_where_apex_is_there() -> None:
    head = "try:\n    import apex\n    NO_APEX = False\nexcept ImportError:\n    NO_APEX = True\n"
    _, available, node = read("NO_APEX", head)
    assert available.value(node) is False


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        ("fp16", ["fp16"]),
        ("HAS_APEX and fp16", ["fp16"]),
        ("fp16 and HAS_APEX and deep", ["fp16", "deep"]),
        ("HAS_APEX", []),
        ("fp16 or bf16", ["(fp16 or bf16)"]),
    ],
)
def test_what_is_left_of_a_condition(test: str, parts: list[str]) -> None:
    module, available, node = read(test)
    assert conjunction(module, available, node) == parts


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        ("not fp16", ["fp16"]),
        ("fp16", ["not fp16"]),
        ("level == 'O0'", ["level != 'O0'"]),
        ("level is None", ["level is not None"]),
        ("n < 3", ["n >= 3"]),
        ("not fp16 or not HAS_APEX", ["fp16"]),
        ("a not in b", ["a in b"]),
    ],
)
def test_the_opposite_of_a_condition(test: str, parts: list[str]) -> None:
    module, available, node = read(test)
    assert conjunction(module, available, node, negate=True) == parts


OPTIONS = "p.add_argument('--count', type=int)\np.add_argument('--flag', action='store_true')\nunset = None\n"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("args.flag", "args.flag"),
        ("args.count", "bool(args.count)"),
        ("args.count > 0", "args.count > 0"),
        ("not args.count", "not args.count"),
        ("args.flag and level != 'O0'", "args.flag and level != 'O0'"),
        ("args.count and args.flag", "bool(args.count and args.flag)"),
        ("unset", "bool(unset)"),
        ("True", "True"),
    ],
)
def test_a_flag_that_may_be_no_bool_is_made_one(text: str, made: str) -> None:
    module = Module(Path("m.py"), OPTIONS)
    assert as_bool(Project([module]), module.root, text) == made
