"""Where a value may come from: the calls, literals and parameters that an expression can stand for.

Inclusion-based and insensitive to order: every assignment to a name, a field or a parameter counts. An answer that holds
an unknown (`Origin.kind == "unknown"`) is not complete; a check says so instead of guessing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import Path
from amp_migrate.audit.values.instances import Instances
from amp_migrate.audit.values.origins import Origin, Sources, in_order
from amp_migrate.audit.values.search import Search
from amp_migrate.audit.values.table import Question, Table


class Values(Sources):
    """Answers for one state of a program. `apart`: the calls that give another object than they are given."""

    def __init__(self, program: Program, apart: frozenset[str] = frozenset()) -> None:
        super().__init__(program, apart)
        self._search = Search(self)
        self._table = Table(self._search.step, self._search.lost)

    @cached_property
    def instances(self) -> Instances:
        return Instances(self)

    @property
    def gave_up(self) -> bool:
        """Whether some answer is unknown because it hangs on too much."""
        return self._table.gave_up

    def origins(self, scope: Scope, expr: ast.expr, path: Path = ()) -> frozenset[Origin]:
        """What an expression evaluated in a scope may be."""
        return self._table.answer(self._search.value(scope, expr, path))

    def parameter(self, scope: Scope, node: ast.arg) -> frozenset[Origin]:
        """What callers hand over as a parameter, whatever the function gives that name later."""
        return self._table.answer(Question("parameter", (scope, node, ())))

    def of(self, module: Module, expr: ast.expr) -> frozenset[Origin]:
        """The same for an expression where it stands."""
        return self.origins(module.scope_of(expr), expr)

    @kept
    def methods(self, scope: Scope, expr: ast.expr, name: str) -> list[Function]:
        """The methods of a name that an expression's objects have, as far as they are seen to be made."""
        classes = (cls for origin in in_order(self.origins(scope, expr)) for cls in self.made(origin))
        return list(dict.fromkeys(f for cls in classes for f in self.program._method(cls, name)))

    @kept
    def keepers(self, scope: Scope, expr: ast.Attribute) -> list[Class]:
        """The classes of the program whose methods give an attribute a value, of which the object here is seen to be made."""
        given = [(module.scope_of(target), target.value) for module, target, _, _ in self.fields(expr.attr)]
        storing = {owner for there, on in given if (owner := self.program.is_self(there, on)) is not None}
        origins = in_order(self.origins(scope, expr.value)) if storing else []
        made = dict.fromkeys(cls for origin in origins for cls in self.made(origin))
        return [cls for cls in made if not storing.isdisjoint(self.program.family(cls))]

    def constants(self, scope: Scope, expr: ast.expr) -> set[object] | None:
        """The constants that an expression may be; None where it may be anything else."""
        found: set[object] = set()
        for origin in self.origins(scope, expr):
            if not isinstance(origin.node, ast.Constant):
                return None
            found.add(origin.node.value)
        return found or None

    def makings(self, module: Module, expr: ast.expr) -> Iterator[tuple[Module, ast.Call]]:
        """The calls that may have made a value, in factories, too, that were asked for it."""
        for origin in in_order(self.of(module, expr)):
            yield from self._search.asked.inside(origin)

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
