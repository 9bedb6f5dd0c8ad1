"""What is put into lists, sets and dictionaries, and what these hold then."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from amp_migrate.audit.halves.called import methods
from amp_migrate.audit.halves.library import Library
from amp_migrate.audit.halves.tensors import NOTHING, UNKNOWN, Value, join, keyed
from amp_migrate.audit.program import syntax

PUTTING = frozenset("append extend add insert update appendleft".split())


class Containers(Library):
    """What one body puts into containers."""

    def put_in(
        self,
        expr: ast.Call,
        func: ast.Attribute,
        receiver: Value,
        given: list[Value],
        named: Mapping[str | None, Value],
    ) -> bool:
        """`found.append(x)`, `found[key].extend(xs)`, `found.setdefault(key, []).append(x)`, `found.update(logits=x)`."""
        holder = _entry(func.value)
        tensor = receiver.items is None and receiver.now in ("half", "float")  # `x.add(y)` gives their sum
        if holder is None or (tensor and func.attr == "add") or not self.container(expr, func.value):
            return False
        if func.attr != "update":
            if given:
                self.put(holder, given[-1] if func.attr == "extend" else self.appended(given[-1]))
            return True
        for value in (*given[:1], *([keyed({k: v for k, v in named.items() if k is not None})] if named else [])):
            old = self.env.get(holder, receiver)
            if not self.update(holder, old, value):
                self.put(holder, value._replace(beside=old == UNKNOWN and value.items is None))
        return True

    def container(self, expr: ast.Call, receiver: ast.expr) -> bool:
        """Whether something is put into a list, set or dictionary: no method of the program's own."""
        return self.env.get(syntax.text(receiver), UNKNOWN) != UNKNOWN or not methods(
            self.halves, self.module.scope_of(expr), expr
        )

    def update(self, container: str, old: Value, new: Value) -> bool:
        """`results.update({"logits": out})`: whether both are dictionaries whose entries are known."""
        if not new.keys or not (old.keys or old in (UNKNOWN, NOTHING)):
            return False
        entries = [*zip(old.keys, old.items or (), strict=True), *zip(new.keys, new.items or (), strict=True)]
        self.store(container, keyed(dict(entries)))
        return True

    @staticmethod
    def appended(value: Value) -> Value:
        """A list of pairs keeps them apart."""
        return Value("?", "?", (value,)) if value.items and (value.keys or len(value.items) > 1) else value

    def put(self, text: str, value: Value) -> None:
        old = self.env.get(text, UNKNOWN)
        if not value.items or value.keys or len(value.items) > 1:
            value = value.entry().holding(None)
        self.store(text, value if old == UNKNOWN else join([old, value]))


def _entry(expr: ast.expr) -> str | None:
    """How what is put into is written, as an entry of what holds it: `found[key]` of `found.setdefault(key, [])`."""
    if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
        return syntax.text(expr)
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.args:
        if expr.func.attr in ("setdefault", "get") and isinstance(expr.func.value, (ast.Name, ast.Attribute)):
            return f"{syntax.text(expr.func.value)}[{syntax.text(expr.args[0])}]"
    return None
