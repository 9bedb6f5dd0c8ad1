"""What may have happened to the weights of networks on the way to a statement of an autocast region: see `passes.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.weights import Place
from amp_migrate.audit.ways.within import tests_around


@dataclass(frozen=True)
class Stale:
    """A network that runs again after its weights were written to, in one region; or, `blind`, after a run without
    gradients."""

    module: Module
    node: ast.Call  # the run
    wrote: tuple[Module, ast.AST]
    blind: bool = False

    @property
    def written(self) -> str:
        """What wrote into the weights, cut short; "" for a whole block."""
        node = self.wrote[1]
        text = syntax.text(node) if not hasattr(node, "body") else ""
        return text if len(text) < 60 else f"{text[:57]}..."


class Blind(NamedTuple):
    """A run without gradients: `named` as what the region called is, `of` what that is, `trail` the calls that lead there."""

    module: Module
    call: ast.Call
    named: str = ""
    of: frozenset[Place] = frozenset()
    trail: tuple[tuple[Module, ast.Call], ...] = ()


@dataclass
class State:
    """What may have happened on the way to a statement. `ran`: with which backward passes since; `stale`: what wrote;
    `blind`: what ran first without gradients."""

    ran: dict[Place, bool] = field(default_factory=dict)
    stale: dict[Place, tuple[Module, ast.AST]] = field(default_factory=dict)
    blind: dict[Place, Blind] = field(default_factory=dict)
    over: bool = False  # no way comes here: it returned

    def copy(self) -> State:
        return State(dict(self.ran), dict(self.stale), dict(self.blind), self.over)

    def join(self, other: State) -> None:
        if other.over:
            return
        if self.over:
            self.ran, self.stale, self.over = dict(other.ran), dict(other.stale), False
            self.blind = dict(other.blind)
            return
        for place, backed in other.ran.items():
            if backed or place not in self.ran:
                self.ran[place] = backed
        self.stale |= other.stale
        self.blind |= other.blind


def switched_apart(one: Iterable[tuple[Module, ast.Call]], other: Iterable[tuple[Module, ast.Call]]) -> bool:
    """Whether a switch that says for each run whether it has gradients leads to one of two places, or to the other."""
    ways = []
    for trail in (one, other):
        tests = [(module, test, came) for module, call in trail for test, came in tests_around(module, call)]
        ways.append({(module, syntax.text(test), came) for module, test, came in tests})
    return any((module, test, not came) in ways[1] for module, test, came in ways[0])
