"""The iterations that are struck by an overflow or a nan, and the runs for it."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.verify.drills.planned import SIDES, Iteration, Known, Planned, iterations, unscaled
from amp_migrate.verify.recording.spec import Drill, RunSpec, Side

EARLY = 4  # a drill in the middle of training strikes no later than this step: what comes before is only waiting
AFTER = 3  # steps looked at after the one that was struck


def overflow(known: Known) -> Planned:
    return _strike(known, "overflow", _middle(known), lambda i: (i.optimizers, i.scaled[-1]))


def first_overflow(known: Known) -> Planned:
    found = [i for i in iterations(known.original)[:1] if i.scaled and known.original.attempts[i.first].captured]
    return _strike(known, "first-overflow", found, lambda i: (i.optimizers, i.scaled[-1]))


def accumulation_overflow(known: Known) -> Planned:
    found = [i for i in _middle(known) if len(i.scaled) > 1]
    missing = "no step is made of several backward passes"
    return _strike(known, "accumulation-overflow", found, lambda i: (i.optimizers, i.scaled[0]), missing)


def one_optimizer(known: Known) -> Planned:
    """Of several that step on one loss the last; else one that the plain overflow does not strike."""
    if len({a.optimizer for a in known.original.attempts}) == 1:
        return Planned("one-optimizer", because="there is one optimizer")
    usable, plain = _usable(known), _middle(known)
    found = [i for i in plain if len(set(i.optimizers)) > 1]
    if not found and plain:
        found = [i for i in usable if i.optimizers != plain[-1].optimizers][:1]
    return _strike(known, "one-optimizer", found, lambda i: (i.optimizers[-1:], i.scaled[-1]))


def _strike(
    known: Known, name: str, found: list[Iteration], how: Callable[[Iteration], tuple[tuple[int, ...], int]],
    missing: str = "no iteration was found that both programs run alike",
) -> Planned:  # fmt: skip
    if (because := unscaled(known)) is not None:
        return Planned(name, because=because)
    if not found:
        return Planned(name, because=missing)
    struck = found[-1]
    optimizers, backward = how(struck)
    drill = Drill(
        overflow_at=struck.first, backward=backward, optimizers=optimizers, force_at=struck.first,
        keep=(struck.windows[-1] + 1,),
    )  # fmt: skip
    return Planned(name, _struck_specs(known, name, struck, drill), struck=struck, optimizers=optimizers)


def nan_loss(known: Known) -> Planned:
    if (because := unscaled(known)) is not None:
        return Planned("nan-loss", because=because)
    if not (found := _middle(known)):
        return Planned("nan-loss", because="no iteration was found that both programs run alike")
    struck = found[-1]
    drill = Drill(nan_at=struck.first, force_at=struck.first, keep=(struck.windows[-1] + 1,))
    specs = _struck_specs(known, "nan-loss", struck, drill)
    return Planned("nan-loss", specs, struck=struck, optimizers=struck.optimizers)


def _struck_specs(known: Known, name: str, struck: Iteration, drill: Drill) -> dict[Side, RunSpec]:
    last = max(known.original.attempts[w].nth for w in struck.windows)
    return {side: known.spec(name, side, last + 1 + AFTER, drill, force_from=known.state) for side in SIDES}


def _middle(known: Known) -> list[Iteration]:
    """Usable iterations: the early ones if there are any, else the first."""
    usable = _usable(known)
    early = [i for i in usable if known.original.attempts[i.first].nth <= EARLY]
    return early or usable[:1]


def _usable(known: Known) -> list[Iteration]:
    """Iterations after the first whose state was saved and in which both programs step."""
    return [
        i
        for i in iterations(known.original)[1:]
        if known.original.attempts[i.first].captured and all(_steps_alike(known, w) for w in i.windows) and i.scaled
    ]


def _steps_alike(known: Known, window: int) -> bool:
    if window >= len(known.migrated.attempts):
        return False
    one, other = known.original.attempts[window], known.migrated.attempts[window]
    return one.optimizer == other.optimizer and not one.skipped and not other.skipped
