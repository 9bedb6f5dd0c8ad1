"""Emitted code follows the habits of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.style import Style


def style(text: str) -> Style:
    return Style(Module(Path("m.py"), text))


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("a = 'x'\nb = 'y'\nc = \"z\"\n", "'"),
        ('a = "x"\n', '"'),
        ("a = 1\n", '"'),
        ("'''docstring'''\na = \"x\"\n", '"'),
        ("a = 'x'\nb = \"y\"\n", '"'),
    ],
)
def test_the_quote_is_the_one_most_strings_have(text: str, quote: str) -> None:
    assert style(text).quote == quote


@pytest.mark.parametrize(
    ("text", "indent"),
    [
        ("if a:\n    b\n", "    "),
        ("if a:\n  b\n", "  "),
        ("if a:\n\tb\n", "\t"),
        ("if a: b\nclass C:\n   d = 1\n", "   "),
        ("a = 1\n", "    "),
    ],
)
def test_the_indentation_is_that_of_its_blocks(text: str, indent: str) -> None:
    assert style(text).indent == indent


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch\n", "torch"),
        ("import torch as th\n", "th"),
        ("import torch.nn as nn\nimport torch\n", "torch"),
        ("import torch.nn\n", "torch"),
    ],
)
def test_torch_is_named_as_the_file_imports_it(text: str, name: str) -> None:
    found, missing = style(text).torch_name(Module(Path("m.py"), text).root)
    assert (found, missing) == (name, None)


def test_torch_is_imported_beside_its_parts_where_only_they_are() -> None:
    text = '"""Doc."""\nfrom __future__ import annotations\nimport os\nfrom torch import nn\n'
    module = Module(Path("m.py"), text)
    found, before = Style(module).torch_name(module.root)
    assert found == "torch"
    assert before is module.tree.body[3]
