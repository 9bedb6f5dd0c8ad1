"""One parsed file: what stands around what, and how it is written there."""

from __future__ import annotations

import ast
import unicodedata
from array import array
from collections.abc import Collection, Container, Iterator
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import TypeVar, cast

from amp_migrate import literals
from amp_migrate.reading.program.scope import Scope
from amp_migrate.reading.program.source_text import SourceText
from amp_migrate.reading.program.tree import children, root_of, walk

N = TypeVar("N", bound=ast.AST)


class Parsed:
    """The tree of a file and its text. `parents` and `nodes` are filled by who reads its scopes, on the same walk."""

    def __init__(self, path: Path, text: str, display: str) -> None:
        self.path = path
        self.display = display or str(path)
        self.text = SourceText(text)
        self.tree = literals.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []  # every node, walked once
        self._imagined: dict[ast.AST, str] = {}

    def of(self, *kinds: type[N]) -> list[N]:
        """The nodes of some kinds, as they follow each other in `nodes`."""
        places = [self._by_kind[kind] for kind in kinds if kind in self._by_kind]
        found = [self.nodes[i] for i in (places[0] if len(places) == 1 else sorted(chain.from_iterable(places)))]
        return cast(list[N], found)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], array[int]]:
        found: dict[type[ast.AST], array[int]] = {}
        for place, node in enumerate(self.nodes):
            found.setdefault(node.__class__, array("L")).append(place)
        return found

    @property
    def depth(self) -> int:
        """How many levels of syntax the file nests."""
        return self._levels(ast.AST)

    @property
    def pattern_depth(self) -> int:
        """How many levels the patterns of its `case`s nest."""
        return self._levels(ast.pattern) if ast.Match in self._by_kind else 0

    def _levels(self, kind: type[ast.AST]) -> int:
        levels: dict[ast.AST, int] = {self.tree: 0}
        for node in self.nodes:  # each comes after what holds it
            levels[node] = levels[self.parents[node]] + isinstance(node, kind)
        return max(levels.values())

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands around an expression within its statement, from the inside out."""
        return takewhile(lambda a: not isinstance(a, ast.stmt), self.ancestors(node))

    def inside_of(self, node: ast.AST, stmts: Collection[ast.stmt]) -> bool:
        """Whether a node is one of some statements, or stands in one."""
        return any(a in stmts for a in (node, *self.ancestors(node)))

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node (itself, for a statement)."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.parents.get(current)
        assert current is not None, "every expression belongs to a statement"
        return current

    def block(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The list of statements that holds a statement."""
        parent = self.parents[stmt]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(s is stmt for s in block):
                return block
        raise LookupError(f"{self.display}:{stmt.lineno}: statement without a block")

    def above(self, node: ast.AST, within: Container[ast.AST]) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
        """The statement of a node and those around it, the innermost first, as far as they are none of the nodes `within`, each
        with what stands above it in its block."""
        stmt: ast.AST | None = self.statement(node)
        while isinstance(stmt, ast.stmt) and stmt not in within:
            block = self.block(stmt)
            yield stmt, block[: block.index(stmt)]
            stmt = self.parents.get(stmt)
            stmt = self.parents.get(stmt) if isinstance(stmt, ast.ExceptHandler | ast.match_case) else stmt

    @cached_property
    def loads(self) -> dict[str, list[ast.Name]]:
        """Reads of each name."""
        found: dict[str, list[ast.Name]] = {}
        for node in self.of(ast.Name):
            if isinstance(node.ctx, ast.Load):
                found.setdefault(node.id, []).append(node)
        return found

    @cached_property
    def named(self) -> dict[str, list[ast.AST]]:
        """Reads of attributes, and string constants, by name."""
        found: dict[str, list[ast.AST]] = {}
        for node in self.of(ast.Attribute, ast.Constant):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, []).append(node)
        return found

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """Every import statement."""
        return cast("list[ast.Import | ast.ImportFrom]", self.of(ast.Import, ast.ImportFrom))

    @cached_property
    def lines(self) -> list[bytes]:
        # ast counts columns in UTF-8 bytes; bytes.splitlines ends lines where the tokenizer does: \n, \r\n, \r.
        return self.text.encode().splitlines(keepends=True)

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node as it can be quoted and compared: byte for byte, but for an expression that reads as itself
        only where it stands (lines that brackets around it join), and names in letters or spaces of their own."""
        if node in self._imagined:
            return self._imagined[node]
        text = self.verbatim(node)
        if isinstance(node, ast.expr) and not _plain(node, text):
            return self.written(node)
        return text

    def verbatim(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, byte for byte."""
        lines = self.lines
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None
        assert end_column is not None
        if node.lineno == end_line:
            return lines[node.lineno - 1][node.col_offset : end_column].decode()
        first = lines[node.lineno - 1][node.col_offset :]
        middle = lines[node.lineno : end_line - 1]
        return b"".join([first, *middle, lines[end_line - 1][:end_column]]).decode()

    def imagine(self, text: str, near: ast.expr | Scope) -> ast.expr:
        """An expression that the file does not have, to be read as if it stood where another one does, or in a scope."""
        found = ast.parse(text, mode="eval").body
        if isinstance(near, Scope):
            within, near = near, ast.copy_location(ast.Constant(None), near.body[0] if near.body else found)
            self.parents[near] = statement = ast.copy_location(ast.Expr(near), near)
            self.parents[statement] = within.node
        for node in walk(found):
            if isinstance(node, ast.expr):
                self._imagined[node] = self.written(node) if node is not found else text
                ast.copy_location(node, near)
            self.parents.update((child, node) for child in children(node))
        self.parents[found] = self.parents[near]
        return found

    @cached_property
    def prefers_double(self) -> bool:
        """Whether strings are mostly written in double quotes."""
        return self.text.count('"') >= self.text.count("'")

    def written(self, node: ast.expr | ast.Expression) -> str:
        """An expression that was put together, in the file's own quotes."""
        text = ast.unparse(node)
        return text.replace("'", '"') if self.prefers_double and '"' not in text else text


def _plain(node: ast.expr, text: str) -> bool:
    """Whether the text of an expression means the same, and compares, wherever it stands."""
    if isinstance(node, ast.NamedExpr):
        return False  # in most places it stands in parentheses
    if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
        return False
    if "\n" in text or "\r" in text:
        try:
            ast.parse(text, mode="eval")
        except SyntaxError:
            return False
    inner = root_of(node)
    return not isinstance(inner, ast.Name) or not any(space in text for space in " \t\n\r(\\")
