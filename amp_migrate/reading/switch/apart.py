"""Pairs that are written apart: `if fp16: (Apex)` and `if not fp16: (plain)` one after the other, or `if fp16: (Apex); return`
above the plain side."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, names_stored, walk
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.units.held import stores


def apart_sides(
    project: Project, module: Module, places: Iterable[ast.AST]
) -> Iterator[tuple[ast.If, Sequence[ast.stmt]]]:
    """The `if`s without `else` that hold one of some places, or stand beside it, each with the statements that run in its stead:
    those of the opposite `if` below it, or all that follows where it leaves the function."""
    found: dict[ast.If, Sequence[ast.stmt]] = {}
    for place in places:
        stmt = module.statement(place)
        while stmt not in module.scopes:
            block = module.block(stmt)
            at = block.index(stmt)
            leaving = next((i for i in range(at - 1, -1, -1) if _leaves(block[i])), at)
            for index in {at, max(at - 1, 0), leaving}:
                node = block[index]
                if isinstance(node, ast.If) and not node.orelse and node is not block[-1]:
                    if (other := _other_side(project, module, node, block[index + 1 :])) is not None:
                        found.setdefault(node, other)
            around = next((a for a in module.ancestors(stmt) if isinstance(a, ast.stmt)), None)
            if around is None:
                break
            stmt = around
    yield from found.items()


def _leaves(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Return)


def _other_side(project: Project, module: Module, node: ast.If, rest: list[ast.stmt]) -> Sequence[ast.stmt] | None:
    if _leaves(node):
        ends = isinstance(module.parents[node], FUNCTION_NODES) or isinstance(rest[-1], ast.Return)
        return rest if ends else None
    below = rest[0]
    if not isinstance(below, ast.If) or below.orelse or not opposite(ast.unparse(node.test), ast.unparse(below.test)):
        return None
    asked = identifiers(node.test) | {n.attr for n in walk(node.test) if isinstance(n, ast.Attribute)}
    stored = {
        n.attr for s in node.body for n in walk(s) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    stored |= {name for s in node.body for name in names_stored(s)}
    changed = asked & stored or _changed_by_calls(project, node, asked)
    return below.body if pure(node.test) and not changed else None


def _changed_by_calls(project: Project, node: ast.If, asked: set[str]) -> bool:
    """Whether a branch calls functions of the program, of which some give what its test asks another value."""
    if not any(project.resolved.get(call) for s in node.body for call in walk(s) if isinstance(call, ast.Call)):
        return False
    declared = (stmt for m in project.modules for stmt in m.of(ast.Global, ast.Nonlocal))
    if any(name in asked for stmt in declared for name in getattr(stmt, "names", ())):
        return True
    stored = (pair for name in asked for pair in stores(project, name) if isinstance(pair[1].ctx, ast.Store))
    functions = (project.function_of(module, at) for module, at in stored)
    return any(function is not None and function.name != "__init__" for function in functions)


def falling(side: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """A side without the bare `return` at its end."""
    last = side[-1] if side else None
    return side[:-1] if isinstance(last, ast.Return) and last.value is None else side


def fold_apart(
    module: Module, folds: Folds, node: ast.If, other: Sequence[ast.stmt], *, apex_in_body: bool
) -> list[ast.If]:
    """Fold such a pair: the plain side goes, and the Apex one stands where it is. The `if`s that it is made of."""
    holder = module.parents[other[0]]
    second = [holder] if isinstance(holder, ast.If) and holder is not module.parents[node] else []
    gone: list[ast.stmt] = [*(second or other)] if apex_in_body else [node]
    ends = isinstance(module.parents[node], FUNCTION_NODES)  # elsewhere the `return` still leaves the function
    if apex_in_body and not second and ends and len(falling(node.body)) < len(node.body):
        gone.append(node.body[-1])
    for stays in [node] if apex_in_body else second:
        folds.splices[stays] = "body"
    folds.apart += gone
    folds.deleted.update(gone)
    return [node, *second]
