"""What a list or tuple holds in each of its places, where a variable that holds it is taken apart."""

from __future__ import annotations

import ast
from collections import defaultdict

from amp_migrate.reading.program.callees import Callees
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module

Display = tuple[Module, "list[ast.expr] | ast.Call"]
CHANGING = frozenset("append add extend insert remove pop clear sort reverse".split())


class WrittenOut:
    """The lists and tuples that variables hold, where all that they are given is written out: `tools = [optimizer, scheduler]`,
    which functions are handed and take apart. Known once all assignments and calls are read."""

    def __init__(self, names: Callees) -> None:
        self._names = names
        self._given: dict[Slot, list[tuple[Module, ast.expr]]] = defaultdict(list)
        self._otherwise: set[Slot] = set()

    def given(self, slot: Slot, module: Module, value: ast.expr) -> None:
        """A variable is given a value; an entry of one changes what that holds."""
        self._given[slot].append((module, value))
        if isinstance(slot.holder, Slot):
            self._otherwise.add(slot.holder)

    def changed(self, slot: Slot) -> None:
        """A variable holds something else besides, or what it holds is changed."""
        self._otherwise.add(slot)

    def called(self, module: Module, call: ast.Call) -> None:
        """A call may change a list."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in CHANGING:
            if (slot := self._names.slot(module, call.func.value)) is not None:
                self._otherwise.add(slot)

    def of(self, module: Module, value: ast.expr, places: int) -> list[Display]:
        """All that a variable may hold which is taken apart into so many places: what is written out, and calls of functions
        of the program. Empty where some of it is neither, or has another length."""
        found: list[Display] = []
        seen: set[Slot] = set()
        waiting = [(module, value)]
        while waiting:
            where, node = waiting.pop()
            if isinstance(node, (ast.List, ast.Tuple)):
                if len(node.elts) != places or any(isinstance(e, ast.Starred) for e in node.elts):
                    return []
                found.append((where, node.elts))
            elif isinstance(node, ast.Call) and self._returns(where, node):
                found.append((where, node))
            elif isinstance(node, (ast.Name, ast.Attribute)):
                slot = self._names.slot(where, node)
                if slot is None or slot in self._otherwise or not self._given.get(slot):
                    return []
                if slot not in seen:
                    seen.add(slot)
                    waiting += [(m, v) for m, given in self._given[slot] for v in alternatives(given)]
            elif not is_none(node):
                return []
        return found

    def _returns(self, module: Module, call: ast.Call) -> bool:
        """Whether only functions of the program are called: not what makes an object."""
        functions = self._names.callees(module, call)
        return bool(functions) and all(f.name != "__init__" for f in functions)
