"""Where the casts of O1 were switched off: in `with amp.disable_casts():`, however that is written."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program

if TYPE_CHECKING:
    from amp_migrate.audit.review import Review
    from amp_migrate.audit.ways.chains import Chain

DEEPEST = 4  # names and functions that hand it on
DISABLED = "amp.disable_casts() had switched its casts off"


def was_float32(review: Review, chain: Chain) -> str:
    """Why what a way of the program after comes to ran in float32, where it did."""
    steps = (review.statement_before(s.module, s.node) for s in chain.steps if not s.value)
    disabled = any(s is not None and casts_disabled(review.before, *s) for s in steps)
    return DISABLED if disabled else "Apex had not been set up for it before"


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
