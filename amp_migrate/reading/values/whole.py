"""Whole numbers among what a call returns: `return loss, logits.argmax(1)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.returned import Returns

INDICES = frozenset("argmax argmin argsort nonzero long int bool multinomial randint bincount arange unique".split())
PAIRS = frozenset("max min topk sort kthvalue mode median cummax cummin".split())  # values, and where they stand
# What keeps whole numbers whole.
KEEPS = frozenset(
    "cpu cuda detach clone view reshape squeeze unsqueeze flatten contiguous permute transpose expand repeat data t".split()
)
DEPTH = 5  # assignments followed


class Whole:
    """Asks which parts of what is returned certainly hold whole numbers."""

    def __init__(self, returns: Returns) -> None:
        self.returns = returns

    def part(self, module: Module, call: ast.Call, index: int, length: int, forwards: Iterable[Function] = ()) -> bool:
        """Whether the part at an index of the `length` parts that a call returns holds whole numbers, in every function that
        it may run and every one of their returns of so many parts. `forwards`: what it runs where that is not in sight."""
        answers = [
            whole(function, node.value.elts[index], DEPTH)
            for function in list(self.returns.functions(module, call)) or forwards
            for node in own_nodes(function.node.body)
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == length
        ]
        return bool(answers) and all(answers)

    def single(self, module: Module, call: ast.Call) -> bool:
        """Whether the one thing that a call returns holds whole numbers: `return self.head(x).argmax(1)`."""
        return any(
            whole(function, node.value)
            for function in self.returns.functions(module, call)
            for node in own_nodes(function.node.body)
            if isinstance(node, ast.Return) and node.value is not None
        )


def whole(function: Function, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether an expression in a function certainly holds whole numbers, of whatever it computes itself."""
    if depth == 0:
        return False
    if isinstance(node, ast.Subscript):
        made = node.value
        if isinstance(made, ast.Call) and _last(made) in PAIRS:
            return isinstance(node.slice, ast.Constant) and node.slice.value == 1
        return whole(function, made, depth - 1)
    if isinstance(node, ast.Attribute):
        made = node.value
        if node.attr == "indices" and isinstance(made, ast.Call):
            return _last(made) in PAIRS
        return node.attr in KEEPS and whole(function, made, depth - 1)
    if isinstance(node, ast.Call):
        if _last(node) in INDICES:
            return True
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in KEEPS
            and whole(function, node.func.value, depth - 1)
        )
    if isinstance(node, ast.Name):
        given = [_given(function, binding, depth - 1) for binding in function.scope.bindings.get(node.id, ())]
        return bool(given) and all(given)
    return False


def _given(function: Function, binding: ast.AST, depth: int) -> bool:
    """Whether a name is bound to whole numbers here."""
    stmt = function.module.statement(binding)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target = stmt.targets[0]
    if target is binding:
        return whole(function, stmt.value, depth)
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or target.elts[1] is not binding:
        return False
    return isinstance(stmt.value, ast.Call) and _last(stmt.value) in PAIRS


def _last(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def parts(target: ast.expr) -> Iterator[tuple[str, int, int]]:
    """The names that a target unpacks into, each with its index and the number of parts."""
    if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Name):
                yield element.id, index, len(target.elts)
