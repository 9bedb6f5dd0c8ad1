"""The last home of a scaler: the module level of the file that scales, as Apex's state belonged to the whole process.

Taken where no object and no parameter can hand the scaler over: callbacks, hooks, functions kept as values, methods that
only a framework or a user calls. It is created disabled there, and set where `initialize` stood.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import imported, is_script, loaded_with
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home, join
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.unit import Blocked, Unit


@dataclass(frozen=True)
class Naming:
    """How a file names the module of the scaler: `prefix` before its name there; the import that this takes, and the one
    below which it stands."""

    prefix: str = ""
    line: str = ""
    below: ast.stmt | None = None


@dataclass(frozen=True)
class LastHome:
    """A module that may keep the scaler. `failure`: why it could not be handed over."""

    module: Module
    failure: Blocked


def last_homes(unit: Unit, failure: Blocked) -> list[LastHome]:
    """The modules that may keep a scaler which nothing can hand over: those that scale, then those that initialize.

    No notebook, where running the cell of imports anew would lose the scaler; none where the program loads modules anew,
    and none for the older APIs, which keep their scale on an object.
    """
    if any(isinstance(init, LegacyInit) or init.spread is not None for init in unit.inits):
        return []
    if unit.project.once(_loads_anew):
        return []
    modules = [x.module for x in unit.losses]
    if modules:
        modules += [i.module for i in unit.inits]
    return [
        LastHome(module, failure)
        for module in sorted(dict.fromkeys(modules), key=lambda m: -sum(m is x.module for x in unit.losses))
        if role(module) != "notebook" and not _two_copies(unit.project, module)
    ]


def _loads_anew(project: Project) -> bool:
    """Whether the program itself loads some module a second time, or from its file: names in it are assigned anew, or
    belong to another copy."""
    for other in project.modules:
        if not any(word in other.text for word in _LOADERS):
            continue
        for call, _ in other.calls:
            named = project.qualify(other, call.func) or ""
            if named.startswith(("importlib.", "imp.", "runpy.")) and named.rpartition(".")[2] in _LOADERS:
                return True
    return False


_LOADERS = ("reload", "spec_from_file_location", "SourceFileLoader", "load_source", "run_path")


def _two_copies(project: Project, module: Module) -> bool:
    """Whether a module that is started as a script is imported again by what it imports: then there are two of it."""
    return is_script(module) and any(module in project.imports[m] for m in imported(project, module) - {module})


class ProcessWide(ScalerPlan):
    """A scaler at the module level of one file."""

    def __init__(self, unit: Unit, name: str, optimizer: str, last: LastHome) -> None:
        super().__init__(unit, name, optimizer)
        self.failure = last.failure
        self.module = last.module
        self.namings: dict[Module, Naming] = {self.module: Naming()}
        self.written_in: set[Module] = {self.module}  # where its name has been written
        self.setters: list[Scope] = []  # functions of the module that set it

    def settle(self, uses: list[tuple[Module, ast.AST]]) -> None:
        """Create it where each `initialize` stood.

        Raises Blocked, with the reason why no other home serves, where a file that uses it cannot name its module.
        """
        for module in dict.fromkeys([*(m for m, _ in uses), *(i.module for i in self.unit.inits)]):
            self._name(module)
        for init in self.unit.inits:
            if not self.serves(init):
                continue
            scope = init.site.scope
            if scope.is_class:
                raise self.failure
            home = Home(init, "local", scope, init.stmt, init_flag(self.project, init))
            self._climb(home, [], outside=True)
            self.homes.append(home)
            if init.module is self.module and scope.is_function:
                self.setters.append(scope)
        join(self.homes)

    def at(self, module: Module, node: ast.AST, optimizer: ast.expr | None = None) -> str:
        return self.written(module, self.base_name)

    def written(self, module: Module, name: str) -> str:
        """How a file writes a name of the scaler's module.

        Raises Blocked where it cannot.
        """
        self.written_in.add(module)
        return f"{self._name(module).prefix}{name}"

    def near(self, scope: Scope) -> bool:
        try:
            self._name(scope.module)
        except Blocked:
            return False
        return True

    def governing(self, scope: Scope) -> list[Home]:
        return self.homes

    def as_seen(self, text: str, home: Scope, there: Scope, at: ast.stmt | None = None) -> str | None:
        return super().as_seen(text, home, there, at) if home.module is there.module else None

    def target(self, home: Home) -> str:
        return self.written(home.init.module, self.base_name)

    def name_in(self, scope: Scope) -> str:
        return self.base_name

    def _name(self, module: Module) -> Naming:
        """How a file names the scaler's module: by an import that it has, or by one like it.

        Raises Blocked where no such import is known to mean that module, and no second copy of it.
        """
        if module not in self.namings:
            found = None
            if self._importable() and not (is_script(self.module) and module in imported(self.project, self.module)):
                found = next((n for s in module.tree.body if (n := self._by_import(module, s)) is not None), None)
                found = found or self._by_neighbour(module)
            if found is None:
                raise self.failure
            self.namings[module] = found
        return self.namings[module]

    def _importable(self) -> bool:
        """Whether the name of the module in its package is the module itself: not of what the package imports."""
        if self.module.name.rpartition(".")[2] == "__init__":
            return False
        head, _, last = self.module.name.rpartition(".")
        package = self.project.by_name.get(head)
        if package is None:
            return True
        stars = [m for base in package.star_imports if (m := self.project.by_name.get(base)) is not None]
        roots = [package.root] if last in package.root.bindings else [star.root for star in stars]
        return all(last not in r.bindings or r.imports.get(last) == self.module.name for r in roots)

    def _by_import(self, module: Module, stmt: ast.stmt) -> Naming | None:
        if isinstance(stmt, ast.Import):
            for alias in stmt.names:
                if module.absolute(alias.name) == self.module.name:
                    return _as_it_is(module, alias.asname or alias.name)
        if not isinstance(stmt, ast.ImportFrom):
            return None
        base = module.import_base(stmt)
        for alias in stmt.names:
            if f"{base}.{alias.name}".removeprefix(".") == self.module.name:
                return _as_it_is(module, alias.asname or alias.name)
        if base != self.module.name or not stmt.module:
            return None
        return self._importing(module, "." * stmt.level, stmt.module, stmt)

    def _by_neighbour(self, module: Module) -> Naming | None:
        """An import like one of another file of the same tree, in it or in what it imports, where the scaler's module imports
        nothing that leads back."""
        if module in loaded_with(self.project, self.module):
            return None
        own, froms = self.module.name, [s for s in module.tree.body if isinstance(s, ast.ImportFrom)]
        # What a file that it imports writes in full means the same there, as both run in one process.
        theirs = [
            (s, b, f) for s in froms if (b := self.project.by_name.get(module.import_base(s))) for f in b.tree.body
        ]
        for below, where, stmt in [*((s, module, s) for s in froms), *theirs]:
            if not isinstance(stmt, ast.ImportFrom) or not stmt.module or (stmt.level and where is not module):
                continue
            base = where.import_base(stmt)
            if base not in self.project.by_name:
                continue
            tree = base.removesuffix(stmt.module)  # what the names that it writes start from
            written = own.removeprefix(tree)
            if own.startswith(tree) and (tree or not stmt.level) and written:
                return self._importing(module, "." * stmt.level, written, below)
        return None

    def _importing(self, module: Module, dots: str, name: str, below: ast.stmt) -> Naming | None:
        parent, _, last = name.rpartition(".")
        line = f"from {dots}{parent} import {last}" if dots or parent else f"import {last}"
        if not _taken(module, last):
            return Naming(f"{last}.", line, below)
        other = f"{last}_module"
        return None if _taken(module, other) else Naming(f"{other}.", f"{line} as {other}", below)


def _as_it_is(module: Module, name: str) -> Naming | None:
    """The module under the name that an import gives it, where nothing else in the file has that name."""
    first = name.partition(".")[0]
    meant = module.root.imports.get(first)
    binding = [scope for scope in module.scopes.values() if first in scope.bindings]
    bound = [module.statement(b) for scope in binding for b in scope.bindings[first]]
    if any(scope.imports.get(first) != meant for scope in binding):
        return None
    return Naming(f"{name}.") if all(isinstance(b, (ast.Import, ast.ImportFrom)) for b in bound) else None


def _taken(module: Module, name: str) -> bool:
    return hasattr(builtins, name) or any(name in scope.bindings for scope in module.scopes.values())
