"""Events between the scaled backward and the step of the program after: who listens sees gradients times the scale.

Proved: in one block a backward of a scaled loss comes, then a call out of sight that says that a backward has run or a step is
next, then a step by the scaler, and nothing unscales before the call. Not proved: that anyone listens, and reads gradients.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import BLOCKS, Module
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP232: see `stepping.py`

MOMENT = re.compile(r"backward|(before|pre)_?(optimi[sz]er_?)?step", re.IGNORECASE)
SAYING = re.compile(
    r"^(on|after|post|before|pre)_|fire|trigger|emit|notify|dispatch|hook|callback|event|publish|signal|^call_|^call$",
    re.IGNORECASE,
)


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        module = change.after
        if "scale_loss" not in change.before.words or "backward" not in module.read.lower():
            continue
        for block in _blocks(module):
            scaled = False
            for stmt in block:
                calls = [*syntax.every(stmt, ast.Call)]
                names = {syntax.last(c.func) for c in calls}
                if scaled and (heard := next((c for c in calls if _fires(review, module, c)), None)) is not None:
                    message = (
                        f"{syntax.text(heard)[:60]}: gradients are scaled where this event comes, and were not with Apex: what "
                        "listens to it and clips or logs them sees them times the scale. Unscale before it, or see that nothing does"
                    )
                    yield review.doubt(module, heard, "AMP232", "unscale_", message, "review", ("AMP301",))
                    break
                if names & {"unscale_", "step"}:
                    scaled = False
                elif "backward" in names and any(_scales(c) for c in calls):
                    scaled = True


def _blocks(module: Module) -> Iterable[list[ast.stmt]]:
    for node in syntax.walk(module.tree):
        for name in BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _scales(call: ast.Call) -> bool:
    """`scaler.scale(loss)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "scale"
        and "scaler" in syntax.text(call.func).lower()
    )


def _fires(review: Review, module: Module, call: ast.Call) -> bool:
    name = syntax.last(call.func)
    if name in ("backward", "step") or name.startswith(("register", "remove")) or not SAYING.search(name):
        return False
    texts = [name, *(_text(v) for v in syntax.given(call))]
    return any(MOMENT.search(t) for t in texts) and not review.after.callees(module, call)


def _text(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) and " " not in value.value else ""
    return syntax.text(value) if isinstance(value, (ast.Attribute, ast.Name)) else ""
