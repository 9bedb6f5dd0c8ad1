"""What the gradients of each optimizer may be, as a program runs: the states between backward, step and update."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amp_migrate.reading.units.places import Keys

UNKNOWN = "unknown"  # where a function begins that nothing in sight calls
CLEAN = "clean"  # there are none
PLAIN = "plain"  # those of a backward that was not scaled
SCALED, UNSCALED = "scaled", "unscaled"
OUTDATED = "outdated"  # neither stepped nor cleared when the scale was updated: only to be cleared
STEPPED = "stepped"  # and waiting for the update
CLEARED = "cleared"  # the same, with the gradients gone
DONE = "done"  # stepped and updated: they are still there
AGAIN = "again"  # the same, at the next turn of a loop that runs no backward
EMPTIED = "emptied"  # stepped, updated and cleared, with no backward since in the same turn

State = tuple[frozenset[str], ...]  # for each optimizer: what its gradients may be

WAITING = frozenset((STEPPED, CLEARED))
_UPDATED = {STEPPED: DONE, UNSCALED: DONE, CLEARED: CLEAN}
_ZEROED = {STEPPED: CLEARED, UNSCALED: UNSCALED, CLEARED: CLEARED}
_TURNED = {STEPPED: AGAIN, DONE: AGAIN}
_VAGUE = frozenset((CLEAN, DONE, AGAIN, EMPTIED, UNKNOWN))


def start(number: int, state: str) -> State:
    """All optimizers in one state."""
    return tuple(frozenset((state,)) for _ in range(number))


def some(state: State, keys: Keys, change: Callable[[frozenset[str]], frozenset[str]], *, sure: bool = False) -> State:
    """Change the states of some optimizers; where it may be any of several, they may also stay as they were."""
    weak = len(keys) > 1 and not sure
    return tuple(s if i not in keys else (change(s) | s if weak else change(s)) for i, s in enumerate(state))


def scaled(state: State, keys: Keys) -> State:
    """After a scaled backward into the gradients of some optimizers: if it may be any of them, none is known to have none."""
    if len(keys) == 1:
        return some(state, keys, lambda s: frozenset((SCALED,)))
    return some(state, keys, lambda s: _blurred(s) | {SCALED}, sure=True)


def plain(state: State) -> State:
    """After a backward that is not scaled."""
    return tuple(map(_blurred, state))


def _blurred(names: frozenset[str]) -> frozenset[str]:
    return names - _VAGUE | ({PLAIN} if names & _VAGUE else set())


def zeroed(state: State, keys: Keys, left: str = CLEAN, *, sure: bool = False) -> State:
    """After `zero_grad`, which may leave zeros; those that were unscaled or stepped still wait for the update."""
    known = {**_ZEROED, **({DONE: EMPTIED} if left == CLEAN else {})}
    return some(state, keys, lambda s: frozenset(known.get(name, left) for name in s), sure=sure)


def later(state: State) -> State:
    """At another turn of a loop that runs the backward, after it, or where one is left out: a backward may come between."""
    return tuple(frozenset(CLEAN if name == EMPTIED else name for name in s) for s in state)


def updated(state: State) -> State:
    """After an update."""
    return tuple(frozenset(_UPDATED.get(name, name) for name in s) for s in state)


def outdated(state: State) -> State:
    """After an update of the one scale that all gradients carry."""
    left = {**_UPDATED, SCALED: OUTDATED}
    return tuple(
        frozenset((OUTDATED,)) if s == {UNSCALED} else frozenset(left.get(name, name) for name in s) for s in state
    )


def turned(state: State) -> State:
    """At the next turn of a loop that runs no backward."""
    return tuple(frozenset(_TURNED.get(name, name) for name in s) for s in state)


def others(before: State, after: State) -> State:
    """At the next turn of a loop over optimizers: what was stepped is not the one that is."""
    return tuple(new - WAITING or old for old, new in zip(before, after, strict=True))


def join(states: Iterable[State | None]) -> State | None:
    """What it may be after any of several paths; None where none goes on."""
    known = [s for s in states if s is not None]
    if not known:
        return None
    return tuple(frozenset().union(*parts) for parts in zip(*known, strict=True))
