"""Notebooks: the code cells of an `.ipynb` file as one program, and back into the file.

The format is nbformat 4 (https://nbformat.readthedocs.io). Cells are joined with marker statements between them, and
lines of IPython's own (magics, shell commands, help) are masked by statements; both are strings, which no rewrite
touches. On the way back only the sources of cells that changed are written: every other byte of the JSON stays.
"""

from __future__ import annotations

import json
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amp_migrate.findings import Finding
from amp_migrate.sources.failures import INTERNAL, SYNTAX, SourceError

_MARK = '"amp-migrate: cell {}"'
_MARK_LINE = re.compile(r'^"amp-migrate: cell (\d+)"[ \t]*(?:\n|\Z)', re.M)
_MASK = '"amp-migrate: line {}"'
_MASK_LINE = re.compile(r'"amp-migrate: line (\d+)"')

# Lines of the program that a message names: "line 3", "lines 21, 80"; not those of another file.
_LINES = re.compile(r"\blines? \d+(?:(?:, | and | or |, and |, or )\d+)*(?P<other> of [\w./-]+\.(?:py|ipynb)\b)?")

# Integers stay text: Python converts none of thousands of digits.
_DECODER = json.JSONDecoder(parse_int=str)
_SPACE = re.compile(r"[ \t\r\n]*")

# Cell magics whose cell is Python still; every other one hands its cell to another language.
_PYTHON_CELLS = frozenset(
    ("time", "timeit", "capture", "prun", "python", "python3", "debug", "mprun", "lprun", "memit")
)

# Commands that IPython takes without a % as well, where the line is no Python: `ls -l data`, `pip install x`; and such as a
# cell only shows: `python train.py`, with variables in front.
_BARE = (
    r"(?:(?:ls|ll|cd|cat|cp|mv|rm|mkdir|rmdir|man|more|less|pip|conda|mamba)|(?:[A-Z_][A-Z0-9_]*=\S+[ \t]+)*(?:python[\d.]*"
    r"|torchrun|accelerate|deepspeed|mpirun|horovodrun|bash|sh|git|wget|curl|tar|unzip|sudo|apt(?:-get)?|export|source))"
    r"[ \t]+(?![ \t=([,:]|\.(?![./]))"
)

# What IPython understands and Python does not: `%magic`, `!command`, `x = !command`, `?name` and `name?`.
_MAGIC = re.compile(
    r"(?P<kept>[ \t]*(?:[\w.,\[\]'\" \t]+(?<![=!<>])=[ \t]*)?)(?:%{1,2}[A-Za-z_]|!|\?{1,2}[\w.%])"
    rf"|{_BARE}"
)
_HELP = re.compile(r"(?P<kept>[ \t]*)%{0,2}[\w.*]+\?{1,2}[ \t]*$")
_SHELL = re.compile(
    r"(?:[ \t]*(?:[\w., \t]+=[ \t]*)?(?:!!?|%(?=(?:pip|conda|mamba)\b)|%(?:sx|system)\b)|(?=(?:pip|conda|mamba)[ \t]+\w))(.*)",
    re.S,
)


@dataclass(frozen=True)
class Cell:
    """One code cell: its source, and where that stands in the JSON text."""

    number: int  # among all cells of the notebook, from 1
    start: int
    end: int
    source: str

    @cached_property
    def is_python(self) -> bool:
        """One magic hands the rest of the cell to the next: `%%time` above `%%bash`."""
        names = re.match(r"(?:%%.*\n)*(?:%%.*)?", self.source.lstrip("\n"))
        return names is None or set(re.findall(r"^%%(\w*)", names[0], re.M)) <= _PYTHON_CELLS

    @cached_property
    def masked(self) -> Masked:
        return _mask(self.source)


@dataclass(frozen=True)
class Masked:
    """A cell as Python: `text` ends in a newline; `lines[i]` is the line of the cell that line i of the text is."""

    text: str
    lines: tuple[int, ...]
    originals: tuple[str, ...]  # what each mask stands for

    def restored(self, text: str) -> str:
        return _MASK_LINE.sub(lambda match: self.originals[int(match[1])], text)


