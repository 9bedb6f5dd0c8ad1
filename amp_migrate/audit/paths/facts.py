"""What is known of the tests of a body on a path through it: how they came out, and what follows from that."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.syntax import text

Facts = frozenset[tuple[str, bool]]
NOTHING: Facts = frozenset()


def outcome(test: ast.expr, facts: Facts) -> bool | None:
    """How a test comes out, given how others came out; None where that is open."""
    test = asked(test)
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = outcome(test.operand, facts)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        found = [outcome(v, facts) for v in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in found:
            return decisive
        if None not in found:
            return not decisive
    key, positive = _key(test)
    if (key, positive) in facts:
        return True
    if (key, not positive) in facts:
        return False
    return _excluded(test, facts)


def asked(test: ast.expr) -> ast.expr:
    """What a test asks for: `x` of `bool(x)`."""
    while (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "bool"
        and len(test.args) == 1
    ):
        test = test.args[0]
    return syntax.one_by_one(test) if isinstance(test, ast.Compare) else test


_COMPARING: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compared(test: ast.Compare, facts: Facts) -> bool | None:
    """How a comparison with a constant comes out: `x == "a"` is false where `x == "b"` holds, and `x > 0` where `x == 0` does."""
    compare, left, right = _COMPARING.get(type(test.ops[0])), test.left, test.comparators[0]
    for asks, fixed in ((left, right), (right, left)):
        if compare is None or len(test.ops) > 1 or not isinstance(fixed, ast.Constant):
            continue
        start = f"{text(asks)} == "
        for known in (fact for fact, holds in facts if holds and fact.startswith(start)):
            try:
                value = ast.literal_eval(known.removeprefix(start))
                return bool(compare(value, fixed.value) if fixed is right else compare(fixed.value, value))
            except (ValueError, SyntaxError, TypeError):
                continue
    return None


def _excluded(test: ast.expr, facts: Facts) -> bool | None:
    """What a comparison tells; and a test of `x` is false where `x is None`."""
    if isinstance(test, ast.Compare) and (known := _compared(test, facts)) is not None:
        return known
    if isinstance(test, (ast.Name, ast.Attribute)) and (f"{text(test)} is None", True) in facts:
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        if text(test.comparators[0]) == "None" and (text(test.left), True) in facts:
            return isinstance(test.ops[0], ast.IsNot)
    return None


def learned(test: ast.expr, came_out: bool, facts: Facts) -> Facts | None:
    """The facts once a test came out; None where it cannot come out so."""
    known = outcome(test, facts)
    if known is not None and known is not came_out:
        return None
    return facts | frozenset(_implied(test, came_out, facts))


def _implied(test: ast.expr, came_out: bool, facts: Facts) -> Iterable[tuple[str, bool]]:
    test = asked(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _implied(test.operand, not came_out, facts)
        return
    if isinstance(test, ast.BoolOp):
        if came_out is isinstance(test.op, ast.And):
            for value in test.values:
                yield from _implied(value, came_out, facts)
            return
        open_ = [v for v in test.values if outcome(v, facts) is None]
        if len(open_) == 1:
            yield from _implied(open_[0], came_out, facts)
    if _stable(test):
        key, positive = _key(test)
        yield key, positive is came_out


@lru_cache(maxsize=4096)
def _key(test: ast.expr) -> tuple[str, bool]:
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op = test.ops[0]
        for negative, sign in ((ast.NotEq, "=="), (ast.IsNot, "is"), (ast.NotIn, "in")):
            if isinstance(op, negative):
                return f"{text(test.left)} {sign} {text(test.comparators[0])}", False
    return text(test), True


_ASKING = frozenset(
    "hasattr isinstance is_enabled is_initialized is_available callable bool len isnan isfinite isinf any all item".split()
)


@kept
def _stable(test: ast.expr) -> bool:
    """Whether a test comes out the same when it is asked again: it calls nothing but what only asks."""
    for node in syntax.walk(test):
        if isinstance(node, ast.Call):
            name = syntax.last(node.func)
            if name not in _ASKING and not _asks_for_key(node) and not _asks_by_name(name):
                return False
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.BinOp)):
            if not isinstance(node, ast.BinOp):
                return False
    return True


def _asks_by_name(name: str) -> bool:
    """`self.fp16_enabled()`, `use_apex(args)`: what is called so asks for a setting. `is_last()` may come out otherwise next
    time."""
    return name.endswith(("enabled", "available", "initialized")) or name.startswith(("use_", "uses_", "using_"))


def _asks_for_key(call: ast.Call) -> bool:
    """`state.get("scaler")` only asks; a `queue.get()` takes something out."""
    keyed = bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    return keyed and isinstance(call.func, ast.Attribute) and call.func.attr == "get"


def is_there(place: str, facts: Facts) -> bool:
    """Whether a test told that an item or attribute has a value: `"scaler" in state`, `state.get("scaler")`,
    `hasattr(self, "scaler")`."""
    expr = _parsed(place)
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        holder, key = text(expr.value), text(expr.slice)
        if (f"{key} in {holder}", True) in facts:
            return True
        asked = (f"{holder}.get({key})", f"{holder}.get({key}, None)")
        return any((a, True) in facts or (f"{a} is None", False) in facts for a in asked)
    if isinstance(expr, ast.Attribute):
        return (f"hasattr({text(expr.value)}, {expr.attr!r})", True) in facts
    return False


@kept
def assigned(stmt: ast.stmt) -> frozenset[str]:
    """Names and attributes, as they are written, that a statement (or the head of a compound one) gives a value."""
    heads: list[ast.AST]
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        heads = [stmt.target]
    elif isinstance(stmt, (ast.With, ast.AsyncWith)):
        heads = [i.optional_vars for i in stmt.items if i.optional_vars is not None]
    elif isinstance(stmt, (ast.If, ast.While, ast.Try, ast.Match)):
        heads = list(syntax.every(getattr(stmt, "test", stmt), ast.NamedExpr)) if hasattr(stmt, "test") else []
    elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({stmt.name})
    else:
        heads = [stmt]
    names: set[str] = set()
    for head in heads:
        for node in syntax.walk(head):
            if isinstance(node, (ast.Name, ast.Attribute)):
                if type(node.ctx) is not ast.Load:
                    names.add(text(node))
            elif type(node) is ast.alias:
                names.add((node.asname or node.name).split(".")[0])
    return frozenset(names)


def forget(facts: Facts, names: frozenset[str]) -> Facts:
    """The facts that still hold once names have other values."""
    return _still(facts, names) if names and facts else facts


@lru_cache(maxsize=16384)
def _still(facts: Facts, names: frozenset[str]) -> Facts:
    return frozenset(f for f in facts if not any(reads(f[0], name) for name in names))


@lru_cache(maxsize=16384)
def reads(text: str, name: str) -> bool:
    start = text.find(name)
    while start != -1:
        before = text[start - 1] if start else " "
        after = text[start + len(name)] if start + len(name) < len(text) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
            return True
        start = text.find(name, start + 1)
    return False


EQUALS = " := "  # the fact that a name has the value of an expression, neither of which has changed since


def told(stmt: ast.Assign, before: Facts, facts: Facts) -> Iterable[tuple[str, bool]]:
    """What an assignment tells: the truth of a constant, or that the name is what another is."""
    if len(stmt.targets) != 1 or not isinstance(stmt.targets[0], (ast.Name, ast.Attribute)):
        return
    name, value = text(stmt.targets[0]), stmt.value
    if isinstance(value, ast.Constant):
        yield from constant(name, value)
        return
    value = asked(value)
    if isinstance(value, (ast.Name, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp)) and _stable(value):
        known = outcome(value, before)
        if known is not None:
            yield name, known
        whole = text(value)
        if not reads(whole, name):
            yield f"{name}{EQUALS}{whole}", True


def constant(name: str, value: ast.Constant) -> Iterable[tuple[str, bool]]:
    """What is known of a name that holds a constant."""
    yield name, bool(value.value)
    yield f"{name} is None", value.value is None
    if isinstance(value.value, (str, int)):
        yield f"{name} == {value.value!r}", True


def equals(facts: Facts) -> Facts:
    """The facts, with what holds of a name told of what it is equal to, and the reverse."""
    pairs = [f[0].split(EQUALS, 1) for f in facts if EQUALS in f[0]]
    if not pairs:
        return facts
    known = dict(facts)
    for name, whole in pairs:
        if name in known and whole not in known:
            facts = learned(_parsed(whole), known[name], facts) or facts
        elif name not in known:
            came_out = outcome(_parsed(whole), facts)
            if came_out is not None:
                facts |= {(name, came_out)}
    return facts


def consistent(facts: Facts) -> bool:
    """Whether tests of several parts came out as their parts say, which were asked later."""
    return all(
        outcome(_parsed(fact), facts - {(fact, holds)}) is not (not holds)
        for fact, holds in facts
        if EQUALS not in fact and (" and " in fact or " or " in fact)
    )


@lru_cache(maxsize=512)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
