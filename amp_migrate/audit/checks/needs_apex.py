"""What needed Apex only under a test does not need it in every run now.

Proved, for each import of Apex that stays and for each `raise` or `assert` that speaks of it: it still stands under the tests
of its function that it stood under, those that return before it included, or under another one in their place. An import whose
failure the program catches and outlives is not asked about, nor a test whose other runs failed before.

Cannot prove that a test in the place of another asks the same, nor that who calls the function still asks what it did.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import statements
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.side import Side
from amp_migrate.audit.ways.installed import asks, catches_import, ends, imports_apex
from amp_migrate.audit.ways.within import raises_else
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        if "apex" not in change.after.text.lower():
            continue
        for new in statements(change.after.tree):
            old = change.was(new)
            if old is None or not _fails(both.after, change.after, new) or not _fails(both.before, change.before, old):
                continue
            was = _asked(both.before, change.before, old)
            now = _asked(both.after, change.after, new)
            lost = [test for test in was if test not in now]
            if lost and all(test in was for test in now):
                text, came_out = lost[0]
                message = (
                    f"every run comes here now, and fails without Apex: before, only those did for which `{text}` "
                    f"{'held' if came_out else 'did not hold'}"
                )
                yield review.doubt(change.after, new, "AMP133", syntax.text(new).splitlines()[0], message)


def _fails(side: Side, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement ends a run without Apex: an import that nothing catches for good, or what complains itself."""
    if isinstance(stmt, (ast.Raise, ast.Assert)) and not isinstance(module.parents.get(stmt), ast.ExceptHandler):
        tests = side.chains.tests(module, stmt) if isinstance(stmt, ast.Raise) else [(stmt.test, False)]
        flags = side.installed.flags(module)
        return "apex" in syntax.text(stmt).lower() or any(asks(test, flags) is (not came) for test, came in tests)
    if not imports_apex(stmt):
        return False
    child: ast.AST = stmt
    for around in module.ancestors(stmt):
        if isinstance(around, ast.Try) and child in around.body:
            caught = [h for h in around.handlers if catches_import(h)]
            if caught and not ends(caught[0].body):
                return False
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        child = around
    return True


def _asked(side: Side, module: Module, stmt: ast.stmt) -> list[tuple[str, bool]]:
    """The tests a statement stands under, as they are written without their `not`, less those that raise where they come out
    otherwise: such a run failed as well."""
    found: list[tuple[str, bool]] = []
    for test, came_out in side.chains.tests(module, stmt):
        if raises_else(module, test, came_out):
            continue
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, came_out = test.operand, not came_out
        found.append((syntax.text(test), came_out))
    return found
