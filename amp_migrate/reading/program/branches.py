"""The tests around a place of a file, and in which branch of each it stands."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from amp_migrate.reading.program.module import Module


class Branch(NamedTuple):
    """A test, whether it came out true where the place is reached, and what stands in the branch beside."""

    test: ast.If | ast.IfExp
    holds: bool
    other: Sequence[ast.stmt] | Sequence[ast.expr]


def branches_around(module: Module, node: ast.AST, within: Container[ast.AST] = ()) -> Iterator[Branch]:
    """The branches that a place stands in, the innermost first, as far as they stand in none of the nodes `within`."""
    for below, at in pairwise(chain([node], module.ancestors(node))):
        if at in within:
            return
        if isinstance(at, ast.If) and below is not at.test:
            holds = below in at.body
            yield Branch(at, holds, at.orelse if holds else at.body)
        elif isinstance(at, ast.IfExp) and below is not at.test:
            yield Branch(at, below is at.body, [at.orelse if below is at.body else at.body])
