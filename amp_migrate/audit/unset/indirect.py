"""Calls through something that stands between: `fn = self.prepare`, `fn()`; `partial(run, args)(model)`; `phases["train"](args)`;
`go = lambda: self.prepare()`, `go()`."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.program import Program

DEPTH = 4


def directly(program: Program, scope: Scope, call: ast.Call) -> ast.Call:
    """A call with what it runs, and all that this is given, written out; the call itself where nothing stands between, or
    where that may be more than one thing."""
    func, args, keywords = call.func, call.args, call.keywords
    for _ in range(DEPTH):
        value = _kept(scope, func)
        if isinstance(value, ast.Lambda) and isinstance(value.body, ast.Call) and not _takes(value.args):
            if args or keywords:
                break
            func, args, keywords = value.body.func, value.body.args, value.body.keywords
            continue
        value = func if value is None else value
        if isinstance(value, ast.Call) and value.args and program.dotted(scope, value.func) == "functools.partial":
            func, args, keywords = value.args[0], [*value.args[1:], *args], [*value.keywords, *keywords]
        elif value is not func and isinstance(value, (ast.Name, ast.Attribute)):
            func = value
        else:
            break
    return call if func is call.func else ast.copy_location(ast.Call(func, args, keywords), call)


def _kept(scope: Scope, func: ast.expr) -> ast.expr | None:
    """The one value of a name, or of an entry of a mapping that is written out there."""
    if isinstance(func, ast.Subscript) and isinstance(func.slice, ast.Constant) and isinstance(func.value, ast.Name):
        table = _once(scope, func.value.id)
        if isinstance(table, ast.Dict) and _only_looked_up(scope, func.value.id):
            found = [v for k, v in zip(table.keys, table.values, strict=True) if _same(k, func.slice)]
            return found[0] if len(found) == 1 else None
    return _once(scope, func.id) if isinstance(func, ast.Name) else None


def _only_looked_up(scope: Scope, name: str) -> bool:
    """Whether the entries of a mapping are read, and nothing else is done with it."""
    uses = [(n, scope.module.parents.get(n)) for n in scope.module.loads.get(name, ())]
    return all(isinstance(p, ast.Subscript) and p.value is n and isinstance(p.ctx, ast.Load) for n, p in uses)


def _same(key: ast.expr | None, other: ast.Constant) -> bool:
    return isinstance(key, ast.Constant) and key.value == other.value


def _once(scope: Scope, name: str) -> ast.expr | None:
    """What a name is given by the only statement that binds it."""
    binder = scope.binder(name)
    bindings = binder.bindings[name] if binder is not None else []
    made = bindings[0] if len(bindings) == 1 else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
        return None
    return made.value


def _takes(a: ast.arguments) -> bool:
    return bool(a.posonlyargs or a.args or a.vararg or a.kwonlyargs or a.kwarg)
