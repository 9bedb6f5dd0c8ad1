"""What a call surely leaves out, though it is given things that are not written one by one: `Trainer(model, **vars(args))`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.sources import Sources
from amp_migrate.reading.values.there import is_parsed


def leaves_out(project: Project, function: Function, module: Module, call: ast.Call, name: str) -> bool:
    """Whether a call gives a parameter nothing, neither written out nor among the options of a command line."""
    if name in dict(project.arguments(function, call)) or any(isinstance(a, ast.Starred) for a in call.args):
        return False
    return all(_lacks(project, module, k.value, name) for k in call.keywords if k.arg is None)


def _lacks(project: Project, module: Module, mapping: ast.expr, name: str) -> bool:
    """Whether a mapping is that of a command line's options, and none of these is called so."""
    if isinstance(mapping, ast.Attribute) and mapping.attr == "__dict__":
        whole: ast.expr = mapping.value
    elif isinstance(mapping, ast.Call) and ast.unparse(mapping.func) == "vars" and len(mapping.args) == 1:
        whole = mapping.args[0]
    else:
        return False
    values, sources = project.once(Values).may_be(module, whole), project.once(Sources)
    put = any(not where.is_self(target.value) for where, target, _ in sources.stored(name))
    parsed = bool(values) and all(map(is_parsed, values))
    return parsed and not (put or sources.options(module, name) or sources.set_by_name(name))
