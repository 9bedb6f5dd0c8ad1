"""Where a value may come from: the calls, literals and parameters that an expression can stand for.

Inclusion-based and insensitive to order: every assignment to a name, a field or a parameter counts. An answer that holds
an unknown (`Origin.kind == "unknown"`) is not complete; a check says so instead of guessing.
"""

from __future__ import annotations

import ast

from amp_migrate.audit import syntax
from amp_migrate.audit.module import Class, Module, Scope
from amp_migrate.audit.origins import Origin, Sources
from amp_migrate.audit.program import Program
from amp_migrate.audit.search import Search
from amp_migrate.audit.targets import Path


class Values(Sources):
    """Answers for one state of a program."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._found: dict[tuple[Module | Scope | Class, ast.AST | str, Path], frozenset[Origin]] = {}

    def origins(self, scope: Scope, expr: ast.expr, path: Path = ()) -> frozenset[Origin]:
        """What an expression evaluated in a scope may be."""
        key = self._key(scope, expr, path)
        if key not in self._found:
            search = Search(self)
            try:
                if isinstance(expr, ast.Name) and isinstance(key[0], Scope):
                    origins = search.name(key[0], expr.id, path)
                else:
                    origins = search.run(scope, expr, path)
            except RecursionError:  # names that hand on to each other for hundreds of steps
                origins = {Origin(scope.module, expr, "unknown", path)}
            found = frozenset(origins)
            if any(o.node is expr for o in found):
                key = (scope.module, expr, path)  # this one's own answer
            self._found[key] = found
        return self._found[key]

    def _key(self, scope: Scope, expr: ast.expr, path: Path) -> tuple[Module | Scope | Class, ast.AST | str, Path]:
        """What is asked for: an expression, or which name of which scope, which attribute of objects of which class."""
        if (scope.module, expr, path) not in self._found:
            if isinstance(expr, ast.Name) and (found := scope.binder(expr.id)) is not None:
                return found, expr.id, path
            if isinstance(expr, ast.Attribute):
                owner = self.program.is_self(scope, expr.value)
                if owner is not None:
                    return owner, expr.attr, path
                if self._dotted(expr.value):
                    return scope, syntax.text(expr), path
        return scope.module, expr, path

    @staticmethod
    def _dotted(expr: ast.expr) -> bool:
        while isinstance(expr, ast.Attribute):
            expr = expr.value
        return isinstance(expr, ast.Name)

    def of(self, module: Module, expr: ast.expr) -> frozenset[Origin]:
        """The same for an expression where it stands."""
        return self.origins(module.scope_of(expr), expr)

    def constants(self, scope: Scope, expr: ast.expr) -> set[object] | None:
        """The constants that an expression may be; None where it may be anything else."""
        found: set[object] = set()
        for origin in self.origins(scope, expr):
            if not isinstance(origin.node, ast.Constant):
                return None
            found.add(origin.node.value)
        return found or None

    def makers(self, scope: Scope, expr: ast.expr) -> set[str] | None:
        """Full names of what is called to make a value (`torch.amp.GradScaler`); None where that is not known."""
        names: set[str] = set()
        for origin in self.origins(scope, expr):
            name = self.maker(origin)
            if name is None:
                return None
            names.add(name)
        return names or None

    def maker(self, origin: Origin) -> str | None:
        """The full name of what is called to make one origin; classes of the program by module and name."""
        if not isinstance(origin.node, ast.Call):
            return None
        scope = origin.module.scope_of(origin.node)
        for d in self.program.definitions(scope, origin.node.func, guess=False):
            if isinstance(d, Class):
                return f"{d.module.name}.{d.qualname}"
        return self.program.dotted(scope, origin.node.func)
