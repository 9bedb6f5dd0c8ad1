"""Texts with names in letters that Python reads as others."""

from __future__ import annotations

import unicodedata


class Spelled(str):
    """A text with names in letters that Python reads as others (`𝐚mp` is `amp`): it holds a word also where that is
    spelled so."""

    __slots__ = ("read",)

    def __init__(self, text: str) -> None:
        self.read = unicodedata.normalize("NFKC", text)

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or (isinstance(word, str) and word in self.read)  # type: ignore[operator]
