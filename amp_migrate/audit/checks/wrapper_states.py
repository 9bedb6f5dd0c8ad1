"""Nothing asks the state of an optimizer for what only an FP16_Optimizer's had, where none is made any more.

Proves: `"fp32_from_fp16" in optimizer.state_dict()` and reads of such entries, also by way of variables, fields and calls, are
gone where the optimizer is one that was wrapped. Cannot prove anything of keys that are put together, of states that were read from a
file, or of optimizers of which it is not seen what they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, calls_in, calls_of
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER
from amp_migrate.audit.values.values import Values
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP707: see `rules/older/fp16_optimizer.py`

# What the states of both had that the state of no optimizer has.
KEYS = frozenset(
    "loss_scaler dynamic_loss_scale overflow first_closure_call_this_step optimizer_state_dict fp32_from_fp16 "
    "cur_scale cur_iter last_overflow_iter fp32_groups_flat fp32_groups".split()
)


def check(review: Review) -> Iterable[Doubt]:
    gone = {call for m, call, _ in calls_of(review.before, *FP16_OPTIMIZER) if _is_gone(review, m, call)}
    if not gone:
        return
    for module in review.before.modules.values():
        asked = list(_asking(module)) if any(key in module.text for key in KEYS) else []
        for node, key, holder in asked:
            now = review.statement_now(module, node)
            if now is None or not any(n.value == key for n in syntax.every(now[1], ast.Constant)):
                continue
            if gone.isdisjoint(_wrapped(review, module, holder)):
                continue
            message = (
                f'{syntax.text(node)} asks for "{key}", which the state of the optimizer has no more once no FP16_Optimizer '
                "wraps it: a test for it is False, a read of it raises"
            )
            yield review.doubt(*now, "AMP707", "FP16_Optimizer.state_dict", message)


def _asking(module: Module) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """What asks a mapping for one of the keys, and the mapping."""
    for constant in syntax.every(module.tree, ast.Constant):
        asks = module.parents.get(constant)
        if not isinstance(constant.value, str) or constant.value not in KEYS or not isinstance(asks, ast.expr):
            continue
        if isinstance(asks, ast.Compare) and asks.left is constant and isinstance(asks.ops[0], (ast.In, ast.NotIn)):
            yield asks, constant.value, asks.comparators[0]
        elif isinstance(asks, ast.Subscript) and asks.slice is constant and not isinstance(asks.ctx, ast.Store):
            yield asks, constant.value, asks.value
        elif isinstance(asks, ast.Call) and isinstance(asks.func, ast.Attribute) and asks.args[:1] == [constant]:
            if asks.func.attr in ("get", "pop"):
                yield asks, constant.value, asks.func.value


def _wrapped(review: Review, module: Module, holder: ast.expr) -> set[ast.AST]:
    """The calls that made the optimizers whose state a mapping may be."""
    values: Values = review.values_before
    if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) and holder.func.attr == "keys":
        holder = holder.func.value
    found: set[ast.AST] = set()
    for state in [(module, holder), *((o.module, o.node) for o in values.of(module, holder))]:
        where, call = state
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict":
            found |= {o.node for o in values.of(where, call.func.value)}
    return found


def _is_gone(review: Review, module: Module, call: ast.Call) -> bool:
    """Whether an FP16_Optimizer is made no more where one was."""
    now = review.statement_now(module, call)
    return now is None or not any(c in syntax.walk(now[1]) for c, _ in calls_in(review.after, now[0], FP16_OPTIMIZER))
