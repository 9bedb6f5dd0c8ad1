"""Tables of numbers in a program: hundreds of thousands of constants of which nobody asks which they are.

Each would be a node of every tree, looked at by every walk. In a tree a long one has its first numbers, and a name that no
program has in place of the rest: code written from such a tree, and not from the file's text, would not run and be noticed.
"""

from __future__ import annotations

import ast
import re

LONG = 10_000  # characters of numbers that are worth leaving out
FIRST = 4  # numbers that stay
REST = "*_etc_,"

_NUMBER = r"[-+]?\d[\w.]*(?:(?<=[eE])[-+]\d+)?\s*"
_ELEMENT = rf"(?:{_NUMBER}|[\[(]\s*(?:{_NUMBER},\s*)*(?:{_NUMBER})?[\])]\s*),\s*"
_FIRST = re.compile(rf"(?:{_ELEMENT}){{{FIRST}}}")
_MORE = re.compile(rf"(?:{_ELEMENT}){{1,100}}")  # a run of any length at once would be remembered number by number
_NO_END = re.compile(r"[^\r\n\f]")
_BLANKS = {n: " " for n in range(128) if chr(n) not in "\r\n\f"}
_ROOM = re.compile(rf"[^\r\n\f]{{{len(REST)}}}")


def parse(text: str) -> ast.Module:
    """The tree of a program, with long tables of numbers cut short. Every other node is where it is in the text.

    Raises SyntaxError or ValueError as `ast.parse` does.
    """
    short = shortened(text)
    if short is not text:
        try:
            return ast.parse(short)
        except SyntaxError:  # where no name may stand
            pass
    return ast.parse(text)


def shortened(text: str) -> str:
    """A program with its long tables of numbers cut short; itself where it has none."""
    if len(text) < LONG or text.count(",") < LONG // 10:
        return text
    parts: list[str] = []
    done = at = 0
    while (first := _FIRST.search(text, at)) is not None:
        at = first.end()
        while (more := _MORE.match(text, at)) is not None:
            at = more.end()
        if at - first.end() >= LONG and (room := _ROOM.search(text, first.end(), at)) is not None:
            before, after = text[first.end() : room.start()], text[room.end() : at]
            parts += [text[done : first.end()], _blank(before), REST, _blank(after)]
            done = at
    return "".join([*parts, text[done:]]) if parts else text


def _blank(text: str) -> str:
    """As many blanks on as many lines."""
    return text.translate(_BLANKS) if text.isascii() else _NO_END.sub(" ", text)
