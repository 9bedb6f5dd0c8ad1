"""Command-line options that a program declares with argparse."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module


def declared(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """The attribute that holds each option, and the `add_argument` call that declares it."""
    if "add_argument" not in module.text:
        return
    short = {
        target.id
        for node in module.named.get("add_argument", ())
        if isinstance(stmt := module.parents.get(node), ast.Assign) and stmt.value is node
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    for call, _ in module.calls:
        called = call.func
        if not (
            (isinstance(called, ast.Attribute) and called.attr == "add_argument")
            or (isinstance(called, ast.Name) and called.id in short)  # arg = parser.add_argument
        ):
            continue
        named = [k.value.value for k in call.keywords if k.arg == "dest" and isinstance(k.value, ast.Constant)]
        options = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = [o for o in options if o.startswith("--") or not o.startswith("-")]
        for name in named or [o.lstrip("-").replace("-", "_") for o in (long or options)[:1]]:
            yield str(name), call
