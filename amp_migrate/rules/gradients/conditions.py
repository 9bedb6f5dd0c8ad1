"""Whether several conditions leave nothing out: `any(k in n for k in plain)` and its opposite, or four that two questions make."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from itertools import product

OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotIn: ast.In, ast.NotEq: ast.Eq, ast.IsNot: ast.Is}
MOST = 8  # questions that are tried in all ways
Answers = Mapping[str, bool]


class _Named(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def called(test: ast.expr, names: Mapping[str, str]) -> ast.expr:
    """A copy of a test in which variables have the names that others give the same."""
    copy: ast.expr = _Named(names).visit(ast.parse(ast.unparse(test), mode="eval").body)
    return copy


def leave_none_out(groups: Sequence[Sequence[ast.expr]]) -> bool:
    """Whether all conditions of one of the groups hold, whatever the answers to what they ask are."""
    questions: dict[str, None] = {}
    asked = [[_condition(test, questions) for test in group] for group in groups]
    if len(questions) > MOST:
        return False
    ways = (dict(zip(questions, answers, strict=True)) for answers in product((False, True), repeat=len(questions)))
    return all(any(all(test(way) for test in group) for group in asked) for way in ways)


def _condition(test: ast.expr, questions: dict[str, None]) -> Callable[[Answers], bool]:
    if isinstance(test, ast.BoolOp):
        parts = [_condition(value, questions) for value in test.values]
        joined = all if isinstance(test.op, ast.And) else any
        return lambda way: joined(part(way) for part in parts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _condition(test.operand, questions)
        return lambda way: not inner(way)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and (other := OPPOSITES.get(type(test.ops[0]))):
        inner = _condition(ast.Compare(test.left, [other()], test.comparators), questions)
        return lambda way: not inner(way)
    if isinstance(test, ast.Constant):
        known = bool(test.value)
        return lambda way: known
    text = ast.dump(test)
    questions[text] = None
    return lambda way: way[text]
