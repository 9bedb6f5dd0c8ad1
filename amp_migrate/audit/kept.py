"""Answers that are kept with what they are about: those of a method with its object, those of a function with its first argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def kept(find: Callable[P, R]) -> Callable[P, R]:
    """Finds the answer to each question once; arguments are told apart as they are given, by position."""
    return _kept(find, None)


def kept_meanwhile(first: Callable[[], object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The same for questions that may come to ask themselves: the answer is `first()` while it is being found out."""
    return lambda find: _kept(find, first)


def _kept(find: Callable[P, R], first: Callable[[], object] | None) -> Callable[P, R]:
    @functools.wraps(find)
    def answer(of: Any, *about: Any) -> Any:
        values = of.__dict__
        if "kept answers" not in values:
            values["kept answers"] = {}
        known: dict[Any, Any] = values["kept answers"]
        key = (find, *about) if about else find
        if key not in known:
            if first is not None:
                known[key] = first()
            known[key] = find(of, *about)  # type: ignore[call-arg]
        return known[key]

    return cast("Callable[P, R]", answer)
