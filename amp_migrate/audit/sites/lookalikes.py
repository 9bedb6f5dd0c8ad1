"""Calls that look like those of a network by the name of a field, and run a method of a tensor or of a text, or make something."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

# Of tensors; data sets and networks have fields of such names.
REDUCING = frozenset("sum mean std var prod max min".split())


def reduces(call: ast.Call) -> bool:
    """Whether a call reduces a tensor, where a network is given an input: `loss.mean()`, `x.mean(dim=1)`, `x.max(-1)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in REDUCING:
        return False
    return not any(isinstance(n, (ast.Name, ast.Call)) for value in call.args for n in syntax.walk(value))


def of_text(call: ast.Call) -> bool:
    """`url.encode("utf-8")`, `name.split(":", 1)`: what text and bytes have, which no network runs without an input."""
    if not isinstance(call.func, ast.Attribute) or (not hasattr(str, call.func.attr) and call.func.attr != "decode"):
        return False
    given = [*syntax.given(call)]
    texts = [v for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)]
    plain = call.func.attr in ("encode", "decode")
    return all(isinstance(v, ast.Constant) for v in given) and (len(texts) == len(given) if plain else bool(texts))


def makes_itself(module: Module, call: ast.Call) -> bool:
    """`model = model(config)`: a class picked out of some is called there, and makes the model."""
    stmt = module.parents.get(call)
    return isinstance(stmt, ast.Assign) and any(syntax.text(t) == syntax.text(call.func) for t in stmt.targets)


def opens(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a context manager: `with model.no_sync():`, `stack.enter_context(ctx())`."""
    parent = module.parents.get(call)
    return isinstance(parent, ast.withitem) or (
        isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "enter_context"
    )
