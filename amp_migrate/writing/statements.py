"""One statement with the edits inside of it: its expressions, its header, and the blocks that it holds."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar, cast

import libcst as cst

from amp_migrate.reading.program.logic import pure
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.emitted import Emitted
from amp_migrate.writing.joined import joined, without_first
from amp_migrate.writing.lines import (
    Statement,
    lead,
    surviving,
    unled,
    without_last_blanks,
)
from amp_migrate.writing.parts import negate, plain_with

Clause = TypeVar("Clause", cst.Else, cst.Finally)
MOST_COLUMNS = 120


class Statements:
    """Carries out what is inside of statements; `block` says what becomes of those in a block."""

    def __init__(self, edits: Edits, module: cst.Module, touched: set[ast.AST]) -> None:
        self.edits = edits
        self.module = module
        self.config = module.config_for_parsing
        self.emitted = Emitted(edits, module)
        self.touched = touched

    def block(
        self, stmts: Sequence[ast.stmt], lines: Sequence[cst.BaseStatement | cst.BaseSmallStatement]
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        raise NotImplementedError

    def inside(self, stmt: ast.stmt, old: Statement) -> tuple[list[Statement], list[cst.EmptyLine]]:
        if isinstance(old, cst.SimpleStatementLine):
            if not self._expression_edits([stmt]):
                return [old], []
            new = self.emitted.in_place(stmt, self.edits.text(stmt))
            assert isinstance(new, cst.SimpleStatementLine)
            return [old.with_changes(body=new.body)], []
        if isinstance(old, (cst.Try, cst.TryStar)):
            return self._try(cast(ast.Try, stmt), old)
        changed: Statement = self._header(stmt, old)
        for name in ("orelse", "body"):  # the body last: without it, an `else` takes its place
            left = self._branch(stmt, changed, name)
            if left is None:
                return [], surviving(old.leading_lines)
            changed = left
        if isinstance(stmt, ast.Match) and isinstance(changed, cst.Match):
            cases = [
                c.with_changes(body=self._suite(case.body, c.body)[0] or c.body)
                for case, c in zip(stmt.cases, changed.cases, strict=True)
            ]
            changed = changed.with_changes(cases=cases)
        if isinstance(stmt, ast.If) and isinstance(changed, cst.If) and self._emits_alone(stmt.body):
            changed = joined(changed, MOST_COLUMNS - stmt.col_offset)
        return [changed], []

    def _emits_alone(self, stmts: Sequence[ast.stmt]) -> bool:
        """Whether a block held one statement, in whose place emitted code stands."""
        edit = self.edits.statements.get(stmts[0])
        return len(stmts) == 1 and edit is not None and edit.kind == "replace"

    def _try(self, stmt: ast.Try, old: cst.Try | cst.TryStar) -> tuple[list[Statement], list[cst.EmptyLine]]:
        """A try statement after its edits. Without a body nothing is caught: `else` and `finally` are what is left."""
        body = self._kept(stmt.body, old.body)
        orelse = self._clause(stmt.orelse, old.orelse)
        final = self._clause(stmt.finalbody, old.finalbody)
        handlers = [
            c.with_changes(body=self._kept(h.body, c.body) or empty())
            for h, c in zip(stmt.handlers, cast("Sequence[cst.ExceptHandler]", old.handlers), strict=True)
        ]
        if body is None:
            body, orelse, handlers = orelse.body if orelse is not None else None, None, []
        if body is None:
            body, final = final.body if final is not None else None, None
        if body is None:
            return [], surviving(old.leading_lines)
        if handlers or final is not None:
            return [old.with_changes(body=body, handlers=handlers, orelse=orelse, finalbody=final)], []
        lines = surviving(old.leading_lines)
        if isinstance(body, cst.IndentedBlock):
            first, *rest = cast(list[Statement], list(body.body))
            return [lead(unled(first), lines), *rest], list(body.footer)
        return [lead(one_line(body), lines)], []

    def _kept(self, stmts: Sequence[ast.stmt], suite: cst.BaseSuite) -> cst.BaseSuite | None:
        """A suite after its edits, itself where it has none; None where nothing is left of it."""
        return self._suite(stmts, suite)[0] if any(s in self.touched for s in stmts) else suite

    def _clause(self, stmts: Sequence[ast.stmt], old: Clause | None) -> Clause | None:
        """An `else` or `finally` after its edits; None where nothing is left of it."""
        suite = self._kept(stmts, old.body) if old is not None else None
        return old.with_changes(body=suite) if old is not None and suite is not None else None

    def _branch(self, stmt: ast.stmt, old: Statement | None, name: str) -> Statement | None:
        inner = getattr(stmt, name, None)
        if old is None or not isinstance(inner, list) or not any(s in self.touched for s in inner):
            return old
        branch = getattr(old, name)
        if isinstance(branch, cst.If):  # elif
            edit = self.edits.statements.get(inner[0])
            if edit is not None and edit.branch == "orelse" and isinstance(branch.orelse, cst.Else):
                if not any(line.comment for line in branch.leading_lines):
                    return old.with_changes(orelse=self._clause(cast(ast.If, inner[0]).orelse, branch.orelse))
            new, carried = self.block(inner, [branch])
            if len(new) == 1 and isinstance(new[0], cst.If):
                return old.with_changes(orelse=new[0])
            if not new:
                return old.with_changes(orelse=None)
            return old.with_changes(orelse=cst.Else(body=cst.IndentedBlock(body=new, footer=carried)))
        if isinstance(branch, cst.Else):
            return old.with_changes(orelse=self._clause(inner, branch))
        suite, footer = self._suite(inner, branch)
        if suite is not None:
            return old.with_changes(body=suite)
        return self._without_body(stmt, old, footer)

    def _without_body(self, stmt: ast.stmt, old: Statement, footer: Sequence[cst.EmptyLine]) -> Statement | None:
        """A statement whose body has become empty: dropped where that changes nothing, else given a `pass`."""
        if isinstance(old, cst.If) and isinstance(stmt, ast.If) and pure(stmt.test):
            if old.orelse is None:
                return None
            negated = cst.parse_expression(negate(stmt.test, self.edits.text(stmt.test)), config=self.config)
            if isinstance(old.orelse, cst.Else):
                return old.with_changes(
                    test=negated, whitespace_before_test=cst.SimpleWhitespace(" "), body=old.orelse.body, orelse=None
                )
            if (both := without_first(old, negated)) is not None:
                return both
        if isinstance(old, cst.With) and isinstance(stmt, ast.With) and plain_with(stmt):
            return None
        return old.with_changes(body=empty(footer))

    def _suite(
        self, stmts: Sequence[ast.stmt], suite: cst.BaseSuite
    ) -> tuple[cst.BaseSuite | None, Sequence[cst.EmptyLine]]:
        """A suite after its edits; None where nothing is left of it."""
        if isinstance(suite, cst.IndentedBlock):
            body, carried = self.block(stmts, suite.body)
            footer = [*carried, *suite.footer] if suite.footer else without_last_blanks(carried)
            if not body:
                return None, footer
            if stmts[0] in self.edits.statements and not getattr(suite.body[0], "leading_lines", ()):
                body[0] = unled(body[0])
            return suite.with_changes(body=body, footer=footer), footer
        assert isinstance(suite, cst.SimpleStatementSuite)
        body, carried = self.block(stmts, [one_line(suite)])
        if not body:
            return None, carried
        if len(body) == 1 and isinstance(body[0], cst.SimpleStatementLine) and not body[0].leading_lines:
            return suite.with_changes(body=body[0].body), []
        return cst.IndentedBlock(body=body, footer=carried), carried

    def _header(self, stmt: ast.stmt, old: Statement) -> Statement:
        """The header of a compound statement (test, iterable, items, parameters, decorators), edited as text."""
        children = [
            c for c in ast.iter_child_nodes(stmt) if not isinstance(c, (ast.stmt, ast.excepthandler, ast.match_case))
        ]
        if not self._expression_edits(children):
            return old
        body = getattr(stmt, "body", None)
        assert isinstance(body, list), "only statements with a body have a header to edit"
        end = self.edits.start(body[0])
        text = self.edits.text_between(self.edits.start(stmt), end, children)
        if text.startswith("elif"):
            text = text[2:]
        new = self.emitted.in_place(stmt, text + "pass")
        keep = {"leading_lines": old.leading_lines, "body": old.body}
        if hasattr(old, "orelse"):
            keep["orelse"] = old.orelse
        if hasattr(old, "lines_after_decorators"):
            keep["lines_after_decorators"] = old.lines_after_decorators
        return new.with_changes(**keep)

    def _expression_edits(self, roots: Sequence[ast.AST]) -> bool:
        stack = list(roots)
        while stack:
            node = stack.pop()
            if any(node in changed for changed in (self.edits.expressions, self.edits.insertions, self.edits.cuts)):
                return True
            if node in self.touched or node in roots:
                stack.extend(ast.iter_child_nodes(node))
        return False


def one_line(suite: cst.BaseSuite) -> cst.SimpleStatementLine:
    """The statements behind a header on its own line (`if x: a; b`), as a line of their own."""
    assert isinstance(suite, cst.SimpleStatementSuite)
    return cst.SimpleStatementLine(body=suite.body, trailing_whitespace=suite.trailing_whitespace)


def empty(footer: Sequence[cst.EmptyLine] = ()) -> cst.IndentedBlock:
    return cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Pass()])], footer=footer)
