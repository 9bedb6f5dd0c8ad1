"""Within one body: under which tests does a node run, and may it run after another one?"""

from __future__ import annotations

import ast
import itertools

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.flow import never_returns
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

Tests = list[tuple[ast.expr, bool]]


def tests_around(module: Module, node: ast.AST) -> Tests:
    """What must have come out how for a node to run within its function: enclosing tests, and those that leave."""
    found: Tests = []
    child = node
    for at in module.ancestors(node):
        if isinstance(at, (ast.If, ast.While)):
            if any(child is s for s in at.body):
                found.append((at.test, True))
            elif any(child is s for s in at.orelse) and isinstance(at, ast.If):
                found.append((at.test, False))
        elif isinstance(at, ast.IfExp):
            if child is not at.test:
                found.append((at.test, child is at.body))
        elif isinstance(at, ast.BoolOp):
            for value in at.values:
                if value is child:
                    break
                found.append((value, isinstance(at.op, ast.And)))
        for block in ("body", "orelse", "finalbody") if not isinstance(at, ast.expr) else ():
            if isinstance(getattr(at, block, None), list):
                places, passed = _passed(at, block)
                here = places.get(child, 0)
                found += [(test, came_out) for place, test, came_out in passed if place < here]
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        child = at
    return found


Passed = tuple[dict[ast.AST, int], list[tuple[int, ast.expr, bool]]]


@kept
def _passed(at: ast.AST, block: str) -> Passed:
    """The places of statements in a block, and the tests in it that leave: where, and how they came out for what follows."""
    stmts: list[ast.stmt] = getattr(at, block)
    passed: list[tuple[int, ast.expr, bool]] = []
    for place, stmt in enumerate(stmts):
        if isinstance(stmt, ast.Assert):
            passed.append((place, stmt.test, True))
        elif isinstance(stmt, ast.If):
            if leaves(stmt.body) and not leaves(stmt.orelse):
                passed.append((place, stmt.test, False))
            elif stmt.orelse and leaves(stmt.orelse) and not leaves(stmt.body):
                passed.append((place, stmt.test, True))
    return {stmt: place for place, stmt in enumerate(stmts)}, passed


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a block ends by leaving what is around it."""
    leaving = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    return bool(body) and (isinstance(body[-1], leaving) or never_returns(body[-1]))


def raises_else(module: Module, test: ast.expr, came_out: bool) -> bool:
    """Whether a run raises, or ends, where a test comes out otherwise: that only lets it go on."""
    stmt = module.parents.get(test)
    if isinstance(stmt, ast.Assert):
        return True
    other = (stmt.orelse if came_out else stmt.body) if isinstance(stmt, ast.If) else []
    return bool(other) and (isinstance(other[-1], ast.Raise) or never_returns(other[-1]))


def may_follow(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """Whether, within one body, `second` may run after `first` has run."""
    above = {first: 0}
    for i, at in enumerate(module.ancestors(first), 1):
        above[at] = i
    child: ast.AST = second
    common: ast.AST | None = second if second in above else None
    if common is None:
        for at in module.ancestors(second):
            if at in above:
                common = at
                break
            child = at
    if common is None:
        return False
    loop = isinstance(common, (ast.For, ast.While, ast.AsyncFor)) or any(
        isinstance(a, (ast.For, ast.While, ast.AsyncFor)) for a in _within(module, common)
    )
    if loop:
        return True
    if isinstance(common, ast.Call) and first is not second:
        # What a call is given is there before it runs; what it is given to run, `lambda: Net()`, is not.
        if common is second:
            return True
        if common is first:
            within = itertools.takewhile(lambda at: at is not first, module.ancestors(second))
            return any(isinstance(a, (ast.Lambda, ast.GeneratorExp)) for a in within)
    if isinstance(common, ast.If):
        mine = next((b for b in ("body", "orelse") if any(child is s for s in getattr(common, b))), None)
        other = next(
            (b for b in ("body", "orelse") if any(s in above for s in getattr(common, b))),
            None,
        )
        if mine is not None and other is not None and mine != other:
            return False
    return _at(second) >= _at(first)


def _within(module: Module, node: ast.AST) -> list[ast.AST]:
    """Ancestors within the function."""
    found = []
    for at in module.ancestors(node):
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        found.append(at)
    return found


def _at(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def turns(module: Module, node: ast.AST) -> set[str]:
    """What the loops around a node count with."""
    return {
        n.id
        for at in module.ancestors(node)
        if isinstance(at, (ast.For, ast.AsyncFor))
        for n in syntax.every(at.target, ast.Name)
    }
