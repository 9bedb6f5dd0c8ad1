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


def sets_defaults(call: ast.Call) -> bool:
    return not call.args and not any(k.arg == "dest" for k in call.keywords)


@kept
def destination(call: ast.Call) -> set[str] | None:
    """The attributes that one `add_argument` or `set_defaults` gives the namespace."""
    if any(k.arg is None for k in call.keywords):
        return None
    if sets_defaults(call):
        return {k.arg for k in call.keywords if k.arg is not None}
    for keyword in call.keywords:
        if keyword.arg == "dest":
            return {str(keyword.value.value)} if isinstance(keyword.value, ast.Constant) else None
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if len(names) != len(call.args) or not names:
        return None
    long = [n for n in names if n.startswith("--")] or names
    return {long[0].lstrip("-").replace("-", "_")}
