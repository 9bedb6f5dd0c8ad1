"""What is made half by a method, `model.half()`, and does it stay so?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import conditions
from amp_migrate.audit.program.module import Module

MOVING = frozenset({"cuda", "to", "train"})


def made_half(module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that make something half, and what: `model.half()`; not what rounds it alone, `model.half().float()`."""
    found = ((call, holder) for call, holder in module.method_calls("half") if not call.args)
    return ((call, holder) for call, holder in found if last_cast(module, call.func) == "half")


def last_cast(module: Module, made: ast.AST) -> str | None:
    """The last method of those called on a value where it is made that gives it a dtype: `float` of `zeros(3).half().float()`."""
    last: str | None = None
    at: ast.AST | None = made
    while isinstance(at, (ast.Attribute, ast.Call)):
        if isinstance(at, ast.Attribute) and at.attr in ("half", "float", "double", "bfloat16"):
            last = at.attr
        up = module.parents.get(at)
        if isinstance(up, ast.Call) and up.func is not at:
            break  # what it is given to
        at = up
    return last


def made_float_again(module: Module, call: ast.Call, model: ast.expr) -> bool:
    """Whether the function makes it float32 again further down, wherever it did not: for an evaluation in between."""
    name = syntax.text(model)
    no_list = (f"type({name}) != list True", f"type({name}) == list False", f"isinstance({name}, list) False")
    asked = {*conditions(module, module.statement(call)), *no_list}  # a list has no half()
    return any(
        syntax.text(holder) == name
        and module.function_around(c) is module.function_around(call)
        and call.lineno < c.lineno
        and asked.issuperset(conditions(module, module.statement(c)))
        for c, holder in module.method_calls("float")
    )


def copied(value: ast.expr) -> bool:
    """`deepcopy(model).half()`, `model.eval().half()`: a copy for saving, or one that is not trained."""
    return isinstance(value, ast.Call)


def made_there(value: ast.expr) -> bool:
    """`Net().cuda().half()`: what is made half is made there, and no copy of a model."""
    value = syntax.chained(value, MOVING)
    return isinstance(value, ast.Call) and syntax.last(value.func) not in ("deepcopy", "copy", "eval")
