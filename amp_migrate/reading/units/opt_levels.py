"""Which opt levels an `amp.initialize` call may be given, as far as the program tells."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.unit import Init

ALL = frozenset(("O0", "O1", "O2", "O3"))
DEFAULT = "O1"
DEPTH = 6  # names and calls followed

Values = frozenset[object]


def opt_levels(project: Project, init: Init) -> frozenset[str]:
    """The levels that may occur; all of them where the program leaves it open."""
    level = init.arguments.get("opt_level")
    if level is None:
        return ALL if init.spread is not None else frozenset((DEFAULT,))
    found = _values(project, init.module, level, DEPTH)
    if found is None:
        return ALL
    levels = frozenset(v.upper() for v in found if isinstance(v, str)) & ALL
    return levels or ALL


def may_be_none(project: Project, init: Init, name: str) -> bool:
    """Whether an argument may be left out or be None, which leaves Apex's own setting."""
    given = init.arguments.get(name)
    if given is None:
        return init.literal(name) is None
    found = _values(project, init.module, given, DEPTH)
    return found is None or None in found


def _values(project: Project, module: Module, node: ast.expr, depth: int) -> Values | None:
    """The values that an expression may have; None where they cannot be told."""
    if isinstance(node, ast.Constant):
        return frozenset((node.value,))
    if depth == 0:
        return None
    if isinstance(node, ast.IfExp):
        return _joined(_values(project, module, part, depth - 1) for part in (node.body, node.orelse))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        left = _values(project, module, node.left, depth - 1)
        right = _values(project, module, node.right, depth - 1)
        return _combined(node.op, left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        found = _values(project, module, node.args[0], depth - 1)
        return None if found is None else frozenset(str(v) for v in found)
    if isinstance(node, ast.Name):
        return _of_name(project, module, node, depth - 1)
    if isinstance(node, ast.Attribute):
        return _of_option(project, module, node, depth - 1)
    return None


def _joined(found: Iterable[Values | None]) -> Values | None:
    values: set[object] = set()
    for part in found:
        if part is None:
            return None
        values |= part
    return frozenset(values)


def _combined(operator: ast.operator, left: Values | None, right: Values | None) -> Values | None:
    """`"O" + str(level)`, `"O%d" % level`."""
    if left is None or right is None:
        return None
    try:
        if isinstance(operator, ast.Mod):
            return frozenset(a % b for a in left for b in right if isinstance(a, str))
        return frozenset(a + b for a in left for b in right if isinstance(a, str) and isinstance(b, str))
    except (TypeError, ValueError):
        return None


def _of_name(project: Project, module: Module, node: ast.Name, depth: int) -> Values | None:
    """What a variable is given wherever it is bound; a parameter, by every call in sight and by its default."""
    owner = module.scope_of(node).lookup(node.id)
    if owner is None or owner.module is not module:
        return None
    parts: list[Values | None] = []
    for binding in owner.bindings.get(node.id, ()):
        if isinstance(binding, ast.arg):
            function = project.functions.get(owner.node)
            calls = project.calls.get(function, []) if function is not None else []
            if function is None or not calls:
                return None
            for caller, call in calls:
                given = next((v for p, v in project.arguments(function, call) if p == node.id), None)
                value = given or function.defaults.get(node.id)
                if value is None:
                    return None
                parts.append(_values(project, caller if given else module, value, depth))
            continue
        stmt = module.parents.get(binding)
        if not isinstance(stmt, ast.Assign) or binding not in stmt.targets:
            return None
        parts.append(_values(project, module, stmt.value, depth))
    return _joined(parts) if parts else None


def _of_option(project: Project, module: Module, node: ast.Attribute, depth: int) -> Values | None:
    """What a command-line option allows: its `choices`, its default, and what the program sets it to itself."""
    options = [(m, call) for m in _near(project, module) for name, call in declared(m) if name == node.attr]
    if not options:
        return None
    parts: list[Values | None] = []
    for where, call in options:
        named = {k.arg: k.value for k in call.keywords}
        action, choices, default = named.get("action"), named.get("choices"), named.get("default")
        if isinstance(action, ast.Constant) and str(action.value).startswith("store_"):
            parts.append(frozenset((True, False)))
        elif isinstance(choices, (ast.List, ast.Tuple)) and all(isinstance(e, ast.Constant) for e in choices.elts):
            parts.append(frozenset(e.value for e in choices.elts if isinstance(e, ast.Constant)))
            required = named.get("required")
            if default is not None:
                parts.append(_values(project, where, default, depth))
            elif not isinstance(required, ast.Constant):
                parts.append(frozenset((None,)))
        else:
            return None
    for where in _near(project, module):
        for stored in where.named.get(node.attr, ()):
            if isinstance(stored, ast.Attribute) and isinstance(stored.ctx, ast.Store):
                stmt = where.parents.get(stored)
                value = stmt.value if isinstance(stmt, ast.Assign) else None
                parts.append(None if value is None else _values(project, where, value, depth))
    return _joined(parts)


def _near(project: Project, module: Module) -> list[Module]:
    """The file itself where it declares options, else every file: parsers of other programs are none of its own."""
    return [module] if "add_argument" in module.text else project.modules
