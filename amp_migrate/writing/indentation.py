"""How deep emitted blocks are indented, and what becomes of continuation lines when statements change their depth."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

import libcst as cst

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.lines import Statement
from amp_migrate.writing.style import common_step, steps

CONTINUED = re.compile(r"(\\\r?\n)([ \t]*)")


def step_around(module: Module, stmt: ast.stmt) -> str | None:
    """The step by which most blocks inside the function around a statement are indented; None where it has none."""
    scope = module.scope_of(stmt)
    found: Counter[str] = Counter()
    for inner in () if scope.is_module or scope.is_class else scope.body:
        found += steps(module, inner)
    return common_step(found) if found else None


def continued(text: str) -> bool:
    """Whether lines are continued by a backslash in a text."""
    return "\\\n" in text or "\\\r" in text


def block(held: Sequence[Statement], step: str, default: str, *, continued: bool = True) -> cst.IndentedBlock:
    """Statements one level deeper, by a step that may differ from the file's own; `continued`: some of their lines may be
    by a backslash."""
    body = [shifted(s, step) for s in held] if continued else held
    return cst.IndentedBlock(body=body, indent=None if step == default else step)


def shifted(statement: Statement, add: str, drop: int = 0) -> Statement:
    """A statement whose lines continued by a backslash move along with it: those between parentheses do so anyway,
    and the inside of a string stays as it is."""
    moved = statement.visit(_Continuations(add, drop)) if add or drop else statement
    assert isinstance(moved, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    return moved


class _Continuations(cst.CSTTransformer):
    def __init__(self, add: str, drop: int) -> None:
        super().__init__()
        self.add = add
        self.drop = drop

    def leave_SimpleWhitespace(
        self, original_node: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        if "\\" not in original_node.value:
            return updated_node
        return updated_node.with_changes(value=CONTINUED.sub(self._moved, original_node.value))

    def _moved(self, match: re.Match[str]) -> str:
        return match.group(1) + self.add + match.group(2)[self.drop :]


def between(module: Module, inner: ast.stmt, outer: ast.stmt) -> tuple[str, int]:
    """What to add to and drop from the lines of a statement that goes from one depth to that of another."""
    deeper = outer.col_offset - inner.col_offset
    line = module.lines[outer.lineno - 1].decode()
    return (line[: outer.col_offset][:deeper] if deeper > 0 else "", max(-deeper, 0))


def margin(module: Module, stmt: ast.stmt) -> str:
    """How a statement that begins its line is indented."""
    return module.lines[stmt.lineno - 1].decode()[: stmt.col_offset]
