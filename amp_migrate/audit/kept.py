"""Answers that are kept with what they are about: those of a method with its object, those of a function with its first argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
_UNKNOWN = object()


def kept(find: Callable[P, R]) -> Callable[P, R]:
    """Finds the answer to each question once; arguments are told apart as they are given, by position."""
    return _kept(find, None)


def kept_meanwhile(first: Callable[[], object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The same for questions that may come to ask themselves: the answer is `first()` while it is being found out."""
    return lambda find: _kept(find, first)


def _kept(find: Callable[P, R], first: Callable[[], object] | None) -> Callable[P, R]:
    @functools.wraps(find)
    def answer(of: Any, *about: Any) -> R:
        values = of.__dict__
        known = values.get("kept answers")
        if known is None:
            known = values["kept answers"] = {}
        answers = known.get(find)
        if answers is None:
            answers = known[find] = {}
        found = answers.get(about, _UNKNOWN)
        if found is _UNKNOWN:
            if first is not None:
                answers[about] = first()
            found = answers[about] = find(of, *about)  # type: ignore[call-arg]
        return cast(R, found)

    return cast("Callable[P, R]", answer)
