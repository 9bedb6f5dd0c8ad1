from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.names import exact_name, native_name

ADAMW = "torch.optim.AdamW"


@pytest.mark.parametrize(
    ("imports", "wanted"),
    [
        ("import torch", "torch.optim.AdamW"),
        ("import torch as t", "t.optim.AdamW"),
        ("import torch.nn", "torch.optim.AdamW"),
        ("import torch.optim as optim", "optim.AdamW"),
        ("import torch\nfrom torch import optim", "optim.AdamW"),
        ("import torch\nfrom torch.optim import AdamW", "AdamW"),
        ("import torch\nfrom torch.optim import AdamW as W", "W"),
        ("import numpy", None),
        ("import torchvision", None),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", None),
        ("if FAST:\n    import torch", None),
        ("import torch\ntorch = wrap(torch)", None),
        ("def g():\n    import torch", None),
    ],
)
def test_the_shortest_name_that_always_holds(imports: str, wanted: str | None) -> None:
    module = Module(Path("x.py"), imports + "\n")
    assert native_name(module, ADAMW, module.root) == wanted


def test_module_level_code_sees_the_imports_above_it() -> None:
    module = Module(Path("x.py"), "a = 1\nimport torch\n\ndef f():\n    pass\n")
    assert native_name(module, ADAMW, module.root, before=1) is None
    assert native_name(module, ADAMW, module.root, before=3) == "torch.optim.AdamW"
    function = next(s for s in module.scopes.values() if s.is_function)
    assert native_name(module, ADAMW, function, before=1) == "torch.optim.AdamW"


def test_a_parameter_hides_the_import() -> None:
    module = Module(Path("x.py"), "import torch\n\ndef f(torch):\n    pass\n")
    function = next(s for s in module.scopes.values() if s.is_function)
    assert native_name(module, ADAMW, function) is None


def test_the_exact_name() -> None:
    module = Module(Path("x.py"), "import torch\nfrom torch.optim import SGD as Sgd\n")
    assert exact_name(module, "torch.optim.SGD", module.root) == "Sgd"
    assert exact_name(module, ADAMW, module.root) is None
