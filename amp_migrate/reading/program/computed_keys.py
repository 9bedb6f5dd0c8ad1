"""What is put into a mapping under a computed key, `nets["head%d" % i] = net`, is read there under a written one:
`nets["head0"](x)`, where no statement of the program writes that key."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import entries
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project


MOST = 20_000  # places that mappings filled under keys of one beginning are followed to: what lies beyond is not linked


def link(project: Project) -> None:
    """Let what mappings hold under computed keys flow to where they are read under written keys."""
    filled: dict[str, set[Slot]] = defaultdict(set)  # by what such a key begins with
    written: set[str] = set()
    reads: list[tuple[Module, ast.Subscript, str]] = []
    for module in project.modules:
        for node in module.of(ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and isinstance(node.ctx, ast.Load):
                reads.append((module, node, key))
            elif isinstance(key, str):
                written.add(key)
            elif isinstance(node.ctx, ast.Store) and (beginning := _beginning(node.slice)) is not None:
                slot = project.slot(module, node.value)
                filled[beginning].update(() if slot is None else (slot,))
    if not filled:
        return
    written.update(_displayed(project))
    asked = {key for _, _, key in reads} - written
    filled = {start: slots for start, slots in filled.items() if any(key.startswith(start) for key in asked)}
    reached = {beginning: set(islice(project.reached(slots), MOST)) for beginning, slots in filled.items()}
    for module, node, key in reads:
        slot = project.slot(module, node.value) if key in asked else None
        if slot is not None and any(key.startswith(start) and slot in found for start, found in reached.items()):
            project.flows[slot].add(Slot(slot, f"[{key}]"))


def _beginning(key: ast.expr) -> str | None:
    """How a text that is computed begins, as far as that is written; None for what is no text."""
    if isinstance(key, ast.JoinedStr):
        first = key.values[0] if key.values else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    if isinstance(key, ast.BinOp) and isinstance(key.left, ast.Constant) and isinstance(key.left.value, str):
        return key.left.value.partition("%")[0]
    if isinstance(key, ast.Call) and isinstance(key.func, ast.Attribute) and key.func.attr == "format":
        text = key.func.value
        return text.value.partition("{")[0] if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
    return "" if isinstance(key, ast.Name) else None


def _displayed(project: Project) -> Iterator[str]:
    """Keys that mappings are written with: `{"base": net}`, `dict(base=net)`, `nets.update(base=net)`."""
    for module in project.modules:
        for node in module.of(ast.Dict, ast.Call):
            yield from (key for key, _ in entries(node))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "update":
                    yield from (k.arg for k in node.keywords if k.arg is not None)
                elif node.func.attr == "setdefault" and node.args and isinstance(node.args[0], ast.Constant):
                    yield str(node.args[0].value)
