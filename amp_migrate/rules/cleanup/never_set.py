"""Flags of a function that nothing sets any more: `found = False`, where what made it true asked for Apex. What they were asked
for comes out one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.writing.edits import Edits


def fold(module: Module, edits: Edits) -> None:
    """Take out each that only chooses between branches, and leave the branch that is taken."""
    for scope in module.scopes.values() if edits else ():
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for name in scope.bindings:
                _without(module, scope, name, edits)


def _without(module: Module, scope: Scope, name: str, edits: Edits) -> None:
    given = [module.parents.get(b) for b in scope.bindings[name]]
    plain = [
        s for s in given if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.value, ast.Constant)
    ]
    left = [s for s in plain if not edits.gone(s)]
    if len(plain) < len(given) or len(left) != 1 or len(plain) < 2 or min(plain, key=lambda s: s.lineno) is not left[0]:
        return
    (stmt,) = left
    if not isinstance(stmt.value, ast.Constant) or stmt.value.value is not False or edits.mentions(name):
        return
    reads = [n for n in module.loads.get(name, ()) if not edits.gone(n) and module.scope_of(n).lookup(name) is scope]
    tests = list(_tests(module, reads, edits))
    if len(tests) == len(reads) and all(module.scope_of(n) is scope for n in reads):
        for node, negated in tests:
            edits.fold(node, "body" if negated else "orelse", about_apex=True)
        edits.delete(stmt)


def _tests(module: Module, reads: list[ast.Name], edits: Edits) -> Iterator[tuple[ast.If, bool]]:
    """The tests that ask for nothing but the flag, and whether for its opposite."""
    for read in reads:
        above = module.parents.get(read)
        negated = isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not)
        test = above if negated else read
        stmt = module.parents.get(test) if isinstance(test, ast.AST) else None
        if isinstance(stmt, ast.If) and stmt.test is test and stmt not in edits.statements:
            yield stmt, negated
