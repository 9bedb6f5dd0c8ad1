"""Steps that a test decides on: what must wait for the same test, and expressions that become an `if`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Code


def chooses(stmt: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement is a choice of a step: `optimizer.step() if ok else optimizer.zero_grad()`, `ok and
    optimizer.step()`."""
    value = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(value, ast.BoolOp):
        return isinstance(value.op, ast.And) and value.values[-1] is call
    return isinstance(value, ast.IfExp) and call in (value.body, value.orelse)


def as_branches(m: Migration, module: Module, stmt: ast.stmt, lines: Sequence[str]) -> Code:
    """Such a statement as an `if`, with the lines that follow its step; empty where it is none."""
    steps = [s.call for s in m.unit.steps if s.call not in m.plain_steps and chooses(stmt, s.call)]
    if not steps or not isinstance(stmt, ast.Expr):
        return ""
    indent = m.style(module).indent

    def arm(value: ast.expr) -> list[str | ast.expr | ast.stmt]:
        after = [f"\n{indent}{line}" for line in lines] if value in steps else []
        return [indent, value, *after]

    chosen = stmt.value
    if isinstance(chosen, ast.BoolOp):
        tests = [part for value in chosen.values[:-1] for part in (" and ", value)][1:]
        return ("if ", *tests, ":\n", *arm(chosen.values[-1]))
    assert isinstance(chosen, ast.IfExp), "a choice is one of the two"
    parts = ["if ", chosen.test, ":\n", *arm(chosen.body)]
    return tuple(parts if isinstance(chosen.orelse, ast.Constant) else [*parts, "\nelse:\n", *arm(chosen.orelse)])


def asked_of_each(m: Migration, module: Module, stmt: ast.stmt) -> str:
    """What decides on every step that a loop makes, where the loop does not change it: without one, update() raises."""
    if not isinstance(stmt, (ast.For, ast.While)):
        return ""
    ways = [_tests(m, module, call, stmt) for call in _made_in(m, module, stmt)]
    texts = [[(module.source(test), came_out) for test, came_out in way] for way in ways]
    if not texts or not texts[0] or any(way != texts[0] for way in texts):
        return ""
    bound = {
        module.source(n)
        for n in walk(stmt)
        if isinstance(n, (ast.Name, ast.Attribute)) and not isinstance(n.ctx, ast.Load)
    }
    parts: list[str] = []
    for test, came_out in reversed(ways[0]):
        for node in walk(test):
            if isinstance(node, (ast.Call, ast.Subscript, ast.NamedExpr)):
                return ""
            if isinstance(node, (ast.Name, ast.Attribute)) and module.source(node) in bound:
                return ""
        text = module.source(test)
        if not isinstance(test, (ast.Name, ast.Attribute)) and (len(ways[0]) > 1 or not came_out):
            text = f"({text})"
        parts.append(text if came_out else f"not {text}")
    return " and ".join(parts)


def noted(m: Migration, module: Module, stmt: ast.stmt) -> list[ast.stmt]:
    """The steps of a loop over optimizers that may leave out each of them: whether it made one has to be noted."""
    if not isinstance(stmt, ast.For):
        return []
    calls = _made_in(m, module, stmt)
    steps = [module.statement(call) for call in calls]
    if not all(isinstance(s, ast.Expr) and s.value in calls for s in steps):
        return []
    return steps if _left_out(m, module, stmt.body, steps) else []


def _made_in(m: Migration, module: Module, stmt: ast.stmt) -> list[ast.Call]:
    """The scaled steps that a loop makes."""
    calls = (s.call for s in m.unit.steps if s.module is module and stmt in module.ancestors(s.call))
    return [call for call in calls if m.live(module, call) and call not in m.plain_steps]


def chosen_list(m: Migration, stmt: ast.stmt) -> ast.ListComp | None:
    """The list of steps that a statement makes, where it may be empty: `[o.step() for o in optimizers if ready(o)]`."""
    value = stmt.value if isinstance(stmt, ast.Expr) else None
    steps = {s.call for s in m.unit.steps if s.call not in m.plain_steps}
    if isinstance(value, ast.ListComp) and value.elt in steps and any(g.ifs for g in value.generators):
        return value
    return None


def _left_out(m: Migration, module: Module, stmts: Sequence[ast.stmt], steps: Collection[ast.stmt]) -> bool:
    """Whether a way through statements makes none of some steps."""
    for stmt in stmts:
        if stmt in steps:
            return False
        if isinstance(stmt, ast.With) and not _left_out(m, module, stmt.body, steps):
            return False
        if isinstance(stmt, ast.If):
            branch = m.folds[module].splices.get(stmt)
            ways = [stmt.body, stmt.orelse] if branch is None else [stmt.body if branch == "body" else stmt.orelse]
            if not any(_left_out(m, module, way, steps) for way in ways):
                return False
        if any(isinstance(n, (ast.Continue, ast.Break)) for n in walk(stmt)):
            return True
    return True


def _tests(m: Migration, module: Module, call: ast.Call, top: ast.stmt) -> list[tuple[ast.expr, bool]]:
    """The tests that stand around a step up to a statement, and how each came out."""
    found: list[tuple[ast.expr, bool]] = []
    child: ast.AST = call
    for parent in module.ancestors(call):
        if parent is top:
            break
        if isinstance(parent, ast.If) and parent not in m.folds[module].splices:
            found.append((parent.test, any(child is s for s in parent.body)))
        elif isinstance(parent, ast.IfExp):
            found.append((parent.test, child is parent.body))
        elif isinstance(parent, ast.BoolOp):
            found += [(value, True) for value in reversed(parent.values[:-1])]
        child = parent
    return found
