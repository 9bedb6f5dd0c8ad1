"""Whole numbers among what a call returns: `return loss, logits.argmax(1)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.returned import Returns
from amp_migrate.reading.values.table import Value

INDICES = frozenset("argmax argmin argsort nonzero long int bool multinomial randint bincount arange unique".split())
PAIRS = frozenset("max min topk sort kthvalue mode median cummax cummin".split())  # values, and where they stand
# What keeps whole numbers whole.
KEEPS = frozenset(
    "cpu cuda detach clone view reshape squeeze unsqueeze flatten contiguous permute transpose expand repeat data t".split()
)


class Certain:
    """Asks whether something certainly holds of a value, whatever way it comes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.returns = project.once(Returns)
        self.values = project.once(Values)
        self._known: dict[ast.AST, bool] = {}

    def of(self, module: Module, node: ast.expr) -> bool:
        """Whether it does of an expression: not where that hangs on itself."""
        if node not in self._known:
            self._known[node] = False
            self._known[node] = self._holds(module, node)
        return self._known[node]

    def _holds(self, module: Module, node: ast.expr) -> bool:
        found = self.values.may_be(module, node)
        return bool(found) and all(map(self._told, found))

    def _told(self, value: Value) -> bool:
        raise NotImplementedError


class Whole(Certain):
    """Asks which parts of what is returned certainly hold whole numbers."""

    def part(self, module: Module, call: ast.Call, index: int, length: int, forwards: Iterable[Function] = ()) -> bool:
        """Whether the part at an index of the `length` parts that a call returns holds whole numbers, in every function that
        it may run and every one of their returns of so many parts. `forwards`: what it runs where that is not in sight."""
        answers = [
            self.of(home, value.elts[index])
            for home, value in self.returns.given_back(module, call, forwards)
            if isinstance(value, ast.Tuple) and len(value.elts) == length
        ]
        return bool(answers) and all(answers)

    def single(self, module: Module, call: ast.Call) -> bool:
        """Whether the one thing that a call returns holds whole numbers: `return self.head(x).argmax(1)`."""
        return any(self.of(home, value) for home, value in self.returns.given_back(module, call))

    def _holds(self, module: Module, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute):
            return super()._holds(module, node)
        pair = node.attr == "indices" and isinstance(node.value, ast.Call) and called_name(node.value) in PAIRS
        return pair or (node.attr in KEEPS and self.of(module, node.value))

    def _told(self, value: Value) -> bool:
        node = value.node
        if value.kind not in ("call", "item") or not isinstance(node, ast.Call):
            return False
        if value.kind == "item" and called_name(node) in PAIRS:
            return value.name == "1"
        kept = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS else None
        return called_name(node) in INDICES or (kept is not None and self.of(value.module, kept))


def parts(target: ast.expr) -> Iterator[tuple[str, int, int]]:
    """The names that a target unpacks into, each with its index and the number of parts."""
    if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Name):
                yield element.id, index, len(target.elts)
