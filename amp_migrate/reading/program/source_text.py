"""The text of a file, as it is asked for words."""

from __future__ import annotations

import unicodedata


class SourceText(str):
    """The text of a file. Each unit asks it for the same words: it looks for each once. Names may be spelled in letters that
    Python reads as others (`𝐚mp` is `amp`): it holds a word also where that is spelled so."""

    __slots__ = ("_known", "_read")

    def __init__(self, text: str) -> None:
        self._read = text if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text)
        self._known: dict[str, bool] = {}

    def __contains__(self, word: str) -> bool:  # type: ignore[override]
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = super().__contains__(word) or word in self._read
        return found
