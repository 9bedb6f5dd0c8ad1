"""One source file: its bytes, its text, and how to write it back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SourceFile:
    """A decoded Python file. `text` keeps line endings, form feeds and tabs; the BOM is kept apart."""

    path: Path
    display: str  # relative to the working directory, as reports print it
    text: str
    encoding: str = "utf-8"
    bom: bool = False
