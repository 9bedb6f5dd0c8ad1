"""A call written again with other arguments, in the layout it had."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.edits import Code
from amp_migrate.writing.parts import sliced

LINE = 110  # what a call joined to one line may take


# A comment behind the comma before, then space, comments and continued lines.
LEAD = re.compile(r"([ \t]*#[^\r\n]*)?((?:\s|\\\r?\n|#[^\r\n]*)*)")


@dataclass(frozen=True)
class Argument:
    """One argument of the new call: one of the old ones (`node`), `label` put before it; or, without node, new text."""

    node: ast.expr | ast.keyword | None
    label: str = ""


@dataclass(frozen=True)
class _Slot:
    """An argument as it stands in the file: what separates it from the one before, the value, the text around it."""

    comment: str  # at the end of the line that the comma before closes: about the argument before
    lead: str
    before: str
    value: ast.expr
    after: str


def arguments_of(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """Positional and keyword arguments in source order."""
    return sorted([*call.args, *call.keywords], key=lambda a: (a.lineno, a.col_offset))


def call_code(module: Module, call: ast.Call, function: str, arguments: Sequence[Argument], suffix: str = "") -> Code:
    """`function(arguments)suffix`, with the old arguments quoted as they are written.

    Line breaks stay where an argument follows that had one, unless it is the only one left; continuation lines aligned
    with the old opening parenthesis are aligned with the new one.
    """
    region = _Region(module, call)
    shift = region.shift(function)
    slots = dict(zip(map(id, arguments_of(call)), region.slots, strict=True))
    broken = next((s.lead for s in region.slots[1:] if "\n" in s.lead), None)
    first_lead = region.slots[0].lead if region.slots else ""
    kept = [a for a in arguments_of(call) if any(a is argument.node for argument in arguments)]
    if len(arguments) == len(kept) == 1 and (suffix or len(region.slots) > 1) and region.plain(kept[0]):
        only = slots[id(kept[0])]
        text = f"{function}({arguments[0].label}{only.before}{module.source(only.value)}{only.after}){suffix}"
        if call.col_offset + len(text) <= LINE:
            return (function, "(", arguments[0].label + only.before, only.value, only.after, ")", suffix)
    parts: list[str | ast.expr | ast.stmt] = [function, "("]
    comments = region.comments()
    previous = ""
    for index, argument in enumerate(arguments):
        slot = slots.get(id(argument.node))
        lead = slot.lead if slot is not None else (broken or " ")
        if index and slot is not None and slot is region.slots[0]:
            lead = lead or " "  # it stood first, right behind the parenthesis
        if index == 0:
            lead = first_lead if slot is not None or "\n" in first_lead else ""
        else:
            parts += [",", previous if "\n" in lead else ""]
        parts.append(shift(lead))
        if slot is None:
            parts.append(argument.label)
        else:
            parts += [argument.label + slot.before, slot.value, slot.after]
        previous = comments.get(id(argument.node), "")
    parts += [region.tail(last=bool(arguments)), ")", suffix]
    return tuple(parts)


class _Region:
    """The text of a call from its opening to its closing parenthesis, split at the commas between arguments."""

    def __init__(self, module: Module, call: ast.Call) -> None:
        self.module = module
        self.call = call
        end = (call.func.end_lineno or call.lineno, call.func.end_col_offset or 0)
        self.start = end
        stop = (call.end_lineno or call.lineno, call.end_col_offset or 0)
        self.text = sliced(self.module.lines, end, stop).decode()
        self.text = self.text[self.text.index("(") :]
        self.slots, self._tail = self._split(stop)

    def _split(self, stop: tuple[int, int]) -> tuple[list[_Slot], str]:
        chunks = _chunks(self.text)
        slots: list[_Slot] = []
        kept = 0  # of the last argument, with what stands around it
        for (first, last), argument in zip(chunks, arguments_of(self.call), strict=False):
            value = argument.value if isinstance(argument, ast.keyword) else argument
            text = self.text[first:last]
            at = (
                len(self.text) - len(sliced(self.module.lines, (value.lineno, value.col_offset), stop).decode()) - first
            )
            value_end = (value.end_lineno or value.lineno, value.end_col_offset or 0)
            until = len(self.text) - len(sliced(self.module.lines, value_end, stop).decode()) - first
            if at < 0:  # a generator that shares its parentheses with the call
                slots.append(_Slot("", "", "", value, ""))
                kept = last - first
                continue
            match = LEAD.match(text)
            assert match is not None
            comment, lead = match.group(1) or "", match.group(2)
            after = _bare(text[until:])
            kept = until + len(after)
            slots.append(_Slot(comment, lead, text[len(comment) + len(lead) : at], value, after))
        if not slots:
            return [], self.text[1:-1]
        return slots, self.text[chunks[len(slots) - 1][0] + kept : -1]

    def plain(self, argument: ast.expr | ast.keyword) -> bool:
        """Whether an argument stands on one line, in a call without comments."""
        return "#" not in self.text and argument.lineno == argument.end_lineno

    def comments(self) -> dict[int, str]:
        """The comment at the end of an argument's line, after its comma."""
        after = [s.comment for s in self.slots[1:]]
        return {id(a): c for a, c in zip(arguments_of(self.call), after, strict=False)}

    def tail(self, *, last: bool) -> str:
        """What stands between the last argument and the closing parenthesis."""
        return self._tail if last else ""

    def shift(self, function: str) -> _Shift:
        line = self.module.lines[self.start[0] - 1][: self.start[1]].decode()
        old = self.module.verbatim(self.call.func)
        grown = 0 if "\n" in old else len(function) - len(old)
        return _Shift(len(line) + 1, grown)


@dataclass(frozen=True)
class _Shift:
    """Moves continuation lines that were aligned with the opening parenthesis."""

    column: int
    grown: int

    def __call__(self, text: str) -> str:
        return re.sub(r"(?<=\n) +", self._moved, text)

    def _moved(self, match: re.Match[str]) -> str:
        spaces = match.group()
        return " " * (len(spaces) + self.grown) if len(spaces) == self.column else spaces


def _bare(text: str) -> str:
    """What follows an argument, without the space at its end, backslashes that continue a line among it; but where that ends
    a comment."""
    bare = re.sub(r"(?:\s|\\(?=\r?\n))+\Z", "", text)
    return text if "#" in re.split(r"\r\n|\r|\n", bare)[-1] else bare


def _chunks(text: str) -> list[tuple[int, int]]:
    """Where the arguments of a parenthesised list begin and end, split at its own commas."""
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    depth, begin = 0, 1
    chunks: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.type != tokenize.OP:
            continue
        at = starts[token.start[0] - 1] + token.start[1]
        if token.string in "([{":
            depth += 1
        elif token.string in ")]}":
            depth -= 1
            if depth == 0:
                chunks.append((begin, at))
                break
        elif token.string == "," and depth == 1:
            chunks.append((begin, at))
            begin = at + 1
    return chunks
