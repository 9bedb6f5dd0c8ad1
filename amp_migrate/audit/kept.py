"""Answers that are kept with what they are about: those of a method with its object, those of a function with its first argument."""

from __future__ import annotations

import functools
import inspect
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
    name = f"{find.__module__}.{find.__qualname__}"  # under which the object has the answers

    @functools.wraps(find)
    def alone(of: Any) -> Any:
        answers = of.__dict__
        found = answers.get(name, answers)  # itself where there is no answer yet: one look
        if found is answers:
            if first is not None:
                answers[name] = first()
            found = answers[name] = find(of)  # type: ignore[call-arg]
        return found

    code = find.__code__
    several = code.co_argcount != 2 or bool(find.__defaults__) or bool(code.co_flags & inspect.CO_VARARGS)

    @functools.wraps(find)
    def answer(of: Any, about: Any) -> Any:
        answers = of.__dict__.get(name)
        if answers is None:
            answers = of.__dict__[name] = {}
        found = answers.get(about, answers)
        if found is answers:
            if first is not None:
                answers[about] = first()
            found = answers[about] = find(of, *about) if several else find(of, about)  # type: ignore[call-arg]
        return found

    @functools.wraps(find)
    def answer_to_several(of: Any, *about: Any) -> Any:
        return answer(of, about)

    if code.co_argcount == 1:
        return cast("Callable[P, R]", alone)
    return cast("Callable[P, R]", answer_to_several if several else answer)  # for one thing no tuple is made to ask
