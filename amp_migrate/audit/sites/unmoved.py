"""Objects of networks that stay where they are made: `stft = Spectrum(512)`, whose buffers are on the CPU in every run.

An object is followed by the names that it has: where it is put, what functions in sight call it. What is handed to a function out
of sight, or kept in what is no plain name or field, may be moved by it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.names import last_name

MOVES = ("cuda", "to", "to_empty", "apply", "_apply")
HARMLESS = frozenset("print len isinstance type id str repr".split())


def made_on_host(program: Program, cls: Class, field: str) -> bool:
    """Whether a constructor registers a buffer under a name, of which it names no device, and no object of the class is moved."""
    for made in cls.methods.get("__init__", ()):
        text = made.module.source(made.node)
        calls = (n for n in syntax.every(made.node, ast.Call) if syntax.last(n.func) == "register_buffer" and n.args)
        named = any(isinstance(c.args[0], ast.Constant) and c.args[0].value == field for c in calls)
        if named and "cuda" not in text and "device" not in text:
            return is_unmoved(program, cls, frozenset())
    return False


def is_unmoved(program: Program, cls: Class, seen: frozenset[Class]) -> bool:
    """Whether nothing moves an object of a class, as far as names say, nor an object that has it as a part."""
    makers = cls.methods.get("__init__", ())
    if cls in seen or not makers or program.below(cls):
        return False
    names: set[str] = set()
    for module, call in (place for made in makers for place in program.callers(made)):
        stmt = module.parents.get(call)
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        name = last_name(target) if isinstance(target, (ast.Name, ast.Attribute)) else None
        if name is None:
            return False
        holder = program.is_self(module.scope_of(call), target.value) if isinstance(target, ast.Attribute) else None
        if isinstance(target, ast.Attribute) and holder is None:
            return False
        if holder is not None and program.is_network(holder) and not is_unmoved(program, holder, seen | {cls}):
            return False
        names.add(name)
    own = any(program.is_self(module.scope_of(on), on) is cls for module, on in _moved(program))
    found = _all_names(program, names)
    return (
        bool(names) and not own and found is not None and not any(last_name(on) in found for _, on in _moved(program))
    )


def _moved(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """All on which a method is called that may move it."""
    return ((m, on) for m in program.modules.values() for name in MOVES for _, on in m.method_calls(name))


def _all_names(program: Program, names: set[str]) -> set[str] | None:
    """Some names, and those of the variables and parameters that are given what has one of them; None where code out of sight is
    given that, or keeps it."""
    found, queue = set(names), list(names)
    while queue:
        name = queue.pop()
        for module in program.having(name):
            uses = [n for kind in (ast.Name, ast.Attribute) for n in syntax.every(module.tree, kind)]
            loads = (n for n in uses if isinstance(getattr(n, "ctx", None), ast.Load) and last_name(n) == name)
            for use in loads:
                given = _given_to(program, module, use)
                if given is None:
                    return None
                queue += given - found
                found |= given
    return found


def _given_to(program: Program, module: Module, use: ast.expr) -> set[str] | None:
    """The names of what is given an object where it is read; None where that is not seen."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is use):
        return set()  # a method of it, or a part; itself, called
    if isinstance(parent, ast.Assign) and parent.value is use:
        targets = [last_name(t) if isinstance(t, (ast.Name, ast.Attribute)) else None for t in parent.targets]
        return None if None in targets else {t for t in targets if t is not None}
    call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return None
    if isinstance(call.func, ast.Name) and call.func.id in HARMLESS:
        return set()
    functions: list[Function] = program.callees(module, call)
    taken = [(program.arguments(f, call) or {}).items() for f in functions]
    given = {name for items in taken for name, value in items if value is use}
    return given if functions and all(any(v is use for _, v in items) for items in taken) else None
