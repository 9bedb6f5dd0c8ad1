"""Where the casts of O1 were switched off: in `with amp.disable_casts():`, however that is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.ways.formulas import Formula, disjunction
from amp_migrate.audit.ways.trails import Place

if TYPE_CHECKING:
    from amp_migrate.audit.review import Review
    from amp_migrate.audit.side import Side
    from amp_migrate.audit.ways.chains import Chain

DEEPEST = 4  # names and functions that hand it on
NOT_HALF = "its weights had not been made half"
DISABLED = "amp.disable_casts() had switched its casts off"


def was_float32(review: Review, chain: Chain, patched: bool = True) -> str:
    """Why what a way of the program after comes to ran in float32, where it did. `patched`: Apex may have patched torch for all
    of a process; else it made single objects half."""
    steps = (review.statement_before(s.module, s.node) for s in chain.steps if not s.value)
    disabled = any(s is not None and casts_disabled(review.before, *s) for s in steps)
    return DISABLED if disabled else "Apex had not been set up for it before" if patched else NOT_HALF


def casts_off(side: Side, chain: Chain) -> Formula:
    """Under which condition the casts of O1 were off on a way."""
    found: list[Formula] = []
    for step in chain.steps:
        if step.value or not casts_disabled(side.program, step.module, step.node):
            continue
        given = [g for opened in _opened(step.module, step.node) for g in _given(side.program, step.module, opened)]
        where = [(m, m.statement(node)) for m, node, disables in given if disables]
        decided = where and not all(disables for *_, disables in given)
        places = ((side.chains.tests(m, stmt), Place(m.scope_of(stmt), chain=chain)) for m, stmt in where)
        found.append(disjunction(side.predicates.under(*place) for place in places) if decided else True)
    return disjunction(found)


def _opened(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """The context managers around a node in its function, and what decorates that."""
    for around in module.ancestors(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from around.decorator_list
            return
        if isinstance(around, (ast.With, ast.AsyncWith)):
            yield from (item.context_expr for item in around.items)


def _given(program: Program, module: Module, opened: ast.expr) -> Iterator[tuple[Module, ast.AST, bool]]:
    """What the functions of the program give that open one, and whether that is it."""
    called = (
        program.definitions(module.scope_of(opened), opened.func, guess=False) if isinstance(opened, ast.Call) else ()
    )
    for function in (d for d in called if isinstance(d, Function)) if _disables(program, module, opened) else ():
        home = function.module
        for gives in syntax.own(function.node, ast.Return):
            if gives.value is not None:
                yield home, gives, _disables(program, home, gives.value)
        for at in syntax.own(function.node, ast.Yield):
            yield home, at, any(_disables(program, home, e) for e in _opened(home, at))


@kept
def casts_disabled(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node stands within its function where `amp.disable_casts()` was entered, perhaps under a test: by a `with`, on
    the stack that one opens, or around the function."""
    if not program.having("disable_casts"):
        return False
    for around in module.ancestors(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(_disables(program, module, d) for d in around.decorator_list)
        for item in around.items if isinstance(around, (ast.With, ast.AsyncWith)) else ():
            if _disables(program, module, item.context_expr) or _on_stack(program, module, around, item, node):
                return True
    return False


def _disables(program: Program, module: Module, opened: ast.expr, depth: int = 0) -> bool:
    """Whether a context manager may be that of `disable_casts`, or one that enters it."""
    if depth > DEEPEST:
        return False
    if isinstance(opened, ast.IfExp):
        return any(_disables(program, module, arm, depth + 1) for arm in (opened.body, opened.orelse))
    scope = module.scope_of(opened)
    if isinstance(opened, ast.Name):
        binder = scope.binder(opened.id)
        given = (b.value for b in binder.bindings[opened.id] if isinstance(b, ast.Assign)) if binder is not None else ()
        return binder is not None and any(_disables(program, binder.module, v, depth + 1) for v in given)
    if not isinstance(opened, ast.Call):
        return False
    if syntax.last(opened.func) == "disable_casts":  # without a full name: of an amp that some object keeps
        return program.dotted(scope, opened.func) in (None, "apex.amp.disable_casts")
    for function in program.definitions(scope, opened.func, guess=False):
        if not isinstance(function, Function):
            continue
        returned = (r.value for r in syntax.own(function.node, ast.Return) if r.value is not None)
        yielding = (
            item.context_expr
            for w in syntax.own(function.node, ast.With)
            if any(syntax.every(w, ast.Yield))
            for item in w.items
        )
        if any(_disables(program, function.module, e, depth + 1) for e in (*returned, *yielding)):
            return True
    return False


def _on_stack(program: Program, module: Module, holder: ast.AST, item: ast.withitem, node: ast.AST) -> bool:
    """Whether casts were disabled above a node by `stack.enter_context(...)` of the stack that a `with` opens."""
    if not isinstance(item.optional_vars, ast.Name):
        return False
    for call in syntax.every(holder, ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "enter_context" and len(call.args) == 1:
            above = call.lineno < getattr(node, "lineno", 0)
            if above and syntax.text(func.value) == item.optional_vars.id and _disables(program, module, call.args[0]):
                return True
    return False
