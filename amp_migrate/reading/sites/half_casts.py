"""Calls that make something half by hand: `model.half()`, `model.to(torch.float16)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module

HALF = ("torch.half", "torch.float16", "torch.HalfTensor", "torch.cuda.HalfTensor")


def cast_to_half(module: Module, call: ast.Call) -> bool:
    """Whether a call is `.half()`, `.type(torch.cuda.HalfTensor)` or `.to(torch.half)` of something."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "half":
        return not call.args and not call.keywords
    return call.func.attr in ("type", "to") and bool(half_arguments(module, call))


def half_arguments(module: Module, call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments of a call that ask for float16."""
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return [a for a in given if module.qualify(a.value if isinstance(a, ast.keyword) else a) in HALF]
