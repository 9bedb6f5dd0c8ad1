"""Functions that hand on what they are given: `def train(*args, **kwargs): return run(*args, **kwargs)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import Function

OWN = ast.Constant(None)  # stands for an argument that the function gives itself


def passed_on(function: Function, call: ast.Call) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls in a function that unpack its own `*args` and `**kwargs`, and the same with what a call of the function gives
    in their place. `OWN` holds the place of what it names itself."""
    own = {p.arg for p in function.parameters}
    for inner, stars, unpacked in function.unpacking:
        args: list[ast.expr] = []
        for arg in inner.args:
            args += call.args[len(function.positional) :] if arg in stars else [OWN]
        named = [k for k in call.keywords if k.arg is not None and k.arg not in own] if unpacked else []
        yield inner, ast.Call(inner.func, args, named)
