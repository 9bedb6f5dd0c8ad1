"""Conditions put into words: an attribute goes by its last name wherever it stands, and no dot is left before it."""

from __future__ import annotations

import pytest

from amp_migrate.audit.ways.formulas import flags_told, spelled


@pytest.mark.parametrize(
    ("atom", "told"),
    [
        (".fp16", "fp16"),
        ("'WORLD_SIZE' in .environ", "'WORLD_SIZE' in environ"),
        ("int(.environ['WORLD_SIZE']) > 1", "int(environ['WORLD_SIZE']) > 1"),
        (".rate > .5", "rate > .5"),
        ("args.fp16 and x.y", "args.fp16 and x.y"),
    ],
)
def test_no_dot_stands_before_a_name_that_lost_its_object(atom: str, told: str) -> None:
    assert flags_told({atom: True}) == [told]
    assert flags_told({atom: False}) == [f"not {told}"]
    assert spelled({atom: True}) == f" where {told}"


def test_what_is_not_held_is_said_so() -> None:
    assert spelled({"'a' in .args": False, ".level == 'O1'": False}) == " where 'a' not in args and level is not 'O1'"
