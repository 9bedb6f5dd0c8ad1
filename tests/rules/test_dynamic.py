"""Apex imported by name."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_untouched, rewrite


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


@pytest.mark.parametrize(
    "program",
    [
        'import importlib\n\nfor name in ("apex", "torch"):\n    importlib.import_module(name)\n',
        'import importlib\n\nNAME = "apex"\nbackend = importlib.import_module(f"{NAME}.amp")\n',
        'def load(name):\n    return __import__(name)\n\nload("apex")\n',
    ],
)
def test_a_name_is_followed_to_the_import(program: str) -> None:
    check_manual(program, "AMP103")


def test_a_choice_called_apex_beside_other_imports_is_no_import() -> None:
    check_untouched(
        """
        import importlib

        def run(args):
            for module in args.modules:
                importlib.import_module(module)
            use_amp = None
            if args.amp_impl == "apex":
                use_amp = "apex"
            return use_amp
        """
    )


def test_what_apex_still_ships_is_a_note() -> None:
    result = rewrite(
        """
        from importlib import import_module

        def constructor(name):
            try:
                return getattr(import_module("torch.optim"), name)
            except AttributeError:
                return getattr(import_module("apex.optimizers"), name)
        """
    )
    (finding,) = result.findings
    assert (finding.code, finding.status, finding.line) == ("AMP103", "note", 7)
    assert result.after is None
