"""A mapping that tells whether it may have changed."""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Watched(dict[K, V]):
    """A mapping that counts how often it was asked to change, or for a value to be changed."""

    version = 0

    def __setitem__(self, key: K, value: V) -> None:
        self.version += 1
        super().__setitem__(key, value)

    def setdefault(self, key: K, default: V) -> V:
        self.version += 1
        return super().setdefault(key, default)

    def pop(self, *args: Any) -> Any:
        self.version += 1
        return super().pop(*args)

    def update(self, *args: Any, **kwargs: V) -> None:
        self.version += 1
        super().update(*args, **kwargs)
