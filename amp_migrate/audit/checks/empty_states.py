"""The state that a disabled scaler saves, `{}`, is not loaded into one that is enabled, which refuses it.

Proved: where a way that saves a scaler's state may come there with the scaler disabled, each load of one that came with the
migration asks for the state itself, not only whether its key is there. Cannot prove anything of states that are read in
other programs, nor of tests that functions make.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.checks.state import calls_on_scaler, seen_scaler
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.formulas import conjunction, example, negation
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP431: see `state.py`


def check(review: Review) -> Iterable[Doubt]:
    loads = [
        (module, call)
        for module, call in calls_on_scaler(review, "load_state_dict")
        if module.path in review.changes and review.changes[module.path].changed(call) and not _asked(module, call)
    ]
    if not loads:
        return
    both = mixed(review)
    if not any(_may_be_off(both, module, call) for module, call in calls_on_scaler(review, "state_dict")):
        return
    for module, call in loads:
        message = (
            "a run without mixed precision saves {} as the scaler's state, which load_state_dict refuses in a run with it (The "
            "source state dict is empty): load it only where there is one"
        )
        yield review.doubt(module, call, "AMP431", "load_state_dict", message, "review")


def _may_be_off(both: Mixed, module: Module, call: ast.Call) -> bool:
    """Whether a run may save the state of a scaler that is disabled."""
    assert isinstance(call.func, ast.Attribute)
    predicates = both.after.predicates
    if not seen_scaler(both.after.values, module, call.func.value):
        return False
    for chain in both.after.chains.to(module, call):
        on = predicates.scaler_on(call.func.value, predicates.places(chain)[-1])
        if example(conjunction([predicates.given(chain), negation(on)])) is not None:
            return True
    return False


def _asked(module: Module, call: ast.Call) -> bool:
    """Whether a test around a load, or a value beside it, asks for more than a key: `if checkpoint.get("scaler"):`."""
    state = call.args[0] if call.args else None
    if not isinstance(state, ast.Subscript):
        return True
    key = syntax.text(state.slice)
    for around in module.ancestors(call):
        tests = [around.test] if isinstance(around, (ast.If, ast.IfExp)) else []
        tests += around.values if isinstance(around, ast.BoolOp) else []
        for test in tests:
            for node in syntax.walk(test):
                asks_key = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
                if (
                    not asks_key
                    and isinstance(node, ast.Call)
                    and syntax.last(node.func) in ("get", "is_enabled", "len")
                ):
                    return True
                if isinstance(node, ast.Subscript) and syntax.text(node.slice) == key:
                    return True
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
    return False
