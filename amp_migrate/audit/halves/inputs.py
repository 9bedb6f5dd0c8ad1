"""Under which keys a program's data come: of a dictionary that holds them beside what a model gave, these are no model's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function
from amp_migrate.audit.program.program import Program

LOADED = re.compile(r"load|dataset", re.IGNORECASE)
BATCHING = re.compile(r"collate", re.IGNORECASE)


class Inputs:
    """The keys of what data sets and loaders of one state of a program give."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def keys(self) -> frozenset[str]:
        found: set[str] = set()
        for module in self.program.modules.values():
            for function in module.functions:
                if self._makes_items(function):
                    found.update(_written(function.node))
            found.update(_read_in_turn(module.tree))
        return frozenset(found)

    def _makes_items(self, function: Function) -> bool:
        """Whether a function is of a data set, or puts its items together."""
        owner = function.owner
        of_data = owner is not None and "__getitem__" in owner.methods and not self.program.is_network(owner)
        return of_data or bool(BATCHING.search(function.name))


def _written(node: ast.AST) -> Iterator[str]:
    for mapping in syntax.every(node, ast.Dict):
        yield from (k.value for k in mapping.keys if isinstance(k, ast.Constant) and isinstance(k.value, str))
    yield from (key for at in syntax.every(node, ast.Subscript) if isinstance(at.ctx, ast.Store) and (key := _key(at)))


def _read_in_turn(node: ast.AST) -> Iterator[str]:
    """What is read of the variable of a loop over a loader: `for batch in loader: model(batch["image"])`."""
    for loop in syntax.every(node, ast.For):
        if not LOADED.search(syntax.text(loop.iter)):
            continue
        for name in {n.id for n in syntax.every(loop.target, ast.Name)}:
            until = min(_changes(loop, name), default=None)
            for at in syntax.every(loop, ast.Subscript):
                own = isinstance(at.value, ast.Name) and at.value.id == name and isinstance(at.ctx, ast.Load)
                if own and (until is None or at.lineno < until) and (key := _key(at)):
                    yield key


def _changes(loop: ast.For, name: str) -> Iterator[int]:
    """The lines in which something is put into the variable of a loop, or it is given something else."""
    for node in (n for stmt in loop.body for n in syntax.walk(stmt)):
        on: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            on = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            on = node.value
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            on = node
        if isinstance(on, ast.Name) and on.id == name:
            yield on.lineno


def _key(at: ast.Subscript) -> str | None:
    key = at.slice.value if isinstance(at.slice, ast.Constant) else None
    return key if isinstance(key, str) else None
