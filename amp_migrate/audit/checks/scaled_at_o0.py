"""At O0 a loss is scaled in float32 where Apex did so, and nowhere else.

O0 casts nothing. With `loss_scale="dynamic"` Apex scaled there all the same, and left out steps whose gradients overflowed or
were NaN; with none it took every step. Compared over all flags: the runs at O0 that came by `initialize` and by
`scale_loss`, with those in which the scaler is enabled that scales now.

Cannot prove anything of a loss scale that is only known at run time, of several set-ups that ask for different ones, or of a
static one: that left out no step, as none is left out without a scaler.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.state import seen_scaler
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import INITIALIZE, SCALE, SetUp, argument, asked_level
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import (
    Formula,
    comparable,
    conjunction,
    disjunction,
    example,
    matter,
    minimal,
    negation,
    spelled,
)
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `switch.py`


def check(review: Review) -> Iterable[Doubt]:
    if review.wish.dtype != "float16" or not any("scale_loss" in c.before.words for c in review.changes.values()):
        return
    both = mixed(review)
    for change in review.changes.values():
        found = (d for scaled in change.after.method_calls("scale") for d in _compared(both, change, *scaled))
        if (doubt := next(found, None)) is not None:
            yield doubt


def _compared(both: Mixed, change: Change, call: ast.Call, scaler: ast.expr) -> Iterator[Doubt]:
    module = change.after
    if not change.changed(call) or not seen_scaler(both.review.values_after, module, scaler):
        return
    near, asked = _near(both), _asked(both)
    if len(asked) != 1 or None in asked:
        return
    scales = asked == {"dynamic"}
    for chain in both.after.chains.to(module, call):
        old = [way for c in _scaled_before(change, call) if (way := _before(both, chain, c)) is not None]
        if not old:
            continue
        begun = at_o0(both, tuple(old))
        on = both.after.predicates.scaler_on(scaler, both.after.predicates.places(chain)[-1])
        came = disjunction([both.before.predicates.given(way) for way in old])
        runs = conjunction([both.after.predicates.given(chain), begun])
        was = conjunction([runs, came]) if scales else False
        if not comparable(on, begun):
            continue
        lost, gained = conjunction([was, negation(on)]), conjunction([runs, on, negation(was)])
        for formula, message in ((lost, LOST), (gained, GAINED)):
            if (found := example(formula)) is not None:
                told = matter(minimal(formula, found), begun, on)
                where = spelled({flag: held for flag, held in told.items() if not flag.endswith("== 'O0'")})
                setup = near[0]
                text = message.format(where=where)
                yield Doubt(setup.module.path, setup.call.lineno, "AMP532", "enabled=", text, "review")


LOST = (
    "O0 with loss_scale='dynamic' scaled the loss in float32{where}, and left out steps whose gradients overflowed or were NaN; "
    "a GradScaler that is not enabled takes them. Enable it to keep that"
)
GAINED = (
    "O0 left the loss unscaled{where}, and took every step; the GradScaler is enabled there now, and leaves out those whose "
    "gradients overflow or are NaN. Switch it off there to keep that"
)


@kept
def _near(both: Mixed) -> list[SetUp]:
    return [s for s in both.all_setups if s.module in both.near and _may_be_at_o0(both, s)]


@kept
def _asked(both: Mixed) -> set[str | None]:
    return {_asks(both, s) for s in _near(both)}


@kept
def at_o0(both: Mixed, ways: tuple[Chain, ...]) -> Formula:
    """When a run comes to one of the set-ups at O0, of those that one of some ways may come after."""
    begun = ((s, way) for s in _near(both) for way in both.before.chains.to(s.module, s.call))
    return disjunction(
        [_at_o0(both, s, way) for s, way in begun if any(both.follows(way, w, True) is not False for w in ways)]
    )


def _may_be_at_o0(both: Mixed, setup: SetUp) -> bool:
    """Whether a set-up that went prepared an optimizer, and may have been at O0."""
    if setup.name != INITIALIZE or both.now(setup.module, setup.call) is not None:
        return False
    level = asked_level(both.before.values, setup.module, setup.call)
    given = argument(setup.call, "optimizers", 1) is not None
    return given and level is not None and not (setup.known and "O0" not in setup.levels)


def _at_o0(both: Mixed, setup: SetUp, way: Chain) -> Formula:
    """When a run comes to a set-up at O0."""
    predicates, level = both.before.predicates, asked_level(both.before.values, setup.module, setup.call)
    enabled = predicates.of(setup.enabled, predicates.places(way)[-1]) if setup.enabled is not None else True
    asked = both.compared_level(level, ast.Eq(), "O0", way) if level is not None else False
    return conjunction([predicates.given(way, loops=False, stops=False), enabled, asked])


def _asks(both: Mixed, setup: SetUp) -> str | None:
    """What a set-up asks of the loss scale: "dynamic", or "" for nothing; None for what is no matter here, or is not seen."""
    if syntax.spreads(setup.call):
        return None
    asked = argument(setup.call, "loss_scale", SCALE)
    known = {None} if asked is None else both.before.values.constants(setup.scope, asked)
    return "dynamic" if known == {"dynamic"} else "" if known == {None} else None


def _scaled_before(change: Change, call: ast.Call) -> list[ast.Call]:
    """What scaled a loss before in the function that a call stands in."""
    now = change.after.function_around(call)
    was = change.function_before(now) if now is not None else None
    return _scalings(change.before).get(was, []) if now is None or was is not None else []


@kept
def _scalings(module: Module) -> dict[Function | None, list[ast.Call]]:
    """What scales a loss, by the function that it stands in."""
    found: dict[Function | None, list[ast.Call]] = {}
    for call in module.calls_named.get("scale_loss", ()):
        found.setdefault(module.function_around(call), []).append(call)
    return found


def _before(both: Mixed, chain: Chain, scaling: ast.Call) -> Chain | None:
    """A way to where a loss is scaled, as it went to where it was before; None where a call on it is new."""
    module = both.review.changes[chain.place.module.path].before
    ways = both.before.chains.to(module, scaling)
    if len(chain.steps) == 1:
        return next((way for way in ways if len(way.steps) == 1), None)
    calls = [both.was(step.module, step.node) for step in chain.steps[:-1]]
    return next((w for w in ways if [(s.module, s.node) for s in w.steps[:-1]] == calls), None)
