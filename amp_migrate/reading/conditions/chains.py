"""`if/elif/else` as one chain of links."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_migrate.reading.program.module import Module


@dataclass(eq=False)
class Link:
    """One branch of a chain. `node` holds its body: the `if` or `elif` itself; for `else`, the one it belongs to."""

    node: ast.If
    test: ast.expr | None  # None for `else`
    body: Sequence[ast.stmt]


def links(head: ast.If) -> list[Link]:
    """The branches of a chain, from its `if` on."""
    found = [Link(head, head.test, head.body)]
    node = head
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        found.append(Link(node, node.test, node.body))
    if node.orelse:
        found.append(Link(node, None, node.orelse))
    return found


def head_of(module: Module, node: ast.If) -> ast.If:
    """The `if` that a chain begins with."""
    parent = module.parents.get(node)
    while isinstance(parent, ast.If) and parent.orelse == [node]:
        node, parent = parent, module.parents.get(parent)
    return node


def heads(module: Module) -> Iterator[ast.If]:
    """The first `if` of every chain of a module."""
    for node in module.of(ast.If):
        if head_of(module, node) is node:
            yield node


def exclusive(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether two places stand in the two branches of one `if`: a run that comes by it comes to one of them only."""
    return next(parting(module, one, other), None) is not None


def parting(module: Module, one: ast.AST, other: ast.AST) -> Iterator[ast.If]:
    """The `if`s of which two places stand in different branches."""
    there = _branches(module, other)
    return (test for test, yes in _branches(module, one).items() if there.get(test, yes) != yes)


def _branches(module: Module, node: ast.AST) -> dict[ast.If, bool]:
    """The tests around a node, and whether it stands where they came out true."""
    around = [node, *module.ancestors(node)]
    return {at: below in at.body for below, at in itertools.pairwise(around) if isinstance(at, ast.If)}
