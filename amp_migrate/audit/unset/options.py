"""The options that command lines declare."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program


def declared(program: Program) -> set[str]:
    """The attributes that some command line of the program has, roughly."""
    known: set[str] | None = program.__dict__.get("_option_names")
    if known is None:
        known = {name for module in program.modules.values() for name in declared_in(module)}
        program.__dict__["_option_names"] = known
    return known


def declared_in(module: Module) -> set[str]:
    """The attributes that the options declared in a file give a command line, roughly."""
    if "add_argument" not in module.text:
        return set()
    return {
        str(a.value).lstrip("-").replace("-", "_")
        for call in module.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for a in (*call.args, *(k.value for k in call.keywords if k.arg == "dest"))
        if isinstance(a, ast.Constant)
    }
