"""The code as it will stand once Apex's branches are folded: what analysis walks instead of the raw tree.

`if fp16: with amp.scale_loss(...) ... else: loss.backward()` is seen as the statements of its Apex branch, in place.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.tree import children, walk


@dataclass(eq=False)
class Node:
    """A live statement with its live inner blocks. `parent` is the block that holds it."""

    stmt: ast.stmt
    parent: Block
    index: int
    blocks: list[Block] = field(default_factory=list)
    reads: frozenset[str] | None = (
        None  # the names that it reads and stores, once somebody has asked (`regions/stored.py`)
    )
    defines: frozenset[str] | None = None

    def walk(self) -> Sequence[Node]:
        return self._walked if self.blocks else (self,)

    @cached_property
    def _walked(self) -> Sequence[Node]:
        found = []
        waiting = [self]  # no recursion: a chain of `elif` is as deep as it is long
        while waiting:
            node = waiting.pop()
            found.append(node)
            if node.blocks:
                waiting += [inner for block in node.blocks for inner in block.nodes][::-1]
        return found

    @cached_property
    def own(self) -> Sequence[ast.AST]:
        """Expressions of the statement itself: all of a simple one, the header of a compound one."""
        if not self.blocks and not isinstance(self.stmt, (*FUNCTION_NODES, ast.ClassDef)):
            return walk(self.stmt)
        inner = (ast.stmt, ast.excepthandler, ast.match_case)
        return [n for c in children(self.stmt) if not isinstance(c, inner) for n in walk(c)]

    @cached_property
    def calls(self) -> Sequence[ast.Call]:
        """The calls among them."""
        return [n for n in self.own if isinstance(n, ast.Call)]

    @cached_property
    def all_calls(self) -> Sequence[ast.Call]:
        """The calls of the statement and of all in it."""
        return [n for node in self.walk() for n in node.calls] if self.blocks else self.calls

    @property
    def body(self) -> Block:
        """The body of the function or file that the statement stands in."""
        holder = self.parent.holder
        return self.parent if holder is None else holder.body

    def all(self) -> Iterator[ast.AST]:
        return itertools.chain.from_iterable([node.own for node in self.walk()])


@dataclass(eq=False)
class Block:
    """A list of live statements; `holder` is the statement it belongs to, None for a function or module body."""

    holder: Node | None
    nodes: list[Node] = field(default_factory=list)

    def walk(self) -> Sequence[Node]:
        return [inner for node in self.nodes for inner in node.walk()]

    @cached_property
    def functions(self) -> Sequence[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions that are defined in it."""
        return [node.stmt for node in self.walk() if isinstance(node.stmt, FUNCTION_NODES)]


@dataclass
class Folds:
    """Compound statements of which only one branch stays, and statements that go altogether."""

    splices: dict[ast.stmt, str] = field(default_factory=dict)  # statement -> "body" or "orelse"
    deleted: set[ast.stmt] = field(default_factory=set)
    apart: list[ast.stmt] = field(default_factory=list)  # of these, sides of a pair that is no `if` and `else`
    plain: set[ast.stmt] = field(
        default_factory=set
    )  # float32 copies of the loop, beside the Apex one: left as they are


def view(module: Module, body: list[ast.stmt], folds: Folds) -> Block:
    """The live block of a function or module body; nested functions and classes are leaves."""
    root = Block(None)
    _fill(root, body, folds)
    return root


def _fill(block: Block, stmts: list[ast.stmt], folds: Folds) -> None:
    for stmt in stmts:
        if stmt in folds.deleted:
            continue
        if stmt in folds.splices:
            _fill(block, getattr(stmt, folds.splices[stmt]), folds)
            continue
        node = Node(stmt, block, len(block.nodes))
        block.nodes.append(node)
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(stmt, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                child = Block(node)
                _fill(child, inner, folds)
                node.blocks.append(child)
        for handler in getattr(stmt, "handlers", ()):
            child = Block(node)
            _fill(child, handler.body, folds)
            node.blocks.append(child)
        for case in getattr(stmt, "cases", ()):
            child = Block(node)
            _fill(child, case.body, folds)
            node.blocks.append(child)


def find(block: Block, stmt: ast.stmt) -> Node | None:
    """The live node of a statement."""
    for node in block.walk():
        if node.stmt is stmt:
            return node
    return None


def chain(node: Node) -> list[Node]:
    """A node and the statements around it, innermost first."""
    out = [node]
    holder = node.parent.holder
    while holder is not None:
        out.append(holder)
        holder = holder.parent.holder
    return out
