"""Texts that are asked for words."""

from __future__ import annotations

import unicodedata


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