@dataclass(frozen=True)
class Notebook:
    """A notebook file as text, and its code cells."""

    text: str
    cells: tuple[Cell, ...]

    @classmethod
    def parse(cls, text: str) -> Notebook:
        """Read a notebook; raises SourceError when it is not JSON of nbformat 4."""
        try:
            data = _DECODER.decode(text)
        except json.JSONDecodeError as error:
            raise SourceError(
                SYNTAX, f"is not JSON: {error.msg}, line {error.lineno}", error.lineno, error.colno
            ) from None
        except RecursionError:
            raise SourceError(SYNTAX, "is not a notebook: nested too deeply") from None
        if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
            raise SourceError(SYNTAX, "is not a notebook of format 4: it has no cells")
        return cls(text, tuple(_cells(text)) if _language(data) == "python" else ())

    @property
    def python(self) -> Iterator[Cell]:
        """The cells that make the program."""
        return (cell for cell in self.cells if cell.is_python)

    @cached_property
    def program(self) -> str:
        """The code cells as one program."""
        return "".join(f"{_MARK.format(cell.number)}\n{cell.masked.text}" for cell in self.python)

    def with_program(self, program: str) -> str:
        """The file's text when its cells make `program`: the sources of changed cells replaced, nothing else.

        Raises SourceError when a cell's marker was lost, for then its code cannot be told from its neighbour's.
        """
        pieces = _MARK_LINE.split(program)
        numbers = [int(number) for number in pieces[1::2]]
        if numbers != [cell.number for cell in self.python]:
            raise SourceError(INTERNAL, "internal error: the rewritten cells cannot be told apart; not written")
        text, position, lead = [], 0, pieces[0]
        for cell, rewritten in zip(self.python, pieces[2::2], strict=True):
            rewritten, lead = lead + rewritten, ""
            if rewritten == cell.masked.text:
                continue
            if not cell.source.endswith("\n"):
                rewritten = rewritten.removesuffix("\n")
            literal = _literal(cell.masked.restored(rewritten), self.text[cell.start : cell.end])
            text += [self.text[position : cell.start], literal]
            position = cell.end
        return "".join((*text, self.text[position:]))

    def place(self, finding: Finding) -> Finding:
        """A finding of the program where it stands in the file: the line of the JSON text, the cell in its message."""
        cell, line = self._line_of_cell(finding.line)
        if cell is None:
            return finding
        return self.at(cell, line, replace(finding, message=_LINES.sub(self._in_cells, finding.message)))

    def _in_cells(self, named: re.Match[str]) -> str:
        """The lines of the program that a message names, as lines of cells."""
        said = []
        if named["other"]:
            return named[0]
        for number in re.findall(r"\d+", named[0]):
            cell, line = self._line_of_cell(int(number))
            said.append(f"cell {cell.number}, line {line}" if cell is not None else f"line {number}")
        between = re.findall(r"(?<=\d)\D+(?=\d)", named[0])
        return "".join(a + b for a, b in zip(said, [*(b.replace(",", ";") for b in between), ""], strict=True))

    def file_line(self, line: int) -> int:
        """The line of the file's JSON text that a line of the program is."""
        cell, number = self._line_of_cell(line)
        return line if cell is None else self._line(cell, number)

    def at(self, cell: Cell, line: int, finding: Finding) -> Finding:
        """A finding on a line of one cell, in terms of the file."""
        message = f"cell {cell.number}, line {line}: {finding.message}"
        return replace(finding, line=self._line(cell, line), message=message)

    def _line_of_cell(self, line: int) -> tuple[Cell | None, int]:
        """The cell that holds a line of the program, and which of the cell's own it is."""
        first = 1
        for cell in self.python:
            lines = cell.masked.lines
            if line <= first + len(lines):
                return cell, lines[max(line - first - 1, 0)]
            first += 1 + len(lines)
        return None, line

    def _line(self, cell: Cell, line: int) -> int:
        raw = self.text[cell.start : cell.end]
        items = list(_items(raw)) if raw.startswith("[") else []
        offset = items[min(line, len(items)) - 1][0] if items else 0
        return self.text.count("\n", 0, cell.start + offset) + 1

    def shell(self) -> Iterator[tuple[Cell, int, str]]:
        """Shell commands of all cells: the cell, the line in it, and the text."""
        for cell in self.cells:
            if not cell.is_python:
                head, _, body = cell.source.lstrip("\n").partition("\n")
                if re.match(r"%%(?:bash|sh|script|!)", head):
                    yield cell, 2, body
                continue
            for number, line in _statements(cell.source):
                if match := _SHELL.match(line):
                    yield cell, number, match[1]


