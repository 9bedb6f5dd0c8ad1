"""What is told of a tensor: its dtype under Apex and its dtype now."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from amp_migrate.audit.module import Module

Dtype = Literal["half", "maybe", "float", "int", "number", "?"]


@dataclass(frozen=True)
class Value:
    """A tensor, or a container of such: `items` where it is a tuple whose entries are told apart."""

    was: Dtype
    now: Dtype
    items: tuple[Value, ...] | None = None
    reduced: bool = False  # a sum or mean outside of any region
    numpy: bool = False
    origin: str = ""  # the forward it comes from

    @property
    def half(self) -> bool:
        return self.now in ("half", "maybe")

    def entry(self) -> Value:
        if self.items:
            return join(self.items)
        return self


UNKNOWN = Value("?", "?")
NUMBER = Value("number", "number")
INTEGER = Value("int", "int")
FLOAT = Value("float", "float")
HALF = Value("half", "half")
CAST = ".half()"  # the origin of a value that the program makes half itself

Report = Callable[[str, Module, ast.AST, Value, str], None]  # kind, place, value, detail
Env = dict[str, Value]


def join(values: Iterable[Value]) -> Value:
    found = list(values)
    if not found:
        return UNKNOWN
    result = found[0]
    for value in found[1:]:
        if value == result:
            continue
        items = None
        if result.items and value.items and len(result.items) == len(value.items):
            items = tuple(join(p) for p in zip(result.items, value.items, strict=True))
        result = Value(
            _join(result.was, value.was),
            _join(result.now, value.now),
            items,
            result.reduced or value.reduced,
            result.numpy or value.numpy,
            result.origin or value.origin,
        )
    return result


def _join(one: Dtype, other: Dtype) -> Dtype:
    if one == other:
        return one
    if {one, other} <= {"half", "maybe", "?"} and "half" in (one, other):
        return "maybe"
    return "?"


def promoted(one: Dtype, other: Dtype) -> Dtype:
    for dtype in ("?", "float", "half", "maybe", "int"):
        if dtype in (one, other):
            if dtype == "maybe" and "half" in (one, other):
                return "half"
            return dtype
    return "number"
