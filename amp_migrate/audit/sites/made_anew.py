"""What is said where one call runs the initialized model on some ways, and on others what is made anew after the set-up."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.ways.chains import Chain, Step

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


Callers = list[tuple[str, int]]  # their files and lines
_HAND = "let the callers hand over whether the region is on (enabled=)"


@dataclass
class Anew:
    """A call of a model after. `runs`: whether it does run what is made anew, or may; `ways`: those on which it does so, `given`:
    those on which it runs a model that a set-up was given."""

    forward: Forward
    runs: str = ""
    ways: list[Chain] = field(default_factory=list)
    given: list[Chain] = field(default_factory=list)

    @property
    def module(self) -> Module:
        return self.ways[0].place.module


def doubts(both: Mixed, found: Iterable[Anew]) -> Iterator[Doubt]:
    """One doubt for the calls of a file of which the same is to be said."""
    told: dict[tuple[str, str, str, bool], list[Anew]] = {}
    for anew in found:
        key = anew.module.path, anew.forward.text, anew.runs, bool(_callers(both, anew)[1])
        told.setdefault(key, []).append(anew)
    for (_, text, runs, shared), group in told.items():
        first, *others = sorted(group, key=lambda a: both.review.line(a.module, a.ways[0].place.node))
        module, place = first.module, first.ways[0].place
        lines = dict.fromkeys(both.review.line(a.module, a.ways[0].place.node) for a in (first, *others))
        also = _lines(map(str, [*lines][1:]))
        came, given = ([*dict.fromkeys(p for a in (first, *others) for p in _callers(both, a)[i])] for i in (0, 1))
        where = f"({_called(module.path, came)})"
        asked = "" if both.floats(module) else "where the opt level asked for is O2 or O3, "
        message = (
            f"{text} {runs} what is made anew {both.since(module)} {where}: {asked}that was float32, and it runs under "
            "autocast now"
        )
        prepared = "the initialized model" if both.initializes(module) else "the model that was"
        model = f"{prepared} ({_called(module.path, given)})"
        taken = _switch(both, first)
        if shared:
            how = f"let the first hand over that it is off ({taken}=False)" if taken else _HAND
            message += f". The same call runs {model}: {how} to keep both"
        else:
            how = f"Hand over {taken}=False there" if taken else "Switch the region off there (enabled=)"
            message += f". {how} to keep it"
        alike = message.replace(where, "", 1).replace(model, prepared, 1)
        message += f" (see {also}, too)" if also else ""
        doubt = both.review.doubt(module, place.node, "AMP531", "a call of the model", message, "look", ("AMP531",))
        yield replace(doubt, alike=alike)


def _switch(both: Mixed, anew: Anew) -> str:
    """The parameter by which callers say already whether the region is on."""
    module, node = anew.module, anew.ways[0].place.node
    region, function = both.after.regions.nearest(module, node), module.function_around(node)
    names = {p.arg for p in function.parameters} if function is not None else set[str]()
    asked = region.enabled if region is not None else None
    return asked.id if isinstance(asked, ast.Name) and asked.id in names else ""


def _callers(both: Mixed, anew: Anew) -> tuple[Callers, Callers]:
    """From where a call comes to run what is made anew, and from where a model that a set-up was given: the nearest callers that
    tell the two apart."""
    deepest = max(len(way.steps) for way in (*anew.ways, *anew.given))
    for above in range(2, deepest + 1):
        came, given = ({_step(way, above): None for way in ways} for ways in (anew.ways, anew.given))
        if came.keys().isdisjoint(given):
            return _places(both, anew, came), _places(both, anew, given)
    return _places(both, anew, {_step(way, 2): None for way in anew.ways}), []


def _step(way: Chain, above: int) -> tuple[Module, object]:
    step: Step = way.steps[-min(above, len(way.steps))]
    return step.module, step.node


def _places(both: Mixed, anew: Anew, steps: Iterable[tuple[Module, object]]) -> Callers:
    call = anew.ways[0].place.node
    return sorted({(m.path, both.review.line(m, node)) for m, node in steps if node is not call})  # type: ignore[arg-type]


def _called(path: str, places: Callers) -> str:
    """`called from lines 7 and 9`, of a file; those of others with their paths."""
    own = _lines(str(line) for where, line in places if where == path)
    from_ = [*filter(None, [own]), *(f"{where}:{line}" for where, line in places if where != path)]
    return f"called from {_listed(from_)}" if from_ else "here"


def _lines(lines: Iterable[str]) -> str:
    found = [*lines]
    return f"line{'s' * (len(found) > 1)} {_listed(found)}" if found else ""


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
