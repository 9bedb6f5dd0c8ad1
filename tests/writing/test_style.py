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


RAISES = "try:\n    from apex import amp\nexcept ImportError:\n    raise ImportError('install apex')\n"
WITHOUT = "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n"
OTHER = (
    "try:\n    from apex.normalization import FusedLayerNorm\nexcept ImportError:\n    from torch.nn import LayerNorm\n"
)


@pytest.mark.parametrize(
    ("above", "guard", "wanted"),
    [
        ("import os\nimport numpy\n", RAISES, "import numpy"),
        ("import os\nimport numpy\n", OTHER, "import numpy"),
        ("import os\nimport numpy\n", WITHOUT, "os.environ['A'] = '1'"),  # where there may be no torch: in the function
        ("import os\nimport sys\n", RAISES, "import os"),
        ("import os\nfrom .models import build\n", RAISES, "from .models import build"),
        ("import numpy\nimport os\nimport torch.nn as nn\n", WITHOUT, "import torch.nn as nn"),
        ("from __future__ import annotations\n\nimport os\n\nimport numpy\n", "from apex import amp\n", "import numpy"),
        ("import os\nos.chdir('..')\nimport numpy\n", "from apex import amp\n", "import os"),
    ],
)
def test_a_file_that_no_run_loads_without_torch_imports_it_at_its_top(above: str, guard: str, wanted: str) -> None:
    module = Module(Path("m.py"), f"{above}{guard}\n\ndef main():\n    os.environ['A'] = '1'\n")
    _, before = Style(module).torch_name(module.scopes[module.tree.body[-1]])
    assert before is not None
    assert module.source(before) == wanted
