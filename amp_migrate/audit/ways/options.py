"""Options that a program takes back itself: `if args.fp16 and not args.cuda: args.fp16 = False`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chains


def taken_back(
    program: Program, values: Values, chains: Chains, option: ast.Attribute
) -> Iterator[tuple[Module, list[ast.expr]]]:
    """The tests of other options that must hold together for the program to switch one off, each with their file; nothing
    where it is given anything else anywhere."""
    base = syntax.text(option.value).rpartition(".")[2]
    given = [
        (module, target, value)
        for module, target, value, item in values.fields(option.attr)
        if syntax.text(target.value).rpartition(".")[2] == base
    ]
    if not given or not all(isinstance(v, ast.Constant) and v.value is False for _, _, v in given):
        return
    for module, target, _ in given:
        stmt = module.statement(target)
        if any(isinstance(a, ast.ExceptHandler) for a in module.ancestors(stmt)):
            continue  # for want of something
        tests = [_wanted(t, came_out) for t, came_out in chains.tests(module, stmt) if option.attr not in _named(t)]
        if tests and all(_of_options(t, base) for t in tests):
            yield module, tests


def _wanted(test: ast.expr, came_out: bool) -> ast.expr:
    return test if came_out else ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)


def _named(test: ast.expr) -> set[str]:
    return {n.attr for n in syntax.walk(test) if isinstance(n, ast.Attribute)}


def _of_options(test: ast.expr, base: str) -> bool:
    """Whether a test asks for options alone, which stay as they are."""
    if isinstance(test, ast.UnaryOp):
        return _of_options(test.operand, base)
    if isinstance(test, ast.BoolOp):
        return all(_of_options(v, base) for v in test.values)
    return isinstance(test, ast.Attribute) and syntax.text(test.value).rpartition(".")[2] == base
