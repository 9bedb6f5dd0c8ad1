"""The switch of mixed precision read through another name."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tests.metamorphic.program import Project, Reading, expression, statements


def _switches(reading: Reading) -> list[ast.If]:
    """`if args.fp16:` around Apex, in whichever form the condition has."""
    marks = [*reading.scaled, *reading.initialized]
    found = []
    for mark in marks:
        parent = reading.parents[reading.statement(mark)]
        if isinstance(parent, ast.If) and parent not in found and isinstance(parent.test, (ast.Name, ast.Attribute)):
            found.append(parent)
    return found


def through(make: str, read: str = "{name}") -> Callable[[Reading], Project | None]:
    """The condition is given a name just before the `if`, and read by it."""

    def transform(reading: Reading) -> Project | None:
        found = _switches(reading)
        for switch in found:
            name = reading.fresh("mixed")
            block = reading.block(switch)
            if isinstance(reading.parents[switch], ast.If) and switch in getattr(reading.parents[switch], "orelse", []):
                continue
            if switch in block:
                reading.insert(switch, *statements(make.format(name=name, test=ast.unparse(switch.test))))
                switch.test = expression(read.format(name=name))
        return reading.project() if found else None

    return transform


def early(reading: Reading) -> Project | None:
    """The switch read into a name at the top of the function that scales, where it is an option of `args`."""
    changed = False
    for switch in _switches(reading):
        start = reading.start(switch)
        test = switch.test
        if start is switch or not isinstance(test, ast.Attribute):
            continue
        name = reading.fresh("use_mixed")
        reading.insert(start, *statements(f"{name} = bool({ast.unparse(test)})"))
        switch.test = expression(name)
        changed = True
    return reading.project() if changed else None


def condition(reading: Reading) -> Project | None:
    """`if args.fp16 is True or bool(args.fp16):` says the same in more words."""
    found = _switches(reading)
    for switch in found:
        switch.test = expression(f"not (not {ast.unparse(switch.test)})")
    return reading.project() if found else None


TRANSFORMS = {
    "flag under another name": through("{name} = {test}"),
    "flag as a number": through("{name} = 1 if {test} else 0"),
    "flag as text": through("{name} = 'yes' if {test} else 'no'", "{name} == 'yes'"),
    "flag in a dict": through("{name} = {{'fp16': {test}}}", "{name}['fp16']"),
    "flag read early": early,
    "flag negated twice": condition,
}
