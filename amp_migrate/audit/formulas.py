"""Formulas over flags, and under which values of the flags they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

Formula = bool | str | tuple["str | Formula", ...]  # "x": an atom; ("not", f), ("and", f, ...), ("or", f, ...)
ATOMS = 9  # more of them are not compared


def conjunction(parts: Iterable[Formula]) -> Formula:
    kept = [p for p in parts if p is not True]
    if False in kept:
        return False
    return True if not kept else kept[0] if len(kept) == 1 else ("and", *kept)


def disjunction(parts: Iterable[Formula]) -> Formula:
    kept = [p for p in parts if p is not False]
    if True in kept:
        return True
    return False if not kept else kept[0] if len(kept) == 1 else ("or", *kept)


def negation(part: Formula) -> Formula:
    if isinstance(part, bool):
        return not part
    return part[1] if isinstance(part, tuple) and part[0] == "not" else ("not", part)


def atoms(formula: Formula) -> set[str]:
    if isinstance(formula, bool):
        return set()
    if isinstance(formula, str):
        return {formula}
    return {a for part in formula[1:] for a in atoms(part)}


def holds(formula: Formula, known: Mapping[str, bool]) -> bool:
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, str):
        return known[formula]
    if formula[0] == "not":
        return not holds(formula[1], known)
    if formula[0] == "and":
        return all(holds(p, known) for p in formula[1:])
    return any(holds(p, known) for p in formula[1:])


def example(formula: Formula) -> dict[str, bool] | None:
    """An assignment under which a formula holds, the fewest flags set otherwise than they most likely are; or None."""
    names = sorted(atoms(formula))
    if len(names) > ATOMS:
        return None
    best: dict[str, bool] | None = None
    for values in product((True, False), repeat=len(names)):
        known = dict(zip(names, values, strict=True))
        if _possible(known) and holds(formula, known):
            if best is None or sum(not v for v in known.values()) < sum(not v for v in best.values()):
                best = known
    return best


def _possible(known: Mapping[str, bool]) -> bool:
    """Not two values of one flag at once."""
    told: dict[str, str] = {}
    for atom, value in known.items():
        left, equals, right = atom.partition(" == ")
        if equals and value:
            if told.setdefault(left, right) != right:
                return False
        if atom.endswith(" is None") and value and known.get(atom[: -len(" is None")]):
            return False
    return True


def minimal(formula: Formula, known: Mapping[str, bool]) -> dict[str, bool]:
    """The part of an assignment that matters: flags whose value cannot be left open."""
    kept = dict(known)
    for name in list(kept):
        other = {**known, name: not known[name]}
        if holds(formula, other) and _possible(other):
            kept.pop(name, None)
    return kept
