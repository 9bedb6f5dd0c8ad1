"""pyproject.toml, read the same way for every command, whatever stands in it."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A key of so many parts takes the parser time in the square of them: minutes, where somebody wishes so.
_DEEP_KEY = re.compile(r"(?:[\w-]+[ \t]*\.[ \t]*){500}")


def parse(text: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError where it is none, holds a number of thousands of digits or nests too deeply."""
    if _DEEP_KEY.search(text):
        raise ValueError("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
