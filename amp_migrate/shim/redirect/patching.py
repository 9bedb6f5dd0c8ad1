"""Replacing attributes of torch by dotted name, and remembering what was there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

_MISSING = object()
originals: dict[str, Any] = {}


def replace(name: str, value: Any) -> None:
    """Set the attribute called `name` ("torch.cuda.is_available"); what it was is kept in `originals`."""
    owner, attribute = _owner(name)
    originals.setdefault(name, getattr(owner, attribute, _MISSING))
    setattr(owner, attribute, value)


def wrap(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function called `name` by `make(original)`; a name this version of torch lacks is left out."""
    owner, attribute = _owner(name)
    original = getattr(owner, attribute, None)
    if original is not None:
        replace(name, wraps(original)(make(original)))


def words(text: str) -> list[str]:
    """The words of a text: tables of names are written this way."""
    return text.split()


def exists(name: str) -> bool:
    """Whether this version of torch has `name`."""
    try:
        owner, attribute = _owner(name)
    except ImportError:
        return False
    return hasattr(owner, attribute)


def _owner(name: str) -> tuple[Any, str]:
    path, _, attribute = name.rpartition(".")
    parts = path.split(".")
    owner: Any = importlib.import_module(parts[0])
    for position, part in enumerate(parts[1:], start=2):
        if not hasattr(owner, part):
            importlib.import_module(".".join(parts[:position]))
        owner = getattr(owner, part)
    return owner, attribute
