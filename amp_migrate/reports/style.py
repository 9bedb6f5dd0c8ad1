"""Colour on a terminal, and only there (https://no-color.org)."""

from __future__ import annotations

import os
from typing import IO, Any


def wants_colour(stream: IO[Any]) -> bool:
    """Whether text for this stream may hold ANSI colours."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


class Style:
    """Paints words when `colour` is set and leaves them alone otherwise."""

    def __init__(self, colour: bool = False) -> None:
        self.colour = colour

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def bold(self, text: str) -> str:
        return self._paint(text, "1")

    def good(self, text: str) -> str:
        return self._paint(text, "32")

    def bad(self, text: str) -> str:
        return self._paint(text, "31")

    def warn(self, text: str) -> str:
        return self._paint(text, "33")

    def info(self, text: str) -> str:
        return self._paint(text, "36")

    def faint(self, text: str) -> str:
        return self._paint(text, "2")
