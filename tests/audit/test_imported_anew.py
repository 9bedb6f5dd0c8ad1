"""A name that several imports bind: below one that every run comes to, it is no other's."""

from __future__ import annotations

import pytest

from amp_migrate.audit.program.program import Program


@pytest.mark.parametrize(
    ("imports", "meant"),
    [
        ("from apex import amp\nimport torch.cuda.amp as amp", "torch.cuda.amp"),
        ("from apex import amp\nfrom torch.cuda import amp", "torch.cuda.amp"),
        ("from torch.cuda import amp\nfrom apex import amp", "apex.amp"),
        ("try:\n    from apex import amp\nexcept ImportError:\n    from torch.cuda import amp", "apex.amp"),
        (
            "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\nfrom torch.cuda import amp",
            "torch.cuda.amp",
        ),
    ],
)
def test_which_import_a_name_means(imports: str, meant: str) -> None:
    program = Program({"train.py": f"{imports}\n\ndef train():\n    return amp\n"})
    module = program.modules["train.py"]
    (function,) = module.functions
    value = function.node.body[0].value
    assert program.dotted(module.scope_of(value), value) == meant


EITHER = """\
import os

if os.environ.get("NATIVE"):
    from torch.cuda import amp
else:
    from apex import amp


def train():
    return ASKED
"""
TRIED = """\
try:
    from apex import amp
except ImportError:
    from torch.cuda import amp


def train():
    return ASKED
"""


@pytest.mark.parametrize("text", [EITHER, TRIED])
@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("amp.initialize", "apex.amp.initialize"),
        ("amp.autocast", "torch.cuda.amp.autocast"),
        ("amp.GradScaler", "torch.cuda.amp.GradScaler"),
    ],
)
def test_which_of_two_guarded_imports_has_what_is_asked_of_it(text: str, asked: str, meant: str) -> None:
    program = Program({"train.py": text.replace("ASKED", asked)})
    module = program.modules["train.py"]
    (function,) = module.functions
    value = function.node.body[0].value
    assert program.dotted(module.scope_of(value), value) == meant
