"""The statements by which a program comes to a place in a function: the calls that lead there."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import Function, unpacks
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project

Places = dict[Scope, list[ast.stmt]]


class Leading:
    """The statements with calls that lead to a place: steps and losses of one function have them in common."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[tuple[Function, frozenset[tuple[str, bool]], int], Places] = {}

    def to(self, module: Module, node: ast.AST, depth: int = 3) -> Places:
        function = self.project.function_of(module, node)
        if function is None or not depth:
            return {}
        asked = _asked_of(module, node, function)
        found = self._known.get((function, asked, depth))
        if found is None:
            found = {}
            for other, call in self.project.calls.get(function, ()):
                if self._left_out(function, call, asked):
                    continue
                found.setdefault(other.scope_of(call), []).append(other.statement(call))
                for scope, places in self.to(other, call, depth - 1).items():
                    found.setdefault(scope, []).extend(places)
            self._known[function, asked, depth] = found
        return found

    def _left_out(self, function: Function, call: ast.Call, asked: frozenset[tuple[str, bool]]) -> bool:
        """Whether a call says by a literal, or by leaving out what has one for a default, that it does not come to a place:
        `forward(x, backprop=False)`."""
        if not asked or unpacks(call):
            return False
        given = dict(self.project.arguments(function, call))
        values = ((given.get(name, function.defaults.get(name)), wanted) for name, wanted in asked)
        return any(isinstance(v, ast.Constant) and bool(v.value) is not wanted for v, wanted in values)


def _asked_of(module: Module, node: ast.AST, function: Function) -> frozenset[tuple[str, bool]]:
    """What the tests around a place ask of parameters that its function gives no other value, and how they come out there."""
    found: set[tuple[str, bool]] = set()
    for around, holds, _ in branches_around(module, node, (function.node,)):
        if not isinstance(around, ast.If):
            continue
        test = around.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.Name) and len(function.scope.bindings.get(test.id, ())) == 1:
            found |= {(test.id, holds)} if test.id in function.scope.params else set()
    return frozenset(found)
