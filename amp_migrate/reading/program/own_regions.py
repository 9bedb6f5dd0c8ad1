"""Regions of native autocast that a program has already: which are always on, and what switches the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import WITH_NODES, Module


def casts_itself(module: Module, stmt: ast.AST) -> bool:
    """`with torch.autocast("cuda"):`, always on: what stands in it ran under native autocast already."""
    return any(
        not any(k.arg in ("enabled", None) for k in call.keywords) and len(call.args) <= first
        for call, first in _autocasts(module, stmt)
    )


@dataclass(frozen=True)
class OwnRegion:
    """A `with torch.autocast("cuda", enabled=switch):` of the program's own."""

    call: ast.Call
    switch: ast.expr | None  # None where it cannot be told
    dtype: ast.expr | None


def own_switch(module: Module, stmt: ast.AST) -> OwnRegion | None:
    """The region that a statement is, if it is one under a switch."""
    for call, first in _autocasts(module, stmt):
        given = {k.arg: k.value for k in call.keywords}
        if given.keys() & {"enabled", None} or len(call.args) > first:
            order = ["enabled", "dtype"] if first == 0 else ["device_type", "dtype", "enabled"]
            places = dict(zip(order, call.args, strict=False)) | given
            return OwnRegion(call, places.get("enabled"), places.get("dtype"))
    return None


def _autocasts(module: Module, stmt: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    """The autocast calls of a with statement, and where `enabled` or what comes before it could stand by place."""
    for item in stmt.items if isinstance(stmt, WITH_NODES) else ():
        call = item.context_expr
        name = module.qualify(call.func) or "" if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and name.startswith("torch.") and name.endswith(".autocast"):
            yield call, 0 if name.startswith(("torch.cuda.", "torch.cpu.")) else 1
