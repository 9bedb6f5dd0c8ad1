"""What stands for a call in the other branch of an `if`: what gives the same variables their values there, or is returned."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk


def given_beside(module: Module, call: ast.Call) -> Iterator[ast.Call]:
    """The calls in what the other branches give to what a call's own statement gives its value."""
    stmt = module.statement(call)
    if isinstance(stmt, ast.Return):
        wanted: set[str] = set()
    elif isinstance(stmt, ast.Assign):
        wanted = {ast.unparse(t) for t in stmt.targets}
    else:
        return
    for branch in branches_around(module, call, module.scopes):
        others: Iterable[ast.AST] = branch.other
        if isinstance(stmt, ast.Return) and isinstance(branch.test, ast.If) and not branch.other:
            block = module.block(branch.test)
            others = block[block.index(branch.test) + 1 :]
        for node in (n for other in others for n in walk(other)):
            if isinstance(stmt, ast.Return):
                same = isinstance(node, ast.Return)
            else:
                same = isinstance(node, ast.Assign) and bool(wanted & {ast.unparse(t) for t in node.targets})
            if same and isinstance(node, (ast.Assign, ast.Return)) and node.value is not None:
                yield from (n for n in walk(node.value) if isinstance(n, ast.Call))
