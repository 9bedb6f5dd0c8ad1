"""The options that command lines declare."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program


@kept
def declared(program: Program) -> set[str]:
    """The attributes that some command line of the program has, roughly."""
    return {name for module in program.having("add_argument") for name in declared_in(module)}


def declared_in(module: Module) -> set[str]:
    """The attributes that the options declared in a file give a command line, roughly."""
    return {
        str(a.value).lstrip("-").replace("-", "_")
        for call, _ in module.method_calls("add_argument")
        for a in (*call.args, *(k.value for k in call.keywords if k.arg == "dest"))
        if isinstance(a, ast.Constant)
    }
