"""Where the variables of one module are assigned, called, handed on and gone through: by variable, so that a unit need not
look at what concerns others. A file with many units would be walked as often as it has units."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from amp_migrate.reading.program.definitions import Function, unpacks
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project

N = TypeVar("N")
PLACES = (ast.Name, ast.Attribute, ast.Subscript)


class Occurrences:
    """The variables of one module; see `Project.once`. Whatever is asked for comes in the order of `Module.nodes`."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.module = module

    # -- assignments ---------------------------------------------------------------------------------------------

    @cached_property
    def assignments(self) -> list[ast.Assign]:
        """Every assignment."""
        return self.module.of(ast.Assign)

    @cached_property
    def _assigned(self) -> dict[Slot, list[int]]:
        return _by_slot(self.assignments, lambda n: (self.project.slot(self.module, t) for t in n.targets))

    def assigned_to(self, slots: Collection[object]) -> list[ast.Assign]:
        """The assignments with one of some variables among their targets."""
        return [self.assignments[i] for i in _of_any(self._assigned, slots)]

    # -- calls ---------------------------------------------------------------------------------------------------

    @cached_property
    def _calls(self) -> dict[Slot, list[int]]:
        return _by_slot([call for call, _ in self.module.calls], self._called_or_given)

    @cached_property
    def _unlisted(self) -> list[int]:
        """Calls that hand on what is in a list or a mapping, or what a `partial` was given."""
        return [i for i, (call, _) in enumerate(self.module.calls) if call in self.project.through or unpacks(call)]

    def _called_or_given(self, call: ast.Call) -> Iterator[Slot | None]:
        values = [call.func, *call.args, *(k.value for k in call.keywords)]
        if isinstance(call.func, ast.Attribute):
            values.append(call.func.value)
        for value in values:
            if isinstance(value, PLACES):
                yield self.project.slot(self.module, value)
        if not isinstance(call.func, (ast.Name, ast.Attribute)):  # what that gives is called: `self.get_net()(x)`
            yield from self.project.sources(self.module, call.func)

    def calls_about(self, slots: Collection[object]) -> list[tuple[ast.Call, Scope]]:
        """The calls of one of some variables or of a method of it, those that it is handed to, and those whose arguments are
        not all written out."""
        return [self.module.calls[i] for i in sorted({*_of_any(self._calls, slots), *self._unlisted})]

    @cached_property
    def _receivers(self) -> dict[str, dict[Slot, list[int]]]:
        return {}

    def method_calls(self, name: str, slots: Collection[object]) -> list[tuple[ast.Call, ast.Attribute]]:
        """The calls of a method of one of some variables."""
        calls = self.module.method_calls.get(name, [])
        if name not in self._receivers:
            self._receivers[name] = _by_slot(calls, lambda c: self.received(c[1].value))
        return [calls[i] for i in _of_any(self._receivers[name], slots)]

    def received(self, receiver: ast.expr) -> Iterable[Slot | None]:
        """Where what has a method called may live: of a call (`self.get_optimizer().step()`), what that gives."""
        if isinstance(receiver, ast.Call):
            return self.project.sources(self.module, receiver)
        return [self.project.slot(self.module, receiver)]

    # -- functions -----------------------------------------------------------------------------------------------

    @cached_property
    def uncalled(self) -> dict[str, list[Slot]]:
        """The parameters of functions that nothing in sight calls, by name."""
        found: dict[str, list[Slot]] = {}
        for function in self.project.functions_of[self.module]:
            if not self.project.calls.get(function):
                for name in function.scope.params:
                    found.setdefault(name, []).append(Slot(function.scope, name))
        return found

    @cached_property
    def variables(self) -> dict[str, list[Scope]]:
        """The functions, and the module, that have a variable of a name which is no parameter."""
        found: dict[str, list[Scope]] = {}
        for scope in self.module.scopes.values():
            for name in scope.bindings if not scope.is_class else ():
                if name not in scope.params:
                    found.setdefault(name, []).append(scope)
        return found

    @cached_property
    def called_from(self) -> dict[Scope, list[Function]]:
        """The functions that are called from one scope only, by that scope of this module."""
        found: dict[Scope, list[Function]] = {}
        resolved = self.project.resolved
        for function in dict.fromkeys(f for call, _ in self.module.calls for f in resolved.get(call, ())):
            calls = self.project.calls[function]
            scopes = {module.scope_of(call) for module, call in calls}
            if len(scopes) == 1 and all(module is self.module for module, _ in calls):
                found.setdefault(scopes.pop(), []).append(function)
        return found


def _by_slot(items: Iterable[N], slots: Callable[[N], Iterable[Slot | None]]) -> dict[Slot, list[int]]:
    """The numbers of the items that have to do with each variable."""
    found: dict[Slot, list[int]] = {}
    for index, item in enumerate(items):
        for slot in slots(item):
            if slot is not None:
                found.setdefault(slot, []).append(index)
    return found


def _of_any(by_slot: Mapping[Slot, list[int]], slots: Collection[object]) -> list[int]:
    """The numbers of the items that have to do with one of some variables, in order."""
    if len(slots) > len(by_slot):
        chosen = [numbers for slot, numbers in by_slot.items() if slot in slots]
    else:
        chosen = [by_slot[slot] for slot in slots if isinstance(slot, Slot) and slot in by_slot]
    return sorted({number for numbers in chosen for number in numbers})