def _language(data: dict[str, Any]) -> str:
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for table in ("kernelspec", "language_info"):
        entry = metadata.get(table)
        if isinstance(entry, dict):
            language = entry.get("language") or (entry.get("name") if table == "language_info" else None)
            if isinstance(language, str):
                return language.lower()
    return "python"


def _cells(text: str) -> Iterator[Cell]:
    """The code cells with the places of their sources, read from JSON text that is known to parse."""
    cells = next(start for key, start, _ in _members(text, 0) if key == "cells")
    for number, (start, _) in enumerate(_items(text, cells), 1):
        members = {key: (begin, end) for key, begin, end in _members(text, start)} if text[start] == "{" else {}
        if "cell_type" not in members or "source" not in members:
            continue
        if _DECODER.raw_decode(text, members["cell_type"][0])[0] != "code":
            continue
        value, _ = _DECODER.raw_decode(text, members["source"][0])
        source = "".join(map(str, value)) if isinstance(value, list) else str(value)
        begin, end = members["source"]
        yield Cell(number, begin, end, source)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _members(text: str, position: int) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of each value of the JSON object at `position`."""
    position = _skip(text, _skip(text, position) + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        start = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield key, start, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _items(text: str, position: int = 0) -> Iterator[tuple[int, int]]:
    """Start and end of each element of the JSON array at `position`."""
    position = _skip(text, position + 1)
    while text[position] != "]":
        _, end = _DECODER.raw_decode(text, position)
        yield position, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _statements(source: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1; magics that a backslash continues come as one."""
    lines = source.split("\n")
    number = 0
    while number < len(lines):
        first, line = number, lines[number]
        number += 1
        while line.endswith("\\") and number < len(lines) and _magic(line):
            line += "\n" + lines[number]
            number += 1
        yield first + 1, line


def _magic(line: str) -> re.Match[str] | None:
    return _HELP.match(line) or _MAGIC.match(line)


def _mask(source: str) -> Masked:
    text, lines, originals = [], [], []
    plain = _is_python(source)
    for number, line in _statements(source):
        if not plain and (match := _magic(line)):
            kept = match["kept"] or ""
            originals.append(line[len(kept) :])
            line = kept + _MASK.format(len(originals) - 1)
        text.append(line)
        lines += [number + extra for extra in range(line.count("\n") + 1)]
    if text[-1]:
        text.append("")
    else:
        lines.pop()
    return Masked("\n".join(text) or "\n", tuple(lines or (1,)), tuple(originals))


def _is_python(source: str) -> bool:
    """Whether a cell needs no mask: then a line that begins with % belongs to an expression or a string."""
    try:
        symtable.symtable(source, "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _literal(source: str, before: str) -> str:
    """The JSON of a cell's source in the style of the one it replaces: list or string, indentation, escapes."""
    ascii_only = before.isascii()
    if not before.startswith("["):
        return json.dumps(source, ensure_ascii=ascii_only)
    items = list(_items(before))
    raw = {json.loads(before[start:end]): before[start:end] for start, end in items}
    head = before[: items[0][0]] if items else "["
    tail = before[items[-1][1] :] if items else "]"
    between = before[items[0][1] : items[1][0]] if len(items) > 1 else "," + (head[1:] or " ")
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    written = (raw.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in lines)
    return head + between.join(written) + tail if lines else "[]"
