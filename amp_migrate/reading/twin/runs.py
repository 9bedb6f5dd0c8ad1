"""What a run that asks for Apex comes to, and what one of the native side does, whose way it takes now."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.twin.branches import choice_of, flag_asked, value_chosen
from amp_migrate.reading.twin.flags import native_flags
from amp_migrate.reading.twin.sides import NativeTwin


class Runs:
    """The values of the tests of one file in both kinds of runs, Apex and native mixed precision being there."""

    def __init__(self, twin: NativeTwin, module: Module) -> None:
        self.twin = twin
        self.natives = {ast.dump(flag) for flag in twin.flags.values()}
        self.chosen = dict(twin.choices.keys())  # what is compared, and with what by a run that asks for Apex
        pairs = ((h, value_chosen(ast.Name(h), v)) for (h, _), v in twin.choices.items() if v is not None)
        self.instead = {holder: choice[1] for holder, choice in pairs if choice is not None}
        self._there = (availability(twin.project, module).value, native_flags(twin.project, module).value)

    def with_apex(self, test: ast.expr) -> bool | None:
        """What a test was in a run that asked for Apex, and for nothing else."""
        return truth(test, self._telling(native=False))

    def natively(self, test: ast.expr) -> bool | None:
        """What it is in one that asks for the native side."""
        return truth(test, self._telling(native=True))

    def differ(self, test: ast.expr) -> bool:
        """Whether a test comes out otherwise, or depends on more, in one of them."""
        before, now = self.with_apex(test), self.natively(test)
        return before is not now

    def asks(self, test: ast.expr) -> bool:
        """Whether a part of a test asks which of them a run is."""
        told = self._telling(native=True)
        return any(told(n) is not None and not self._is_there(n) for n in ast.walk(test) if isinstance(n, ast.expr))

    def _is_there(self, test: ast.expr) -> bool:
        return any(value(test) is not None for value in self._there)

    def _telling(self, native: bool) -> Callable[[ast.expr], bool | None]:
        def told(test: ast.expr) -> bool | None:
            choice = choice_of(test)
            if choice is not None and choice[0] in self.chosen and isinstance(test, ast.Compare):
                holds = (self.instead.get(choice[0]) if native else self.chosen[choice[0]]) == choice[1]
                return holds is isinstance(test.ops[0], (ast.Eq, ast.Is))
            never = self.twin.told(test)
            if never is not None:
                return never is native
            flag, on = flag_asked(test)
            if ast.dump(flag) in self.natives:
                return native is on
            return next((v for value in self._there if (v := value(test)) is not None), None)

        return told
