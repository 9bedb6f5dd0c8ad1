"""File names as reports print them: no name moves a terminal's cursor, ends a line, or fails to encode."""

from __future__ import annotations

import os
import re

# Control characters, line and paragraph separators, marks that turn the direction of text, bytes that are no UTF-8.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}


def plain(text: str) -> str:
    """Text with what must not reach a terminal written out, as git writes it: `\\n`, `\\033`."""
    return _UNSAFE.sub(_escaped, text)


def lines(text: str, *, colour: bool = False) -> str:
    """The same of a text that has line breaks of ours; with `colour` what paints it stays, too."""
    kept = r"(\n|\x1b\[[\d;]*m)" if colour else r"(\n)"
    return "".join(part if i % 2 else plain(part) for i, part in enumerate(re.split(kept, text)))


def path(text: str) -> str:
    """A path; in quotes, as git and C have it, where something in it had to be written out."""
    if not _UNSAFE.search(text):
        return text
    return '"' + _UNSAFE.sub(_escaped, text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def shell(text: str) -> str:
    """A path as a word of a shell's command line, which no command takes for an option."""
    text = f"./{text}" if text.startswith("-") else text
    if re.fullmatch(r"[\w./+-]+", text, re.A):
        return text
    if _UNSAFE.search(text):
        return "$'" + _UNSAFE.sub(_escaped, text.replace("\\", "\\\\").replace("'", "\\'")) + "'"
    return "'" + text.replace("'", "'\\''") + "'"


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return _NAMED.get(character) or "".join(f"\\{byte:03o}" for byte in _bytes(character))


def _bytes(character: str) -> bytes:
    try:
        return os.fsencode(character)
    except UnicodeEncodeError:
        return character.encode("utf-8", "surrogatepass")
