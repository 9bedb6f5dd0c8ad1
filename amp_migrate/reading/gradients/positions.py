"""Where `unscale_` and `update()` go in one function, as it was found out."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.reading.program.view import Node
from amp_migrate.reading.units.unit import Step


@dataclass
class Gradients:
    """Where to put `unscale_` and `update()` in one function."""

    unscale: list[tuple[ast.stmt, Step]] = field(default_factory=list)  # before this statement
    moved: list[tuple[list[ast.stmt], ast.stmt, Step]] = field(default_factory=list)  # readers -> before this statement
    conditions: dict[ast.stmt, str] = field(default_factory=dict)  # moved reader -> what it stands under
    inner: dict[ast.stmt, ast.stmt] = field(
        default_factory=dict
    )  # moved reader -> the statement in it to unscale before
    kept_values: list[tuple[str, ast.stmt]] = field(default_factory=list)  # name, loop it must be defined before
    update_after: list[tuple[ast.stmt, Step]] = field(default_factory=list)
    update_before: list[tuple[ast.stmt, Step]] = field(default_factory=list)  # early exits
    plain: set[ast.Call] = field(default_factory=set)  # steps whose gradients were never scaled
    apart: set[ast.Call] = field(default_factory=set)  # those of them in runs of their own
    levels: dict[ast.Call, Node] = field(default_factory=dict)  # step -> the statement after which the scale is updated
    heard: list[ast.stmt] = field(
        default_factory=list
    )  # events of every micro-batch, whose listeners may read gradients
    fired: set[ast.stmt] = field(default_factory=set)  # events that are unscaled before
    loops: dict[ast.stmt, ast.For] = field(default_factory=dict)  # unscaled before it: every optimizer of this loop

    def add(self, other: Gradients) -> None:
        """Take over the positions that were found for another step."""
        for name, mine in vars(self).items():
            (mine.extend if isinstance(mine, list) else mine.update)(getattr(other, name))
