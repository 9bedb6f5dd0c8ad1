"""Conditions that a function asks more than once: `if skip:` around the backward and again around the step. Both go the
same way, as long as nothing that they mention is assigned in between."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from amp_migrate.reading.program import logic
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.program.view import Node

Facts = Mapping[str, bool]  # conditions that were asked, and their answers

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
}
_PURE = (
    "torch.is",
    "math.is",
    "numpy.is",
    "len",
    "isinstance",
    "hasattr",
    "callable",
    "bool",
    "int",
    "float",
    "any",
    "all",
)
_METHODS = frozenset("item any all isnan isfinite isinf".split())
LIMIT = 3  # conditions followed at a time


def truth(test: ast.expr, facts: Facts) -> bool | None:
    """What a test gives under what is known; None where that does not tell."""

    def told(part: ast.expr) -> bool | None:
        if isinstance(part, ast.BoolOp):
            return None  # facts are of what tests are made of
        text, positive = _literal(part)
        known = facts.get(text, False if _excluded(text, facts) else None)
        return None if known is None else known is positive

    return logic.truth(test, told)


def _excluded(text: str, facts: Facts) -> bool:
    """Whether something is known to be another constant than a condition asks for: `mode == 'a'` where it is 'b'."""
    asked = _equality(text)
    if asked is None:
        return False
    others = (_equality(known) for known, holds in facts.items() if holds)
    return any(o is not None and o[0] == asked[0] and o[1] != asked[1] for o in others)


@cache
def _equality(text: str) -> tuple[str, object] | None:
    """`mode` and "a" of `mode == 'a'`; None for any other condition."""
    try:
        test = ast.parse(text, mode="eval").body
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return ast.unparse(test.left), ast.literal_eval(test.comparators[0])
    except (SyntaxError, ValueError):
        pass
    return None


def atoms(test: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The conditions that a test is made of."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from atoms(test.operand)
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from atoms(value)
    elif not isinstance(test, ast.Constant):
        yield _literal(test)[0], test


def _literal(test: ast.expr) -> tuple[str, bool]:
    """A condition as text, and whether the test asks for it or for its opposite."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        positive = _OPPOSITE.get(type(test.ops[0]))
        if positive is not None:
            return ast.unparse(ast.Compare(test.left, [positive()], test.comparators)), False
    return ast.unparse(test), True


def asked_again(
    module: Module, nodes: Sequence[Node], facts: Facts, deciding: Callable[[Node], Sequence[ast.expr]]
) -> str | None:
    """A condition of the first of some statements that one of them asks once more. `deciding`: the conditions of a statement
    that matter, as what is followed is limited, and most of what a program asks decides on nothing of interest."""
    if len(facts) >= LIMIT:
        return None
    later: set[str] | None = None
    for text, node in (atom for test in deciding(nodes[0]) for atom in atoms(test)):
        if text in facts or not _pure(module, node):
            continue
        if later is None:
            others = [n for m in nodes for n in m.walk() if n is not nodes[0]]
            later = {t for n in others for test in deciding(n) for t, _ in atoms(test)}
        if text in later and not _assigned(node, nodes):
            return text
    return None


def last_turn(loop: ast.stmt) -> Facts:
    """What holds in the last turn of a counted loop, and in no other: `i == len(tasks) - 1` in
    `for i, task in enumerate(tasks):`."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or not isinstance(loop.iter.func, ast.Name):
        return {}
    given, target = loop.iter.args, loop.target
    if (
        loop.iter.func.id == "enumerate"
        and isinstance(target, ast.Tuple)
        and len(given) == 1
        and not loop.iter.keywords
    ):
        counter, number = target.elts[0], f"len({ast.unparse(given[0])})"
    elif loop.iter.func.id == "range" and len(given) == 1:
        counter, number = target, ast.unparse(given[0])
    else:
        return {}
    counted = identifiers(loop.iter) | {ast.unparse(target)}
    set_inside = {
        ast.unparse(n)
        for s in loop.body
        for n in walk(s)
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, (ast.Store, ast.Del))
    }
    if not isinstance(counter, ast.Name) or counted & set_inside or ast.unparse(given[0]) in set_inside:
        return {}
    name = counter.id
    return {
        f"{name} == {number} - 1": True,
        f"{number} - 1 == {name}": True,
        f"{name} + 1 == {number}": True,
        f"{number} == {name} + 1": True,
        f"{name} < {number} - 1": False,
        f"{name} + 1 < {number}": False,
    }


def _pure(module: Module, test: ast.expr) -> bool:
    """Whether asking a condition twice gives the same answer."""
    for node in walk(test):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(node, ast.Call):
            name = module.qualify(node.func) or ast.unparse(node.func)
            method = isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
            if not method and not name.startswith(_PURE):
                return False
    return True


def _assigned(test: ast.expr, nodes: Iterable[Node]) -> bool:
    """Whether anything that a condition mentions is set in some statements."""
    mentioned = {ast.unparse(n) for n in walk(test) if isinstance(n, (ast.Name, ast.Attribute))}
    return any(
        isinstance(n, (ast.Name, ast.Attribute))
        and isinstance(n.ctx, (ast.Store, ast.Del))
        and ast.unparse(n) in mentioned
        for node in nodes
        for n in node.all()
    )
