"""Networks, and methods of theirs, that are handed to what calls them: `map(net.generate, batches)`, `pool.submit(net, x)`,
`operator.methodcaller("generate", x)(net)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.program.program import Program

CALLING = frozenset({"map", "filter"})  # of Python's own: as their results are asked for
ASKING = frozenset("list tuple set frozenset dict sorted sum max min any all extend update join cat stack".split())
OF_POOLS = frozenset("map imap imap_unordered starmap submit apply_async".split())


def run_by_others(
    program: Program, scope: Scope, call: ast.Call, running: Container[str], is_field: Callable[[str], bool]
) -> tuple[ast.expr, str] | None:
    """What is handed over to be called, and what of it runs; `running`: methods that run a network, `is_field`: whether
    objects keep something under a name."""
    made, func = call.func, call.func
    if isinstance(made, ast.Call) and len(call.args) == 1 and made.args and isinstance(made.args[0], ast.Constant):
        name = str(made.args[0].value)
        named = name in running and program.dotted(scope, made.func) == "operator.methodcaller"
        return (call.args[0], name) if named else None
    given = call.args[0] if len(call.args) > 1 else None
    plain = isinstance(func, ast.Name) and func.id in CALLING and scope.binder(func.id) is None
    if not plain and not (isinstance(func, ast.Attribute) and func.attr in OF_POOLS):
        return None
    if isinstance(given, ast.Attribute) and given.attr in running:
        return given.value, given.attr
    known = isinstance(given, ast.Attribute) and is_field(given.attr)
    known |= isinstance(given, ast.Name) and scope.binder(given.id) is not None
    return (given, "data_parallel") if known and given is not None else None


def runs_elsewhere(module: Module, call: ast.Call) -> bool:
    """Whether what a call is handed runs later, or in other threads, whatever stands around the call."""
    func, around = call.func, module.parents.get(call)
    if isinstance(func, ast.Attribute):
        return func.attr in OF_POOLS
    if not isinstance(func, ast.Name) or func.id not in CALLING:
        return False
    asked = isinstance(around, ast.Call) and syntax.last(around.func) in ASKING
    return not asked and not isinstance(around, (ast.For, ast.AsyncFor, ast.comprehension, ast.Starred))


def spelled(call: ast.Call, model: ast.expr, method: str | None) -> str:
    """How a call that runs a model is named: by what it calls, or is handed to call."""
    if method == "data_parallel":
        return f"{syntax.last(call.func)}({syntax.text(model)})"
    own = method in (None, "module") or syntax.last(call.func) == method
    return syntax.text(call.func) if own else f"{syntax.text(model)}.{method}"
