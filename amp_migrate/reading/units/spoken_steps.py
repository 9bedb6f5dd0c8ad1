"""Steps that are made in other words than `optimizer.step()`: by name (`getattr(optimizer, "step")()`), as a value
(`advance = optimizer.step`, `advance()`), in a lambda that does nothing else (`advance = lambda: optimizer.step()`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.values.reaching import reaching

_LIBRARIES = ("torch.cuda.", "torch.no_grad", "torch.profiler.", "torch.autograd.profiler.", "time.", "logging.")
_BUILT_IN = frozenset("print len isinstance bool int float".split())


class Spoken(NamedTuple):
    """A call that steps, and what it steps."""

    call: ast.Call
    optimizer: ast.expr
    kept: ast.Assign | None = None  # what gives the step its name, and nothing else needs
    method: ast.expr | None = None  # the step as it is written there


def spoken_steps(project: Project, module: Module) -> list[Spoken]:
    """The steps of a file in other words, whosever they are; see `Project.once`."""
    if not module.named.get("step"):
        return []
    found: list[Spoken] = []
    for node in module.named["step"]:
        method = _asked(module, node) if isinstance(node, ast.Constant) else node
        if isinstance(method, ast.Call) and isinstance(call := module.parents[method], ast.Call):
            found += [Spoken(call, method.args[0], method=method)] if call.func is method else []
        if isinstance(method, (ast.Attribute, ast.Call)):
            found += _kept(project, module, method)
    return found


def _asked(module: Module, name: ast.Constant) -> ast.Call | None:
    """`getattr(optimizer, "step")`."""
    call = module.parents.get(name)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "getattr":
        if call.args[1:] == [name] and not call.keywords:
            return call
    return None


def _kept(project: Project, module: Module, method: ast.Attribute | ast.Call) -> list[Spoken]:
    """The calls of the one name that a method is given, where nothing else is done with that name."""
    value: ast.AST = method
    parent = module.parents.get(method)
    lazy = isinstance(parent, ast.Call) and parent.func is method and isinstance(module.parents[parent], ast.Lambda)
    if lazy:
        value = module.parents[module.parents[method]]
    stmt = module.parents.get(value)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or stmt.value is not value:
        return []
    name, scope = stmt.targets[0], module.scope_of(stmt)
    if not isinstance(name, ast.Name) or scope.is_class or scope.lookup(name.id) is not scope:
        return []
    if isinstance(value, ast.Lambda) and (_parameters(value) or (isinstance(parent, ast.Call) and _given(parent))):
        return []
    uses = [n for n in scope.reads(name.id) if name in reaching(scope, n)]
    optimizer = method.value if isinstance(method, ast.Attribute) else method.args[0]
    calls = [call for n in uses if (call := _called(module, scope, n)) and list(reaching(scope, n)) == [name]]
    if len(calls) < len(uses) or (scope.is_module and any(project.handed_on.readers(module, name.id))):
        return []
    if not lazy and not all(_right_after(module, stmt, call, optimizer) for call in calls):
        return []
    return [Spoken(call, optimizer, stmt, method) for call in calls]


def _parameters(value: ast.Lambda) -> bool:
    a = value.args
    return bool(a.posonlyargs or a.args or a.kwonlyargs or a.vararg or a.kwarg)


def _given(call: ast.Call) -> bool:
    return bool(call.args or call.keywords)


def _called(module: Module, scope: Scope, name: ast.Name) -> ast.Call | None:
    """The call of a name as a statement of the function that binds it."""
    call = module.parents.get(name)
    if isinstance(call, ast.Call) and call.func is name and not _given(call) and module.scope_of(call) is scope:
        stmt = module.parents[call]
        return call if isinstance(stmt, (ast.Expr, ast.Assign, ast.Return)) else None
    return None


def _right_after(module: Module, kept: ast.Assign, call: ast.Call, optimizer: ast.expr) -> bool:
    """Whether a step is called before anything may have put another in its place, as Apex does after an overflow, or may
    have given the optimizer's name to another; also in a branch below."""
    block, stmt = module.block(kept), module.statement(call)
    between: list[ast.AST] = []
    while stmt not in block:
        around = module.parents[stmt]
        if not isinstance(around, (ast.If, ast.With)):
            return False
        own = module.block(stmt)
        between += own[: own.index(stmt)]
        between += [around.test] if isinstance(around, ast.If) else around.items
        stmt = around
    between += block[block.index(kept) + 1 : block.index(stmt)]
    names = identifiers(optimizer)
    return block.index(stmt) > block.index(kept) and not any(
        _changes(module, n, names) for s in between for n in walk(s)
    )


def _changes(module: Module, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        return isinstance(node, ast.Attribute) or node.id in names
    if isinstance(node, ast.Call):  # what runs nothing of the program's
        name = module.qualify(node.func) or ast.unparse(node.func)
        return name not in _BUILT_IN and not name.startswith(_LIBRARIES)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return not all(isinstance(i.context_expr, ast.Call) for i in node.items)
    return isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))


def in_lambda(steps: list[Spoken]) -> Iterator[ast.Call]:
    """The calls that stand in the lambdas: they step where these are called."""
    for step in steps:
        if step.kept is not None and isinstance(step.kept.value, ast.Lambda):
            if isinstance(step.kept.value.body, ast.Call):
                yield step.kept.value.body
