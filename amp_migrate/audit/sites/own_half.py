"""What `.half()` does of an object whose class has a method of that name: all of its weights, something of it, or nothing."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Literal

from amp_migrate.audit.dtypes import HALF_TYPES
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

HALF = re.compile(r"\b(half|float16|HalfTensor|bfloat16)\b")
CASTING = frozenset({"to", "type"})
Halving = Literal["all", "some", "nothing"]


def halves(both: Mixed, module: Module, call: ast.Call) -> Halving:
    """What a call of `half` makes half, after: "all" also where no class in sight has such a method."""
    values = both.after.values
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    origins = values.origins(module.scope_of(on), on) if on is not None else ()
    made = [cls for origin in origins for cls in values.made(origin)]
    own = [both.review.after._method(cls, "half") for cls in made]
    if not all(own) or not own or any(_whole(both, f) for found in own for f in found):
        return "all"
    return "some" if any(_mentions(both, f) for found in own for f in found) else "nothing"


def _whole(both: Mixed, function: Function) -> bool:
    """Whether a method makes all weights half in any case: `super().half()`, `self.to(torch.half)`."""
    own = {"self", "super()"}
    for stmt in function.node.body:
        for call in syntax.every(stmt, ast.Call) if not isinstance(stmt, (ast.If, ast.Try)) else ():
            func = call.func
            if not isinstance(func, ast.Attribute):
                continue
            by_class = syntax.last(func.value) == "Module" and [syntax.text(a) for a in call.args] == ["self"]
            if func.attr == "half" and (syntax.text(func.value) == "super()" or by_class):
                return True
            kinds = [*call.args, *(k.value for k in call.keywords)] if func.attr in CASTING else []
            if syntax.text(func.value) in own and any(
                both.review.after.dotted(function.scope, kind) in HALF_TYPES for kind in kinds
            ):
                return True
    return False


def _mentions(both: Mixed, function: Function) -> bool:
    """Whether a method, or a function that it hands itself to, speaks of half at all."""
    handed = (
        c for c in syntax.every(function.node, ast.Call) if any(syntax.text(a) == "self" for a in syntax.given(c))
    )
    program = both.review.after
    run = [function, *(f for c in handed for f in program.callees(function.module, c))]
    return any(HALF.search(syntax.text(stmt)) for f in run for stmt in f.node.body)
