"""Parameters that say what a global of the script does: `train(model, mixed_precision=args.mixed_precision)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function, unpacks
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.values.sources import Sources


def said_by(
    project: Project, text: str, home: Scope, there: Scope, asked: frozenset[Function] = frozenset()
) -> str | None:
    """The parameter of a function that every call of it gives what an expression of the module level is; None where there is
    none: a function reads that under its own name, and whoever imports it has no such global."""
    function = project.functions.get(there.node)
    if not home.is_module or function is None or function in asked or project.once(Sources).is_value(function):
        return None
    calls = project.calls.get(function, [])
    if not calls or any(unpacks(call) for _, call in calls):
        return None
    wanted = ast.unparse(ast.parse(text))

    def says(name: str) -> bool:
        for module, call in calls:
            scope, value = module.scope_of(call), dict(project.arguments(function, call)).get(name)
            if value is None:
                return False
            own = said_by(project, text, home, scope, asked | {function}) if isinstance(value, ast.Name) else None
            itself = ast.unparse(value) == wanted and visible(project, text, home, scope)
            if not itself and (own is None or ast.unparse(value) != own):
                return False
        return True

    plain = (p.arg for p in function.parameters if there.bindings.get(p.arg) == [p])
    return next((name for name in plain if says(name)), None)
