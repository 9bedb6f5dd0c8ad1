"""Texts that are asked for words."""

from __future__ import annotations

import re
import unicodedata

_AS = re.compile(r"as(?<=\sas)\s+(\w+)")
_IS = re.compile(r"=\s*(?:\w+\.)*(\w+)[ \t]*$", re.MULTILINE)
_LAST = re.compile(r"\w+$")
LONGEST = 200  # letters of a name, with the space after it


class Spelled(str):
    """A text that looks for a word once, and holds it also where it is spelled in letters that Python reads as others
    (`𝐚mp` is `amp`)."""

    __slots__ = ("_held", "read")

    def __init__(self, text: str) -> None:
        self.read = text if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text)
        self._held: dict[str, bool] = {}

    def __contains__(self, word: str) -> bool:  # type: ignore[override]
        held = self._held.get(word)
        if held is None:
            held = self._held[word] = super().__contains__(word) or word in self.read
        return held


def renamed(text: str) -> dict[str, set[str]]:
    """The other names that a text gives to what has one: `from x import a as b`, `b = x.a`."""
    found: dict[str, set[str]] = {}
    for at in _AS.finditer(text):
        words = text[max(0, at.start() - LONGEST) : at.start()].split()
        if words and (name := _LAST.search(words[-1])):
            found.setdefault(name[0], set()).add(at[1])
    for at in _IS.finditer(text):
        other = _LAST.fullmatch(text[text.rfind("\n", 0, at.start()) + 1 : at.start()].strip())
        if other:
            found.setdefault(at[1], set()).add(other[0])
    return found
