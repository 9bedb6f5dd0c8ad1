"""The key under which a checkpoint keeps the scaler's state: never the one that holds Apex's layout in old files."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.module import Module

_AMP = re.compile(r"(?<![A-Za-z])(amp|AMP|Amp)(?![a-z])")


def renamed(module: Module, key: ast.Constant) -> str:
    """A key with `scaler` for `amp`, in the quotes it had."""
    quote = module.source(key)[-1]
    name = str(key.value)
    new = _AMP.sub("scaler", name)
    if new == name:
        new = "scaler" if "scaler" not in name else "grad_scaler" if name != "grad_scaler" else "torch_scaler"
    return f"{quote}{new}{quote}"
