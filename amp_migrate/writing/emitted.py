"""Emitted code as concrete syntax: parsed as the file is written, and once where it repeats."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import cast

import libcst as cst

from amp_migrate.writing.edits import Code, Edits
from amp_migrate.writing.lines import Statement
from amp_migrate.writing.parts import string_lines


class Emitted:
    """What the edits of one file emit."""

    def __init__(self, edits: Edits, module: cst.Module) -> None:
        self.edits = edits
        self.config = module.config_for_parsing
        self.newline = module.default_newline
        self.indent = module.default_indent

    def in_place(self, stmt: ast.stmt, text: str) -> Statement:
        """Parse edited source in its own indentation, so that continuation lines keep theirs."""
        line = self.edits.module.lines[stmt.lineno - 1].decode()
        indent = line[: len(line) - len(line.lstrip(" \t\f"))].replace("\f", "")
        text = self._ended(text)
        return cst.parse_statement(text, config=self.config) if not indent else _indented(text, indent, self.newline)

    def statements(self, code: Code) -> list[Statement]:
        """The statements that emitted code makes."""
        text = self.edits.render(code)
        if isinstance(code, tuple):
            text = self._dedent_quotes(code)
        return list(_statements(self._ended(text), self.indent, self.newline))

    def _ended(self, text: str) -> str:
        """With the line ends of the file, which emitted code knows nothing of."""
        return re.sub(r"\r\n|\r|\n", lambda _: self.newline, text) if self.newline != "\n" else text

    def _dedent_quotes(self, code: tuple[str | ast.expr | ast.stmt, ...]) -> str:
        """Quoted nodes spread over lines lose the indentation of the statement they come from."""
        out: list[str] = []
        for part in code:
            if isinstance(part, str):
                out.append(part)
                continue
            text = self.edits.quoted(part, "".join(out))
            if "\n" in text or "\r" in text:
                line = self.edits.module.lines[self.edits.module.statement(part).lineno - 1].decode()
                indent = line[: len(line) - len(line.lstrip(" \t"))]
                inside_strings = string_lines(text)
                rows = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
                text = "".join(
                    row.removeprefix(indent) if i and i not in inside_strings else row for i, row in enumerate(rows)
                )
            out.append(text)
        return "".join(out)


@lru_cache(maxsize=512)
def _indented(text: str, indent: str, newline: str) -> Statement:
    """A statement as deep as it stands, parsed."""
    wrapped = cst.parse_module(f"if 1:{newline}{indent}{text}{newline}")
    return cast(Statement, cast(cst.If, wrapped.body[0]).body.body[0])


@lru_cache(maxsize=512)
def _statements(text: str, indent: str, newline: str) -> tuple[Statement, ...]:
    """Emitted code, parsed: much of it is the same in one function after another."""
    module = cst.parse_module(text, config=cst.PartialParserConfig(default_indent=indent, default_newline=newline))
    body = cast(list[Statement], list(module.body))
    if body and module.header:
        body[0] = body[0].with_changes(leading_lines=[*module.header, *body[0].leading_lines])
    return tuple(body)


def parts_of(code: Code) -> tuple[str | ast.expr | ast.stmt, ...]:
    """The text and the nodes that emitted code is made of."""
    return (code,) if isinstance(code, str) else code
