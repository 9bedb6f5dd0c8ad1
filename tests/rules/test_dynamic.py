"""Apex imported by name."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_untouched


@pytest.mark.parametrize("name", ["apex", "apex.amp"])
def test_a_module_imported_by_name_is_reported(name: str) -> None:
    check_manual(f'import importlib\n\nbackend = importlib.import_module("{name}")\n', "AMP103")


def test_a_name_that_is_a_default_somewhere_is_reported_too() -> None:
    check_manual(
        """
        import importlib

        def load(name="apex.amp"):
            return importlib.import_module(name)
        """,
        "AMP103",
    )


def test_the_word_in_a_sentence_or_without_an_import_is_left_alone() -> None:
    check_untouched('import importlib\n\nprint("apex of the hill", importlib.import_module("json"))\n')
    check_untouched('mountain = "apex"\n')
