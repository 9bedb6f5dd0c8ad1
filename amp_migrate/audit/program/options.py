"""The options that command lines declare."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program

DEFINING = tuple(f"DEFINE_{kind}" for kind in "bool boolean string integer float enum list multi_string".split())


@kept
def declared(program: Program) -> set[str]:
    """The attributes that some command line of the program has, roughly."""
    files = {module for word in ("add_argument", *DEFINING) for module in program.having(word)}
    return {name for module in files for name in declared_in(module)}


def declared_in(module: Module) -> set[str]:
    """The attributes that the options declared in a file give a command line, roughly."""
    flags = (call.args[0] for name in DEFINING for call in module.calls_named.get(name, ()) if call.args)
    return {str(name.value) for name in flags if isinstance(name, ast.Constant)} | {
        str(a.value).lstrip("-").replace("-", "_")
        for call, _ in module.method_calls("add_argument")
        for a in (*call.args, *(k.value for k in call.keywords if k.arg == "dest"))
        if isinstance(a, ast.Constant)
    }


@kept
def always_text(program: Program, name: str) -> bool:
    """Whether an option is a text in every run, none of which leaves it None: declared, in every file that does, with one for a
    default, or as required."""
    calls = [c for m in program.having("add_argument") for c in _adding(m) if name in (destination(c) or ())]
    return bool(calls) and all(map(_gives_text, calls))


def _adding(module: Module) -> Iterator[ast.Call]:
    """The calls that give command lines options or defaults, also by a name of the method: `arg = parser.add_argument`."""
    for called in ("add_argument", "set_defaults"):
        yield from (call for call, _ in module.method_calls(called))
        for taken in module.loads.get(called, ()):
            stmt = module.parents.get(taken)
            if isinstance(stmt, ast.Assign) and stmt.value is taken and isinstance(stmt.targets[0], ast.Name):
                name = stmt.targets[0].id
                yield from (c for c in module.calls_named.get(name, ()) if isinstance(c.func, ast.Name))


def _gives_text(call: ast.Call) -> bool:
    given = {k.arg: k.value for k in call.keywords}
    if sets_defaults(call):
        return all(_is_text(value) for value in given.values())
    kind, action = given.get("type"), given.get("action")
    if "nargs" in given or not (kind is None or (isinstance(kind, ast.Name) and kind.id == "str")):
        return False
    if action is not None and not (isinstance(action, ast.Constant) and action.value == "store"):
        return False
    required = given.get("required")
    default = given.get("default")
    return _is_text(default) if default is not None else isinstance(required, ast.Constant) and required.value is True


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


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
