"""How the older APIs read beside their plain counterparts: `optimizer.backward(loss)` and `loss.backward()`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

# Calls of a handle or an FP16_Optimizer that go without replacement.
WITHOUT_EFFECT = frozenset({"update_master_grads", "_clear_cache", "_deactivate"})

Pairs = list[tuple[ast.expr, ast.expr]]


def same_legacy(
    call: ast.Call, func: ast.Attribute, plain: ast.Call, clips: Sequence[ast.Call]
) -> tuple[Pairs, dict[ast.Call, ast.expr]] | None:
    """What must be equal for a call of the older API to be its plain counterpart, and the parameters that a
    counterpart of `clip_master_grads` names; None where the two are not of that kind."""
    if not isinstance(plain.func, (ast.Attribute, ast.Name)):
        return None
    name = plain.func.attr if isinstance(plain.func, ast.Attribute) else plain.func.id
    if func.attr == "backward" and isinstance(plain.func, ast.Attribute) and name == "backward":
        loss = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "loss"), None)
        if loss is None or plain.args or ast.dump(func) == ast.dump(plain.func):
            return None
        mine = {k.arg: k.value for k in call.keywords if k.arg not in ("loss", "update_master_grads")}
        other = {k.arg: k.value for k in plain.keywords}
        if mine.keys() != other.keys():
            return None
        return [(loss, plain.func.value), *((mine[k], other[k]) for k in mine)], {}
    if func.attr == "clip_master_grads" and call in clips and name in ("clip_grad_norm_", "clip_grad_norm"):
        limits = [*call.args, *(k.value for k in call.keywords)]
        others = [*plain.args[1:], *(k.value for k in plain.keywords)]
        if not plain.args or len(limits) != len(others):
            return None
        return list(zip(limits, others, strict=True)), {call: plain.args[0]}
    return None
