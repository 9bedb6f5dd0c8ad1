"""Conditions under which mixed precision is on, as texts: of casting, and of scaling where that hangs on less."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.program.module import Scope


@dataclass(frozen=True)
class Flag:
    """A conjunction of source texts, evaluated in `scope`, of what is cast. Empty: always on; None as parts: always off.

    `scaling` is that of the loss scaler where it is on in more runs: O0 casts nothing, and scales where it is told to.
    """

    scope: Scope
    parts: tuple[str, ...] | None = field(default=())
    scaling: Flag | None = None

    @property
    def always(self) -> bool:
        return self.parts == ()

    @property
    def never(self) -> bool:
        return self.parts is None

    @property
    def of_scaler(self) -> Flag:
        return self.scaling or self

    def text(self) -> str:
        """The condition as an expression; `True` and `False` for the constant ones."""
        if self.parts is None:
            return "False"
        return " and ".join(self.parts) if self.parts else "True"

    @property
    def simple(self) -> bool:
        """Whether it is short enough to be repeated at every autocast region."""
        return self.parts is not None and len(self.parts) <= 1

    def same(self, other: Flag) -> bool:
        """Whether both ask the same, in whatever order."""
        return _same(self.parts, other.parts) and _same(self.of_scaler.parts, other.of_scaler.parts)

    def either(self, other: Flag) -> Flag:
        """On where this or the other is."""
        casts = Flag(self.scope, _either(self.parts, other.parts))
        return casts.with_scaling(Flag(self.scope, _either(self.of_scaler.parts, other.of_scaler.parts)))

    def joined(self, parts: list[str]) -> Flag:
        casts = Flag(self.scope, _joined(parts, self.parts))
        return casts.with_scaling(Flag(self.scope, _joined(parts, self.of_scaler.parts)))

    def with_scaling(self, scaling: Flag) -> Flag:
        """The same of what is cast, with a condition of the scaler."""
        return Flag(self.scope, self.parts, None if _same(self.parts, scaling.parts) else scaling)


Parts = tuple[str, ...] | None


def _same(mine: Parts, theirs: Parts) -> bool:
    return mine is theirs if mine is None or theirs is None else set(mine) == set(theirs)


def _either(first: Parts, second: Parts) -> Parts:
    if first is None or second is None or _same(first, second):
        return first if first is not None else second
    common = [p for p in first if p in second]
    mine, theirs = ([p for p in parts if p not in common] for parts in (first, second))
    mine, theirs = _without_opposite(mine, theirs), _without_opposite(theirs, mine)
    if not mine or not theirs:
        return tuple(common)
    for one, wider in ((mine, theirs), (theirs, mine)):
        if all(any(_implies(p, q) for p in one) for q in wider):
            return (*common, *wider)
    return (*common, f"({' and '.join(mine)} or {' and '.join(theirs)})")


def _joined(more: list[str], parts: Parts) -> Parts:
    return None if parts is None else without_implied(distinct([*more, *parts]))


def _without_opposite(parts: list[str], other: list[str]) -> list[str]:
    """What is left to ask of `x and not y` beside `y`: x."""
    return [p for p in parts if len(other) != 1 or not opposite(p, other[0])]


def without_implied(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Without each `not (a and b)` that another part makes true: `not a`, or `a` where it says `not a`; and without
    `level != "O0"` beside `level == "O1"`."""
    equal = [node for p in parts if isinstance(node := ast.parse(p, mode="eval").body, ast.Compare)]

    def implied(part: str) -> bool:
        node = ast.parse(part, mode="eval").body
        if isinstance(node, ast.Compare):
            return any(_excludes(other, node) for other in equal)
        if (
            not isinstance(node, ast.UnaryOp)
            or not isinstance(node.op, ast.Not)
            or not isinstance(node.operand, ast.BoolOp)
        ):
            return False
        if not isinstance(node.operand.op, ast.And):
            return False
        return any(ast.unparse(ast.UnaryOp(ast.Not(), v)) in parts for v in node.operand.values) or any(
            isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not) and ast.unparse(v.operand) in parts
            for v in node.operand.values
        )

    return tuple(p for p in parts if not implied(p))


def _implies(given: str, other: str) -> bool:
    """Whether one condition makes another true."""
    one, two = (ast.parse(text, mode="eval").body for text in (given, other))
    return isinstance(one, ast.Compare) and isinstance(two, ast.Compare) and _excludes(one, two)


def _excludes(given: ast.Compare, other: ast.Compare) -> bool:
    """Whether `x == a` makes `x != b` true, for two different literals; so does `x is None`, and `x > 0` makes `x != 0`."""
    mine, theirs = given.comparators[0], other.comparators[0]
    if len(given.ops) != 1 or len(other.ops) != 1 or not isinstance(other.ops[0], ast.NotEq):
        return False
    if not isinstance(mine, ast.Constant) or not isinstance(theirs, ast.Constant):
        return False
    if ast.dump(given.left) != ast.dump(other.left):
        return False
    if isinstance(given.ops[0], (ast.Gt, ast.GtE)) and isinstance(mine.value, int) and isinstance(theirs.value, int):
        return mine.value > theirs.value or (isinstance(given.ops[0], ast.Gt) and mine.value == theirs.value)
    return isinstance(given.ops[0], (ast.Eq, ast.Is)) and mine.value != theirs.value


def distinct(parts: Iterable[str]) -> tuple[str, ...]:
    """Conditions without repetition, whatever their quotes and spaces."""
    return tuple({ast.unparse(ast.parse(p, mode="eval")): p for p in reversed(list(parts))}.values())[::-1]
