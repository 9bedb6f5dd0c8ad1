"""Whether a value carries the loss scale already: what `scale_loss` gave, or something that was computed of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached, values_returned
from amp_migrate.reading.units.calls import Loss
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.sources import Sources, given_to

At = tuple[Module, ast.AST]
_APART = frozenset("detach item tolist numpy".split())  # of what gives these, no gradient passes


def may_carry_scale(project: Project, losses: Iterable[Loss], module: Module, expr: ast.expr) -> bool:
    """Whether some way to an expression goes through the name that a `scale_loss` gives its scaled loss: by other names,
    sums and calls, fields, parameters, and what functions return."""
    scaled = {loss.item.optional_vars for loss in losses if loss.item is not None}
    stores = project.once(Sources)

    def further(at: At) -> Iterator[At]:
        where, node = at
        for read in _read(node):
            if isinstance(read, ast.Attribute):
                for home, _, given in stores.stored(read.attr):
                    if given.value is not None:
                        yield home, given.value
            elif isinstance(read, ast.Call):
                for function in project.callees(where, read):
                    yield from ((function.module, value) for value in values_returned(function.node.body))
            else:
                yield from _given(project, where, read)

    start: At = (module, expr)
    return any(node in scaled for _, node in reached([start], further))


def _given(project: Project, module: Module, name: ast.Name) -> Iterator[At]:
    """What a variable may hold where it is read."""
    scope = module.scope_of(name).lookup(name.id)
    for bound in reaching(scope, name) if scope is not None else ():
        if isinstance(bound, ast.arg):
            function = project.functions.get(scope.node) if scope is not None else None
            if function is not None:
                for home, call in project.calls.get(function, ()):
                    yield from ((home, value) for to, value in project.arguments(function, call) if to == bound.arg)
            continue
        outer = module.parents.get(bound)
        if isinstance(outer, ast.withitem):
            yield module, bound
        elif isinstance(outer, ast.AugAssign):
            yield module, outer.value
        elif (value := given_to(module, bound).value) is not None:
            yield module, value


def _read(node: ast.AST) -> Iterator[ast.Name | ast.Attribute | ast.Call]:
    """The variables, fields and calls in an expression whose scale its value has: not what it is divided by."""
    left = [node]
    while left:
        at = left.pop()
        if isinstance(at, ast.Name):
            if isinstance(at.ctx, ast.Load):
                yield at
            continue
        if isinstance(at, ast.Attribute):
            yield at
        if isinstance(at, ast.Call):
            if isinstance(at.func, ast.Attribute) and at.func.attr in _APART:
                continue
            yield at
        by = at.right if isinstance(at, ast.BinOp) and isinstance(at.op, (ast.Div, ast.FloorDiv)) else None
        left += [c for c in ast.iter_child_nodes(at) if c is not by]
