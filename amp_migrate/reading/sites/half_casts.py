"""Calls that make something half by hand: `model.half()`, `model.to(torch.float16)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached

CASTING = ("half", "float16", "HalfTensor", "to", "type", "apply", "_apply")  # what may make something half
HALF = ("torch.half", "torch.float16", "torch.HalfTensor", "torch.cuda.HalfTensor")


def cast_to_half(module: Module, call: ast.Call) -> bool:
    """Whether a call is `.half()`, `.type(torch.cuda.HalfTensor)` or `.to(torch.half)` of something."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "half":
        return not call.args and not call.keywords
    return call.func.attr in ("type", "to") and bool(half_arguments(module, call))


def casts_nothing(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether `.half()` runs a method of the program's own by which nothing becomes half: half of a sum, say."""

    def below(function: Function) -> list[Function]:
        return [f for n in function.inside if isinstance(n, ast.Call) for f in project.resolved.get(n, ())]

    functions = project.resolved.get(call, ())
    inside = (n for f in reached(functions, below) for n in f.inside)
    return bool(functions) and not any(isinstance(n, ast.Attribute) and n.attr in CASTING for n in inside)


def half_arguments(module: Module, call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments of a call that ask for float16."""
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return [a for a in given if module.qualify(a.value if isinstance(a, ast.keyword) else a) in HALF]
