"""Where the objects of a class are run, where nothing but methods is ever asked of them: `self.stft = STFT(...)`, of which the
program calls `self.stft.transform(x)` alone, never runs its forward."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.lookalikes import PLAIN
from amp_migrate.audit.values.same import SELF_RETURNING

GIVING_BACK = SELF_RETURNING - {"apply", "type"}
Place = tuple[Module, ast.Call]


def seen_runs(program: Program, cls: Class) -> list[Place] | None:
    """The calls that run objects of a class; None where one may be elsewhere: handed on, in a container, in a registry."""
    found: list[Place] = []
    made = False
    if cls.node.decorator_list or program.subclasses(cls):
        return None
    for module in program.having(cls.name):
        for node in module.loads.get(cls.name, ()):
            if cls not in program.definitions(module.scope_of(node), node):
                continue
            call = module.parents.get(node)
            if isinstance(call, ast.Call) and call.func is node:
                runs = _of_object(program, module, call)
                if runs is None:
                    return None
                made = True
                found += runs
            elif not _of_super(call, node):
                return None
    return found if made else None


def _of_super(call: ast.AST | None, node: ast.AST) -> bool:
    return (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "super" and node in call.args
    )


def _of_object(program: Program, module: Module, made: ast.Call) -> list[Place] | None:
    """The runs of what one call makes."""
    value: ast.expr = made
    while (method := _method(module, value)) is not None and isinstance(method.func, ast.Attribute):
        if method.func.attr not in GIVING_BACK:
            return None
        value = method
    stmt = module.parents.get(value)
    if not isinstance(stmt, ast.Assign) or stmt.value is not value or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]
    if isinstance(target, ast.Name):
        scope = module.scope_of(stmt)
        binder = scope.binder(target.id)
        if binder is None or binder.is_class or (binder.function is None and _imported(program, module, target.id)):
            return None
        uses = [(module, n) for n in module.loads.get(target.id, ()) if module.scope_of(n).binder(target.id) is binder]
    elif isinstance(target, ast.Attribute) and program.is_self(module.scope_of(stmt), target.value) is not None:
        uses = [(m, n) for m in program.having(target.attr) for n in m.loads.get(target.attr, ())]
    else:
        return None
    found = [(m, _run(m, n)) for m, n in uses]
    return [(m, call) for m, call in found if call is not None] if all(_is_asked(m, n) for m, n in uses) else None


def _imported(program: Program, own: Module, name: str) -> bool:
    """Whether another file may read a variable of a file."""
    others = (m for m in program.having(name) if m is not own)
    return any(
        m.stars or _imports(m, name) or any(type(n) is ast.Attribute for n in m.loads.get(name, ())) for m in others
    )


def _imports(module: Module, name: str) -> bool:
    return any(a.name == name for n in syntax.every(module.tree, ast.ImportFrom) for a in n.names)


def _method(module: Module, value: ast.expr) -> ast.Call | None:
    """The call of a method of a value: `value.cuda()`."""
    asked = module.parents.get(value)
    call = module.parents.get(asked) if isinstance(asked, ast.Attribute) else None
    return call if isinstance(call, ast.Call) and call.func is asked else None


def _run(module: Module, held: ast.expr) -> ast.Call | None:
    """The call that runs what is held: `held(x)`, `held.forward(x)`."""
    call = module.parents.get(held)
    if isinstance(call, ast.Call) and call.func is held:
        return call
    method = _method(module, held)
    runs = method is not None and isinstance(method.func, ast.Attribute) and method.func.attr in ("forward", "__call__")
    return method if runs else None


def _is_asked(module: Module, held: ast.expr) -> bool:
    """Whether a use calls what is held, or a method of it that gives back no object, or gives it back to nobody."""
    if _run(module, held) is not None:
        return True
    method = _method(module, held)
    if method is None or not isinstance(method.func, ast.Attribute):
        return False
    to_nobody = isinstance(module.parents.get(method), ast.Expr)
    return to_nobody or method.func.attr not in PLAIN
