"""The statements of one file, each with the blocks around it: what must run for it to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Spot: TypeAlias = tuple[int, int]  # line and column at which a statement begins
Node: TypeAlias = ast.stmt | ast.ExceptHandler | ast.match_case

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SAYS_NOTHING = (ast.Global, ast.Nonlocal, ast.Pass, ast.Try)  # of a `try` only what is in it


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement, or a handler or case, which have no place of their own in a block.

    `first` is where its block begins to run, `spot` where it does; None where nothing executable stands.
    """

    node: Node
    parent: Statement | None
    block: str  # the field of the parent: body, orelse, ...
    first: Spot | None
    siblings: list[ast.stmt] = field(repr=False)

    @property
    def spot(self) -> Spot | None:
        if isinstance(self.node, ast.stmt):
            return self.node.lineno, self.node.col_offset
        return spot_of_block(self.node.body)

    @property
    def shows(self) -> Spot | None:
        """What must run for the text of the statement to have had an effect: of a function its body."""
        return (spot_of_block(self.node.body) or self.spot) if isinstance(self.node, _FUNCTIONS) else self.spot

    @property
    def lines(self) -> tuple[int, int]:
        """The first and last line of its own text: of a compound statement without the blocks in it."""
        own = [n for child in ast.iter_child_nodes(self.node) if not isinstance(child, Node) for n in ast.walk(child)]
        if isinstance(self.node, ast.match_case):
            return self.node.pattern.lineno, max(getattr(n, "end_lineno", 0) for n in own)
        first = min([self.node.lineno, *(d.lineno for d in getattr(self.node, "decorator_list", ()))])
        if not any(hasattr(self.node, block) for block in ("body", "cases")):
            return first, self.node.end_lineno or first
        return first, max([self.node.lineno, *(getattr(n, "end_lineno", 0) for n in own)])

    def chain(self) -> list[Statement]:
        """From the outermost statement around it to itself."""
        return [*(self.parent.chain() if self.parent else ()), self]

    def function(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function around it."""
        above = self.parent
        while above is not None:
            if isinstance(above.node, _FUNCTIONS) and above.node is not self.node:
                return above.node
            above = above.parent
        return None


def statements(tree: ast.Module) -> Iterator[Statement]:
    """Every statement, handler and case, in the order of the text."""
    yield from _of(tree, None)


def executable(statement: Statement) -> bool:
    """Whether a change of it is a change of what the program does: no docstring, no declaration."""
    node = statement.node
    if isinstance(node, _SAYS_NOTHING) or statement.shows is None:
        return False
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return False
    return not (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def spot_of_block(block: list[ast.stmt]) -> Spot | None:
    """Where a block begins to run: at its first statement that is no docstring, import of the future or declaration."""
    for node in block:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if not isinstance(node, (ast.Global, ast.Nonlocal)):
            return node.lineno, node.col_offset
    return None


def _of(owner: ast.Module | Node, parent: Statement | None) -> Iterator[Statement]:
    for name in _BLOCKS:
        block = getattr(owner, name, None)
        if not isinstance(block, list):
            continue
        nodes = [node for node in block if isinstance(node, Node)]
        plain = [node for node in nodes if isinstance(node, ast.stmt)]
        for node in nodes:
            first = spot_of_block(plain) if plain else spot_of_block(node.body)  # type: ignore[union-attr]
            statement = Statement(node, parent, name, first, plain)
            yield statement
            yield from _of(node, statement)
