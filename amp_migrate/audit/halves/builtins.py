"""What functions of Python's own give of what they are given: `dict(a=x)`, `zip(xs, ys)`, `map(torch.sigmoid, outputs)`."""

from __future__ import annotations

import ast

from amp_migrate.audit.halves.containers import Containers
from amp_migrate.audit.halves.tensors import INTEGER, NOTHING, NUMBER, UNKNOWN, Value, keyed


class Builtins(Containers):
    """What calls of them give in one body."""

    def applied(self, expr: ast.Call, function: ast.expr, given: list[Value]) -> Value:
        """What a function gives that a call runs with these."""
        raise NotImplementedError

    def builtin(self, expr: ast.Call, name: str, given: list[Value], named: dict[str | None, Value]) -> Value:
        if name == "dict":
            if given and given[0].keys and not named:
                return given[0]
            return keyed({k: v for k, v in named.items() if k is not None})
        if name in ("int", "len", "float", "round", "range"):
            return NUMBER if name != "range" else Value("?", "?", (NUMBER,))
        if not given:
            return NOTHING if name in ("list", "tuple", "set") else UNKNOWN
        if name in ("list", "tuple", "iter", "sorted", "reversed"):
            return given[0]
        if name == "map" and len(given) > 1:  # `map(torch.sigmoid, outputs)`
            return self.applied(expr, expr.args[0], [v.entry() for v in given[1:]])
        if name == "next":
            return given[0].entry()
        if name in ("zip", "enumerate"):
            entries = [v.entry() for v in given]
            turn = tuple(entries) if name == "zip" else (INTEGER, entries[0])
            return Value("?", "?", (Value("?", "?", turn),))
        return UNKNOWN
