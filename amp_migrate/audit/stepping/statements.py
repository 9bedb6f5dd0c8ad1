"""Statements taken apart: what is evaluated at their head and in which order, what they hold, what their tests read; what is
left of them where only some of it matters."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence

from amp_migrate.audit.paths.facts import assigned
from amp_migrate.audit.paths.flow import never_returns
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS

JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def heads(stmt: ast.stmt) -> list[ast.AST]:
    if isinstance(stmt, (ast.If, ast.While)):
        return [stmt.test]
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        return [stmt.iter]
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return [i.context_expr for i in stmt.items]
    if isinstance(stmt, ast.Match):
        return [stmt.subject]
    return [] if blocks(stmt) else [stmt]


def evaluated(node: ast.AST) -> list[ast.AST]:
    """The expressions below a node in the order in which they are evaluated; what a comprehension does, it does twice."""
    found: list[ast.AST] = []
    _evaluate(node, found)
    return found


_GIVING = frozenset({ast.Assign, ast.AnnAssign, ast.AugAssign})
_LATER = frozenset({ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
_WHOLE = frozenset({ast.Name, ast.Constant})


def _evaluate(node: ast.AST, found: list[ast.AST]) -> None:
    kind = type(node)
    if kind in _LATER:
        return
    if kind is ast.Constant:
        found.append(node)
        return
    if isinstance(node, COMPREHENSIONS):
        for generator in node.generators:
            _evaluate(generator.iter, found)
        for _ in range(2):
            for child in syntax.children(node):
                if not isinstance(child, ast.comprehension):
                    _evaluate(child, found)
        return
    if kind in _GIVING and isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        _evaluate(node.value, found)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            _evaluate(target, found)
        return
    for child in syntax.children(node):
        if type(child) in _WHOLE:
            found.append(child)
        else:
            _evaluate(child, found)
    found.append(node)


_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS: dict[type[ast.stmt], tuple[str, ...]] = {
    **dict.fromkeys((ast.If, *_LOOPS), ("body", "orelse")),
    **dict.fromkeys((ast.With, ast.AsyncWith), ("body",)),
    ast.Try: ("body", "orelse", "finalbody", "handlers"),
    ast.Match: ("cases",),
}


def blocks(stmt: ast.stmt) -> tuple[str, ...]:
    """The fields of a compound statement that hold statements, or what holds them."""
    return _BLOCKS.get(type(stmt), ())


def as_if(stmt: ast.stmt) -> ast.stmt:
    """`flag and opt.step()` and `a() if flag else b()` as the `if` that they are."""
    if not isinstance(stmt, ast.Expr):
        return stmt
    value = stmt.value
    if isinstance(value, ast.IfExp):
        arms = [ast.copy_location(ast.Expr(value=e), stmt) for e in (value.body, value.orelse)]
        return ast.copy_location(ast.If(test=value.test, body=[as_if(arms[0])], orelse=[as_if(arms[1])]), stmt)
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
        last = ast.copy_location(ast.Expr(value=value.values[-1]), stmt)
        first: ast.expr = value.values[0]
        if len(value.values) > 2:
            first = ast.copy_location(ast.BoolOp(op=ast.And(), values=value.values[:-1]), stmt)
        return ast.copy_location(ast.If(test=first, body=[as_if(last)], orelse=[]), stmt)
    return stmt


def scales(stmt: ast.stmt) -> bool:
    """Whether a statement keeps what a `.scale(...)` gave."""
    return isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and any(
        n.attr == "scale" for n in syntax.every(stmt, ast.Attribute)
    )


def yields(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Expr, ast.Assign)) and isinstance(stmt.value, ast.Yield)


def tested(stmt: ast.stmt) -> Iterator[str]:
    """What the tests of a statement and of those in it read: names and attributes as they are written."""
    for node in syntax.walk(stmt):
        if isinstance(node, (ast.If, ast.While)):
            for read in syntax.walk(node.test):
                if isinstance(read, (ast.Name, ast.Attribute)):
                    yield syntax.text(read)


def cut_down(body: Sequence[ast.stmt], around: Container[ast.AST]) -> list[ast.stmt]:
    """What of a body holds one of some nodes, with the jumps and tests between, and what gives the names in these, and those of
    scaled values, others; `around`: all that these stand in."""
    names, scaled = set[str](), set[str]()
    while True:
        kept = _keep(body, names, scaled, around)
        more = {n for s in kept for n in tested(s)}
        within = [n for s in kept for n in syntax.walk(s) if isinstance(n, ast.stmt)]
        values = {name for n in within if scales(n) or _made_of(n, scaled) for name in assigned(n)}
        if more | values <= names and values <= scaled:
            return kept
        names |= more | values
        scaled |= values


def _made_of(stmt: ast.stmt, scaled: set[str]) -> bool:
    """Whether a statement gives a name what is computed of a scaled value: `target = scaled_loss.mean()`."""
    if not scaled or not isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or stmt.value is None:
        return False
    return any(n.id in scaled for n in syntax.every(stmt.value, ast.Name))


def _keep(body: Sequence[ast.stmt], names: set[str], scaled: set[str], around: Container[ast.AST]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for stmt in body:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not blocks(stmt):
            if (
                isinstance(stmt, JUMPS)
                or never_returns(stmt)
                or stmt in around
                or not names.isdisjoint(assigned(stmt))
                or scales(stmt)
                or _made_of(stmt, scaled)
                or yields(stmt)
            ):
                kept.append(as_if(stmt))
            continue
        made = syntax.copied(stmt)
        made.whole = stmt  # type: ignore[attr-defined]
        for name in blocks(stmt):
            value = getattr(stmt, name)
            if name in ("handlers", "cases"):
                parts = []
                for part in value:
                    other = syntax.copied(part)
                    other.body = _keep(part.body, names, scaled, around)
                    parts.append(other)
                setattr(made, name, parts)
            else:
                setattr(made, name, _keep(value, names, scaled, around))
        inner = [
            s for n in blocks(made) for v in getattr(made, n) for s in ([v] if isinstance(v, ast.stmt) else v.body)
        ]
        if (
            inner and (not isinstance(stmt, (ast.For, ast.While)) or not all(isinstance(s, JUMPS) for s in inner))
        ) or any(e in around for e in heads(made)):
            kept.append(made)
    return kept
