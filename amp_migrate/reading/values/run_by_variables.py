"""Functions of the program that a variable holds where it is called: `train(model, eval_fn=evaluate)`, and there `eval_fn(model)`.

What calls such a function is not all in sight, so that nothing may be handed to it anew; what it is given is seen.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import islice

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.occurrences import PLACES, Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources

MOST = 50_000  # variables that are looked at for those to which functions come


class Variables:
    """Which functions of the program the variables that are called may hold; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._held: dict[Slot, list[Function]] = {}

    def calls(self, slots: Collection[Slot]) -> Iterator[tuple[Module, ast.Call, Slot]]:
        """The calls of variables about some variables, and which is called."""
        for module in self.project.modules if slots else ():
            for call, _ in self.project.once(Occurrences, module).calls_about(slots):
                called = None if self.project.resolved.get(call) else self.project.slot(module, call.func)
                if called is not None:
                    yield module, call, called

    def held(self, called: Slot) -> list[Function]:
        """The functions that a variable may hold: those that are named where it comes from."""
        if called not in self._held:
            names = self.project.once(_named)
            holding = self.project.once(_hold_functions)  # of most it is known at once that they hold none
            may = len(holding) >= MOST or called in holding
            came = (s for s in self.project.reached_from({called}) if s != called) if may else ()
            self._held[called] = [function for slot in came for function in names.get(slot, ())]
        return self._held[called]


def _named(project: Project) -> dict[Slot, list[Function]]:
    """The functions that are values somewhere, by the variable that they are defined as."""
    found: dict[Slot, list[Function]] = {}
    for function in project.functions.values():
        scope = function.scope.parent
        if scope is not None and not scope.is_class and project.once(Sources).is_value(function):
            found.setdefault(Slot(scope, function.name), []).append(function)
    return found


def _hold_functions(project: Project) -> set[Slot]:
    """The variables to which some function that is a value comes; of more than can be looked at, some."""
    return set(islice(project.reached(project.once(_named)), MOST))


def values_of(project: Project, parameter: Slot) -> list[Slot | None]:
    """Where what a parameter is given by such calls lives; None: in no variable."""
    function = project.functions.get(parameter.holder.node) if isinstance(parameter.holder, Scope) else None
    if function is None:
        return []
    return [
        project.slot(module, value) if isinstance(value, PLACES) else None
        for module, call in calls_of(project, function)
        for name, value in project.arguments(function, call)
        if name == parameter.name
    ]


def calls_of(project: Project, function: Function) -> list[tuple[Module, ast.Call]]:
    """The calls in sight of variables that may hold a function."""
    if function.scope.parent is None:
        return []
    own = Slot(function.scope.parent, function.name)
    if function not in project.once(_named).get(own, ()):
        return []
    slots = project.reaches({own}) - {own}
    return [(module, call) for module, call, called in project.once(Variables).calls(slots) if called in slots]


def calls_in_sight(project: Project, function: Function) -> list[tuple[Module, ast.Call]]:
    """All calls of a function, by its name and by variables that hold it; none where what it is handed to is not seen to call
    it."""
    calls = project.calls.get(function, [])
    if not project.once(Sources).is_value(function):
        return calls
    held = calls_of(project, function)
    return [*calls, *held] if held else []


def given(project: Project, slots: set[Slot]) -> set[Slot]:
    """The parameters of such functions that are given what lives in some variables, and where that goes from there."""
    variables = project.once(Variables)
    found: set[Slot] = set()
    while True:
        known = slots | found
        more = {
            Slot(function.scope, name)
            for module, call, called in variables.calls(known)
            for function in variables.held(called)
            for name, value in project.arguments(function, call)
            if isinstance(value, PLACES) and project.slot(module, value) in known
        } - known
        if not more:
            return found
        found |= project.reaches(more)
