"""Functions that are told by a parameter whether mixed precision is on: `def build(amp=None): ... if amp is not None:`."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.switch.flag import Flag, distinct
from amp_migrate.reading.switch.flags import guard_parts, import_parts
from amp_migrate.reading.units.unit import Init


def asked_amp(project: Project, init: Init) -> str | None:
    """The parameter that a test around an `initialize` asks for, where what the test comes to cannot be said there."""
    available, scope = availability(project, init.module), init.site.scope
    for guard, _ in guard_parts(project, init.module, init.site.stmt):
        for node in walk(guard.test):
            if isinstance(node, ast.Name) and node.id in scope.params and available.is_switch(node):
                if (project.qualify(init.module, node) or "").startswith("apex") and not import_parts(project, init):
                    return node.id
    return None


def amp_given(project: Project, function: Function, module: Module, call: ast.Call, name: str) -> Flag | str | None:
    """When a call gives a parameter `amp`, and not None: a condition where it stands, or the parameter there that tells;
    None where that is not seen."""
    scope = module.scope_of(call)
    value = dict(project.arguments(function, call)).get(name) or function.defaults.get(name)
    if value is not None and is_none(value):
        return Flag(scope, None)
    owner = scope.lookup(value.id) if isinstance(value, ast.Name) else None
    if owner is None or not isinstance(value, ast.Name):
        return None
    if value.id in owner.params:
        return value.id if owner is scope else None
    bound = owner.bindings.get(value.id, [])
    imports = [n for n in bound if isinstance(n, (ast.Import, ast.ImportFrom))]
    others = [module.parents.get(n) for n in bound if n not in imports]
    if len(imports) != 1 or owner.module is not module:
        return None
    if not all(isinstance(s, ast.Assign) and is_none(s.value) for s in others):
        return None
    asked = guard_parts(project, module, imports[0]) if others else []
    parts = [part for _, inner in asked for part in inner or ()]
    if any(inner is None for _, inner in asked) or not all(visible(project, p, owner, scope) for p in parts):
        return None
    return Flag(scope, distinct(parts))


def given_sometimes(project: Project, function: Function, name: str, seen: frozenset[Function] = frozenset()) -> bool:
    """Whether some calls of a function are seen to give None for `amp`, or to give it under a condition only."""
    for module, call in project.calls.get(function, []) if function not in seen else ():
        given = amp_given(project, function, module, call, name)
        outer = project.function_of(module, call) if isinstance(given, str) else None
        if isinstance(given, Flag) and not given.always:
            return True
        if isinstance(given, str) and outer is not None and given_sometimes(project, outer, given, seen | {function}):
            return True
    return False
