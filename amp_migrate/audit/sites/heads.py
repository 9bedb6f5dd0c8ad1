"""Heads of a network that no caller reads: what a layer gives is a part of what the forward returns, and goes nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program


def unread(program: Program, module: Module, cls: Class, model: str) -> Iterator[str]:
    """The layers of a class that only compute entries of the tuple its forward returns which nothing reads.

    `model`: what a variable of a file that holds an object of it is called, there and in the functions it is handed to.
    Silent where one of these keeps the tuple as it is, or hands it on."""
    for forward in cls.methods.get("forward", ()):
        entries = _returned(forward)
        read = _read(program, module, len(entries), model) if entries else None
        for layer, names in _heads(cls, forward, entries).items() if read is not None else ():
            if not {i for i, name in enumerate(entries) if name in names} & (read or set()):
                yield layer


def _returned(forward: Function) -> list[str]:
    """The names that a forward returns, in its one return."""
    returns = syntax.every(forward.node, ast.Return)
    value = returns[0].value if len(returns) == 1 else None
    names = [e.id for e in value.elts if isinstance(e, ast.Name)] if isinstance(value, ast.Tuple) else []
    return names if isinstance(value, ast.Tuple) and len(names) == len(value.elts) else []


def _heads(cls: Class, forward: Function, entries: list[str]) -> dict[str, set[str]]:
    """The layers that are used for returned entries alone, and for which."""
    found: dict[str, set[str]] = {}
    loads = [n for n in syntax.every(forward.node, ast.Name) if isinstance(n.ctx, ast.Load)]
    counted = [n.id for n in loads]
    for stmt in syntax.walk(forward.node):
        if not isinstance(stmt, ast.Assign):
            continue
        given = {n.id for t in stmt.targets for n in syntax.every(t, ast.Name)}
        if given and given <= {*entries} and all(counted.count(name) == 1 for name in given):
            for call in syntax.every(stmt.value, ast.Call):
                func = call.func
                if (
                    isinstance(func, ast.Attribute)
                    and syntax.text(func.value) == "self"
                    and func.attr not in cls.methods
                ):
                    found.setdefault(func.attr, set()).update(given)
    used = [
        n.attr
        for n in syntax.every(cls.node, ast.Attribute)
        if isinstance(n.ctx, ast.Load) and syntax.text(n.value) == "self"
    ]
    return {layer: names for layer, names in found.items() if used.count(layer) == 1}


def _read(program: Program, home: Module, arity: int, model: str) -> set[int] | None:
    """Which entries of a tuple of so many callers of a model read; None where they cannot be told."""
    found: set[int] = set()
    seen = False
    modules = {home: None}
    for call in home.calls():
        if any(syntax.text(a) == model for a in syntax.given(call)):
            modules |= {callee.module: None for callee in program.callees(home, call)}
    if not any("backward" in module.words for module in modules):
        return None  # no gradients are waited for
    for module in modules:
        for call in module.calls_named.get(model, ()):
            stmt = module.parents.get(call)
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
            if not isinstance(target, ast.Tuple) or len(target.elts) != arity:
                return None
            seen = True
            found |= {
                i for i, e in enumerate(target.elts) if not isinstance(e, ast.Name) or _loaded(module, call, e.id)
            }
    return found if seen else None


def _loaded(module: Module, call: ast.Call, name: str) -> bool:
    names = syntax.every(module.around(call), ast.Name)
    return any(n.id == name and isinstance(n.ctx, ast.Load) for n in names)
