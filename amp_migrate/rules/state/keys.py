"""The key under which a checkpoint keeps the scaler's state: never the one that holds Apex's layout in old files, nor one
under which the program keeps something else."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.naming import is_taken
from amp_migrate.rules.migration import Migration

_AMP = re.compile(r"(?<![A-Za-z])(amp|AMP|Amp)(?![a-z])")


def renamed(m: Migration, module: Module, key: ast.Constant) -> str:
    """A key with `scaler` for `amp`, in the quotes it had; the same one wherever the unit saves or loads."""
    quote = module.source(key)[-1]
    return f"{quote}{new_key(m, str(key.value))}{quote}"


def new_key(m: Migration, name: str) -> str:
    """What the key is called under which Apex's state was kept as `name`."""
    stems = ("scaler", "grad_scaler", "amp_scaler", "torch_scaler", "native_amp_scaler")
    keys = [new for stem in stems if (new := _AMP.sub(stem, name)) != name] or [s for s in stems if s not in name]
    return next((k for k in keys if not is_taken(m.unit, k)), keys[-1])
