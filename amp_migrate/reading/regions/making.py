"""Calls of what a variable holds that make a network and run none: the variable holds a class."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import spelled
from amp_migrate.reading.values.analysis import Values

LAYER = re.compile(r"torch\.nn\.(?:\w+\.)*[A-Z]\w*$")


def makes_network(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether what is called is a class that was picked out of some."""
    return _makes_itself(module, call) or _is_class(project, module, call.func)


def _makes_itself(module: Module, call: ast.Call) -> bool:
    """`model = model(config)`: what is called is a class, and the result is the model."""
    stmt = module.parents.get(call)
    if not isinstance(stmt, ast.Assign):
        return False
    called = spelled(call.func)
    return any(type(t) is type(call.func) and spelled(t) == called for t in stmt.targets)


def _is_class(project: Project, module: Module, called: ast.expr) -> bool:
    """`kind = Deep if args.deep else Flat`, `return kind(config)`: all that is called is a class of the program or of torch."""
    held = project.once(Values).may_be(module, called)
    return bool(held) and all(v.kind == "class" or (v.kind == "named" and LAYER.match(v.name)) for v in held)
