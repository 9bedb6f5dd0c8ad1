"""No call hands over None for a parameter that came with the migration, where something is asked of that on every path.

Proved: of each such None, the functions that the call runs ask no attribute of the parameter (`scaler.is_enabled()`),
themselves or in what they hand it to, in statements that stand under no test and after no return.

Not proved: what is asked under a test, which may be one of the same None; and calls whose function is out of sight.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, conditions
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP137",
        title="None would be handed over where something is asked of it",
        construct="a call",
        apex="Nothing is handed over: Apex keeps its state in its own module.",
        native="A scaler is an object. Where there is none to hand over, one with enabled=False does nothing, and answers.",
        why="The function would stop with an AttributeError: 'NoneType' object has no attribute 'is_enabled'.",
    ),
)
DEPTH = 4  # functions that hand it on
LAZY = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        for call, function, name in _given(review, change):
            asked = _asked(review.after, function, name, DEPTH)
            if asked is not None:
                message = (
                    f"{function.name} is given None for {name} here, and asks {syntax.text(asked)} of it in any case"
                )
                yield review.doubt(change.after, call, "AMP137", name, message)


def _given(review: Review, change: Change) -> Iterator[tuple[ast.Call, Function, str]]:
    """The calls of functions of the program that hand over None for a parameter which came with the migration, and which."""
    program = review.after
    for stmt in (*change.added, *change.rewritten):
        for node in syntax.own_line(stmt):
            if not isinstance(node, ast.Call) or not any(syntax.is_none(v) for v in syntax.given(node)):
                continue
            for function in program.definitions(change.after.scope_of(node), node.func, guess=False):
                if isinstance(function, Function):
                    given = program.arguments(function, node) or {}
                    names = {name for name, value in given.items() if syntax.is_none(value)}
                    yield from ((node, function, name) for name in sorted(names & _new_parameters(review, function)))


def _new_parameters(review: Review, function: Function) -> set[str]:
    """The parameters of a function that it did not have before."""
    change = review.changes.get(function.module.path)
    old = change.function_before(function) if change is not None else None
    return {p.arg for p in function.parameters} - {p.arg for p in old.parameters} if old is not None else set()


def _asked(program: Program, function: Function, name: str, depth: int) -> ast.expr | None:
    """What a function asks of a parameter whatever its tests say; None where it asks nothing."""
    module = function.module
    if not depth or len(function.scope.bindings.get(name, ())) != 1:
        return None
    left = min((n.lineno for n in syntax.own(function.node, ast.Return)), default=None)
    for node in syntax.own(function.node, ast.Name):
        if node.id != name or (left is not None and node.lineno > left) or not _surely_run(module, function, node):
            continue
        parent = module.parents.get(node)
        if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load):
            return parent
        call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or node is call.func:
            continue
        for inner in program.definitions(module.scope_of(call), call.func, guess=False):
            if isinstance(inner, Function):
                for parameter, value in (program.arguments(inner, call) or {}).items():
                    if value is node and (found := _asked(program, inner, parameter, depth - 1)) is not None:
                        return found
    return None


def _surely_run(module: Module, function: Function, node: ast.AST) -> bool:
    """Whether a node stands under no test of a function; loops are taken to turn."""
    stmt = module.statement(node)
    if conditions(module, stmt) or isinstance(stmt, ast.Assert):
        return False
    for at in module.ancestors(node):
        if at is function.node:
            return True
        if isinstance(at, (*LAZY, ast.ExceptHandler, ast.FunctionDef, ast.ClassDef)):
            return False
    return False
