"""Carry edits out with libcst: the `ast` and the concrete tree share their block structure, so the two are walked
side by side and only statements that change are touched; everything else keeps its bytes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TypeVar, cast

import libcst as cst

from amp_migrate.reading.program.logic import pure
from amp_migrate.writing.beyond import beyond
from amp_migrate.writing.edits import Code, Edits, StatementEdit, Wrap
from amp_migrate.writing.emitted import parts_of
from amp_migrate.writing.generated import code_of
from amp_migrate.writing.indentation import between, block, continued, margin, shifted, step_around
from amp_migrate.writing.joined import branch_of_equals
from amp_migrate.writing.lines import (
    ABOUT_APEX,
    NAMES_APEX,
    Statement,
    apart,
    attached,
    follow,
    join_lines,
    lead,
    surviving,
    unled,
    without_stale,
)
from amp_migrate.writing.pieces import Piece, in_pieces
from amp_migrate.writing.statements import Statements, one_line
from amp_migrate.writing.stretches import shortened
from amp_migrate.writing.style import Style
from amp_migrate.writing.verbatim import may_drift, restore

Clause = TypeVar("Clause", cst.Else, cst.Finally)


def apply(edits: Edits) -> str:
    """The text of the module with its edits carried out.

    Raises libcst.ParserSyntaxError where emitted code does not parse: a defect of the rule that emitted it. Raises
    Unreadable where libcst cannot read what Python can.
    """
    text, body, touched, moving = edits.module.text, edits.module.tree.body, _touched(edits), _moving(edits)
    short = shortened(text, body, touched | moving, moving)
    after = short.whole(_written(edits, in_pieces(short, touched - moving), touched, short.left))
    return after if after is not None else _written(edits, [Piece(text, body)], touched)


def _written(
    edits: Edits, pieces: Iterable[Piece], touched: set[ast.AST], left: Collection[ast.AST] = frozenset()
) -> str:
    writer: _Writer | None = None
    done: list[str] = []
    for piece in pieces:
        module = _read(piece.text, edits.module.text, writer.module.default_indent if writer is not None else None)
        writer = writer or _Writer(edits, module, touched, left)
        done.append(_piece_written(writer, piece, module))
    return "".join(done)


def _piece_written(writer: _Writer, piece: Piece, module: cst.Module) -> str:
    plain = code_of(module) if may_drift(piece.text) else piece.text
    body, footer = writer.block(piece.body, list(module.body))
    if body and not module.header and piece.body and piece.body[0] in writer.edits.statements:
        body[0] = unled(body[0])  # a file that began with what went begins with no blank line
    after = module.with_changes(body=body, footer=[*footer, *module.footer] if body else [*module.footer, *footer])
    return restore(piece.text, plain, code_of(after))


def _read(text: str, whole: str, indent: str | None = None) -> cst.Module:
    """A text as libcst reads it. `indent`: how what comes before it is indented, where something does."""
    try:
        if indent is None:
            return cst.parse_module(text)
        module = cst.parse_module(f"if 1:\n{indent}pass\n{text}")
        return module.with_changes(body=module.body[1:])
    except cst.ParserSyntaxError as error:
        if text != whole:  # for the number of the line
            _read(whole, whole)
        raise Unreadable(f"libcst, which writes it, cannot read line {error.raw_line}") from None


class Unreadable(Exception):
    """A file that is valid Python and that libcst does not parse all the same."""


def _touched(edits: Edits) -> set[ast.AST]:
    """Nodes with an edit at or below them."""
    marks: list[ast.AST] = [
        *edits.expressions,
        *edits.insertions,
        *edits.cuts,
        *edits.statements,
        *edits.before,
        *edits.after,
        *edits.moves,
        *edits.moves.values(),
        *edits.comments,
    ]
    marks += [w.first for w in edits.wraps] + [w.last for w in edits.wraps]
    touched: set[ast.AST] = set()
    for mark in marks:
        node: ast.AST | None = mark
        while node is not None and node not in touched:
            touched.add(node)
            node = edits.module.parents.get(node)
    return touched


def _moving(edits: Edits) -> set[ast.AST]:
    """The statements that get a header above them, go, or come to stand elsewhere."""
    moving: set[ast.AST] = {*edits.moves, *edits.statements}
    for wrap in edits.wraps:
        within = False
        for stmt in edits.module.block(wrap.first):
            within |= stmt is wrap.first
            if within:
                moving.add(stmt)
            within &= stmt is not wrap.last
    return moving


class _Writer(Statements):
    def __init__(
        self, edits: Edits, module: cst.Module, touched: set[ast.AST], left: Collection[ast.AST] = frozenset()
    ) -> None:
        super().__init__(edits, module, touched)
        self.left = left  # statements without a line of their own
        self.newline = module.default_newline
        self.continued = continued(edits.module.text) or any(continued(c) for c in edits.emitted_text())
        self.wraps = {w.first: w for w in reversed(edits.wraps)}
        self.order = {id(w): n for n, w in enumerate(edits.wraps)}
        self.moved: dict[ast.stmt, list[tuple[str, list[Statement]]]] = {}  # target -> what goes there, and under what

    @cached_property
    def _step(self) -> str:
        return Style(self.edits.module).indent

    # -- blocks --------------------------------------------------------------------------------------------------

    def block(
        self, stmts: Sequence[ast.stmt], lines: Sequence[cst.BaseStatement | cst.BaseSmallStatement]
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        """The statements that a block becomes, and comment lines left over at its end."""
        groups: list[tuple[list[ast.stmt], list[Statement]]] = []
        carried: list[cst.EmptyLine] = []
        stmts = [s for s in stmts if s not in self.left]
        at = 0
        apart = False  # whether lines that stood beyond a statement end what is carried
        for line in lines:
            count = len(line.body) if isinstance(line, cst.SimpleStatementLine) else 1
            own = list(stmts[at : at + count])
            at += count
            further: list[cst.EmptyLine] = []
            carried_after: list[cst.EmptyLine] = []
            if not any(s in self.touched for s in own):
                new = [cast(Statement, line)]
            else:
                if isinstance(line, cst.BaseCompoundStatement):
                    kept, further = beyond(line, margin(self.edits.module, own[0]), self.module.default_indent)
                    line = cast(cst.BaseCompoundStatement, kept)
                new, carried_after = self._line(own, line)
            if new:
                new[0] = lead(new[0], carried) if apart else follow(new[0], carried)
                carried, apart = carried_after, False
            else:
                carried = join_lines(carried, carried_after)
            carried, apart = join_lines(carried, further), apart or bool(further)
            groups.append((own, new))
        return self._wrap(groups), carried

    def _wrap(self, groups: list[tuple[list[ast.stmt], list[Statement]]]) -> list[Statement]:
        out: list[Statement] = []
        open_wrap: Wrap | None = None
        held: list[Statement] = []
        for own, new in groups:
            opening = [self.wraps[s] for s in own if s in self.wraps]
            if opening:
                open_wrap = min(opening, key=lambda wrap: self.order[id(wrap)])
            if open_wrap is None:
                out += new
                continue
            inner = list(new)
            lead = len(self.edits.before.get(own[0], ())) if any(open_wrap.first is s for s in own) else 0
            tail = len(self.edits.after.get(own[-1], ())) if any(open_wrap.last is s for s in own) else 0
            out += inner[:lead]
            held += inner[lead : len(inner) - tail]
            if any(open_wrap.last is s for s in own):
                if held:
                    out.append(self._with(open_wrap, held))
                out += inner[len(inner) - tail :] if tail else []
                open_wrap, held = None, []
        assert open_wrap is None, "a region ends in the block that it begins in"
        return out

    def _with(self, wrap: Wrap, held: list[Statement]) -> Statement:
        first = held[0].with_changes(leading_lines=[])
        node = self._headed((f"{wrap.keyword} ", *parts_of(wrap.header)), [first, *held[1:]], wrap.first)
        return node.with_changes(leading_lines=held[0].leading_lines)

    def _headed(self, header: Code, held: list[Statement], place: ast.stmt) -> Statement:
        """Statements under a header, as deep as the blocks of the function around a place are."""
        default = self.module.default_indent
        node = cast(
            cst.With | cst.If, self.emitted.statements((*parts_of(header), ":", self.newline, default, "pass"))[0]
        )
        step = step_around(self.edits.module, place) or self._step
        return node.with_changes(body=block(held, step, default, continued=self.continued))

    # -- one line ------------------------------------------------------------------------------------------------

    def _line(
        self, own: list[ast.stmt], line: cst.BaseStatement | cst.BaseSmallStatement
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        if isinstance(line, cst.BaseCompoundStatement):
            new, carried = self._statement(own[0], line)
            placed = self._around(own[0], new, line)
            if own[0] in self.edits.moves:
                return placed, self._left_behind(line)
            return placed, carried if new or not placed else []  # else the comments went to what stands in its place
        if isinstance(line, cst.BaseSmallStatement):
            line = cst.SimpleStatementLine(body=[line])
        assert isinstance(line, cst.SimpleStatementLine)
        out: list[Statement] = []
        for index, (stmt, small) in enumerate(zip(own, line.body, strict=True)):
            if len(own) == 1 and small.semicolon is cst.MaybeSentinel.DEFAULT:
                alone = line
            else:
                alone = cst.SimpleStatementLine(body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                if index == 0:
                    alone = alone.with_changes(leading_lines=line.leading_lines)
                if index == len(own) - 1:
                    alone = alone.with_changes(trailing_whitespace=line.trailing_whitespace)
            new = self._statement(stmt, alone)[0] if stmt in self.touched else [alone]
            new = self._around(stmt, new, alone)
            if len(new) == 1 and out and stmt not in self.touched and isinstance(out[-1], cst.SimpleStatementLine):
                out[-1] = _join_small(out[-1], cast(cst.SimpleStatementLine, new[0]))
            else:
                out += new
        if not out and all(s in self.edits.moves for s in own):
            return [], self._left_behind(line)
        if not out:
            return [], surviving(line.leading_lines)
        if line.leading_lines and not out[0].leading_lines and own[0] in self.edits.statements:
            out[0] = lead(out[0], surviving(line.leading_lines))
        return out, []

    def _left_behind(self, line: Statement) -> list[cst.EmptyLine]:
        """The lines above a statement that stay where it stood when it moves."""
        return list(line.leading_lines)[: len(line.leading_lines) - len(attached(line.leading_lines))]

    def _around(self, stmt: ast.stmt, new: list[Statement], old: Statement) -> list[Statement]:
        if stmt in self.edits.comments and new:
            rows = [cst.EmptyLine(comment=cst.Comment(row)) for row in self.edits.comments[stmt]]
            new[0] = new[0].with_changes(leading_lines=[*new[0].leading_lines, *rows])
        target = self.edits.moves.get(stmt)
        if target is not None:
            before = [s for code in self.edits.before.get(stmt, ()) for s in self.emitted.statements(code)]
            if new:
                new[0] = new[0].with_changes(leading_lines=attached(new[0].leading_lines))
            new = [shifted(s, *between(self.edits.module, stmt, target)) for s in new]
            groups = self.moved.setdefault(target, [])
            condition = self.edits.conditions.get(stmt, "")
            if groups and groups[-1][0] == condition:
                groups[-1][1].extend([*before, *new])
            else:
                groups.append((condition, [*before, *new]))
            return []
        before = [s for code in self.edits.before.get(stmt, ()) for s in self.emitted.statements(code)]
        for condition, group in self.moved.pop(stmt, []):
            before += [self._headed(f"if {condition}", group, stmt)] if condition else group
        after = [s for code in self.edits.after.get(stmt, ()) for s in self.emitted.statements(code)]
        if before and new and isinstance(before[-1], (cst.ClassDef, cst.FunctionDef)):
            before = [apart(s) if isinstance(s, (cst.ClassDef, cst.FunctionDef)) else s for s in before]
            new[0] = apart(new[0])
        elif before and new:
            # Comments above a statement introduce what is put before it as well.
            before[0] = lead(before[0], new[0].leading_lines)
            member = isinstance(new[0], cst.FunctionDef) and isinstance(
                self.edits.module.parents.get(stmt), ast.ClassDef
            )
            new[0] = new[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)] if member else [])
        elif before and not new:
            before[0] = before[0].with_changes(leading_lines=surviving(old.leading_lines, NAMES_APEX))
        return [*before, *new, *after]

    def _statement(self, stmt: ast.stmt, old: Statement) -> tuple[list[Statement], list[cst.EmptyLine]]:
        edit = self.edits.statements.get(stmt)
        if edit is None:
            new, carried = self.inside(stmt, old)
            if new and stmt in self.touched:
                new[0] = without_stale(new[0])
            if new and isinstance(stmt, ast.If) and self._were_two(stmt):
                one = branch_of_equals(new[0])
                return self._unnested(stmt, one, new[0]) if one is not None else (new, carried)
            return new, carried
        if edit.kind == "delete":
            return [], surviving(old.leading_lines)
        if edit.kind == "replace":
            return self._replaced(edit, old), []
        return self._spliced(stmt, edit, old)

    def _were_two(self, stmt: ast.If) -> bool:
        """Whether the branches of an `if` differed before, and nothing is lost with its test."""
        body, orelse = ([ast.dump(s) for s in block] for block in (stmt.body, stmt.orelse))
        return bool(orelse) and body != orelse and pure(stmt.test)

    def _unnested(
        self, stmt: ast.If, suite: cst.BaseSuite, old: Statement
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        """The statements of a branch, where the `if` stood."""
        own = list(suite.body) if isinstance(suite, cst.IndentedBlock) else [one_line(suite)]
        new = [cast(Statement, s) for s in own]
        new[0] = new[0].with_changes(leading_lines=join_lines(list(old.leading_lines), list(new[0].leading_lines)))
        if self.continued:
            new = [shifted(s, *between(self.edits.module, stmt.body[0], stmt)) for s in new]
        return new, list(suite.footer) if isinstance(suite, cst.IndentedBlock) else []

    def _replaced(self, edit: StatementEdit, old: Statement) -> list[Statement]:
        new = [s for code in edit.codes for s in self.emitted.statements(code)]
        if not new:
            return []
        new[0] = without_stale(new[0].with_changes(leading_lines=[*old.leading_lines, *new[0].leading_lines]))
        if isinstance(old, cst.SimpleStatementLine) and isinstance(new[-1], cst.SimpleStatementLine):
            new[-1] = new[-1].with_changes(trailing_whitespace=old.trailing_whitespace)
        return new

    def _spliced(
        self, stmt: ast.stmt, edit: StatementEdit, old: Statement
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        inner = getattr(stmt, edit.branch)
        branch = getattr(old, edit.branch)
        if not inner or branch is None:
            return [], surviving(old.leading_lines)
        lines = surviving(old.leading_lines, NAMES_APEX) if edit.about_apex else list(old.leading_lines)
        if isinstance(branch, cst.If):
            new, carried = self.block(inner, [branch])
        else:
            suite = branch.body if isinstance(branch, cst.Else) else branch
            comment = suite.header.comment if isinstance(suite, cst.IndentedBlock) else None
            if comment is not None and not ABOUT_APEX.search(comment.value):
                lines.append(cst.EmptyLine(comment=comment))
            if isinstance(suite, cst.IndentedBlock):
                new, carried = self.block(inner, suite.body)
                carried = [*carried, *suite.footer]
            else:
                new, carried = self.block(inner, [one_line(suite)])
        if not new:
            return [], join_lines(surviving(lines), carried)
        new[0] = new[0].with_changes(leading_lines=join_lines(lines, list(new[0].leading_lines)))
        if self.continued:
            new = [shifted(s, *between(self.edits.module, inner[0], stmt)) for s in new]
        return new, carried

    # -- inside a statement --------------------------------------------------------------------------------------


def _join_small(line: cst.SimpleStatementLine, more: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    last = line.body[-1].with_changes(semicolon=cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" ")))
    return line.with_changes(body=[*line.body[:-1], last, *more.body], trailing_whitespace=more.trailing_whitespace)
