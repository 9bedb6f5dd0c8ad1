"""Where Apex was never set up: code of programs beside the one that trains, which share its files and no call of
`initialize`. Nothing was ever cast there, so nothing has to run under autocast."""

from __future__ import annotations

import ast
from functools import cached_property

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import Imports, imported, when_run
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.sources import Sources

Place = Function | Scope


class SetUp:
    """Asks for code of a program whether it may run in a process that came by an `initialize` of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self._by_start: dict[Module, bool] = {}
        self._left_out: dict[Scope, bool] = {}

    def never(self, scope: Scope) -> bool:
        """Whether all that leads to the code of a scope is known: scripts, tests and notebooks that never come by
        `initialize`."""
        scripts = self.project.once(Imports).scripts
        starts = self._starts(scope)
        return bool(starts) and all((run or m in scripts) and not self.comes_by(m) for m, run in starts)

    def left_out(self, scope: Scope) -> bool:
        """Whether some script, test or notebook, or a file that no set-up comes to, leads to the code of a scope and never
        comes by `initialize`."""
        if scope not in self._left_out:
            scripts = self.project.once(Imports).scripts
            starts = self._starts(scope)
            cast = self.unit.cast
            beside = (m for m, run in starts if run or m in scripts or m not in cast)
            self._left_out[scope] = any(not self.comes_by(m) for m in beside)
        return self._left_out[scope]

    def _starts(self, scope: Scope) -> set[tuple[Module, bool]]:
        """The modules in which the chains of calls begin that lead to a scope, and whether only where they are run."""
        found: set[tuple[Module, bool]] = set()
        queue, seen = [scope], {scope}
        while queue:
            current = queue.pop().outermost
            function = self.project.functions.get(current.node)
            calls = self.project.calls.get(function, ()) if function is not None else ()
            if function is None or not calls or self.project.once(Sources).is_value(function):
                found.add((current.module, False))
            run = {(m, c) for m, c in calls if m.scope_of(c).is_module and when_run(m, c)}
            found |= {(m, True) for m, _ in run}
            new = {m.scope_of(c).outermost for m, c in calls if (m, c) not in run} - seen
            seen |= new
            queue += new
        return found

    @cached_property
    def _leading(self) -> set[Place]:
        """All from which a call of `initialize` is reached."""
        found: set[Place] = set()
        for init in self.unit.inits:
            scope = init.site.scope.outermost
            function = self.project.functions.get(scope.node)
            found |= {scope} if function is None else self.project.callers(function)
        return found

    def comes_by(self, start: Module) -> bool:
        """Whether a process that begins with a module may come by `initialize`: something of the module leads there, or
        some file that it loads keeps as a value, or calls in a way that cannot be followed, what does."""
        if start not in self._by_start:
            inside = any((p.module if isinstance(p, (Function, Scope)) else None) is start for p in self._leading)
            loaded = imported(self.project, start)
            self._by_start[start] = inside or any(
                self._mentions(module, place, module is start)
                for place in self._leading
                if isinstance(place, Function)
                for module in loaded
            )
        return self._by_start[start]

    def _mentions(self, module: Module, function: Function, run: bool) -> bool:
        """Whether a file, which is `run` or only loaded, uses a function in a way that is no call in sight."""
        named: list[ast.AST] = [*module.loads.get(function.name, ()), *module.named.get(function.name, ())]
        for node in named:
            if self.project.functions.get(module.scope_of(node).outermost.node) in self._leading:
                continue
            if not run and when_run(module, node):
                continue
            if function.node in self.project.definitions(module, node):
                return True
            call = module.parents.get(node)
            if function.cls is None or not isinstance(node, ast.Attribute):
                continue
            if not isinstance(call, ast.Call) or call.func is not node or not self.project.resolved.get(call):
                return True
        return False
