"""Formulas over flags, and under which values of the flags they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Formula = bool | str | tuple["str | Formula", ...]  # "x": an atom; ("not", f), ("and", f, ...), ("or", f, ...)
ATOMS = 16  # more of them are not compared
LOOKS = 20000  # steps of one search


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
    best: list[dict[str, bool]] = []
    fewest = len(names) + 1
    looked = 0

    def search(known: dict[str, bool], off: int) -> None:
        nonlocal fewest, looked
        looked += 1
        if off >= fewest or looked > LOOKS or _partly(formula, known) is False or not _possible(known):
            return
        if len(known) == len(names):
            best[:], fewest = [dict(known)], off
            return
        name = names[len(known)]
        for value in (True, False):
            known[name] = value
            search(known, off + (not value))
            del known[name]

    search({}, 0)
    return best[0] if best else None


def _partly(formula: Formula, known: Mapping[str, bool]) -> bool | None:
    """Whether a formula holds, where what is known tells."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, str):
        return known.get(formula)
    if formula[0] == "not":
        inner = _partly(formula[1], known)
        return None if inner is None else not inner
    decides = formula[0] == "or"
    found: bool | None = not decides
    for part in formula[1:]:
        value = _partly(part, known)
        if value is decides:
            return decides
        if value is None:
            found = None
    return found


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


def impossible(formula: Formula, known: Mapping[str, bool]) -> bool:
    """Whether a formula holds under no assignment that agrees with what is known; False where that was not found out."""
    names = sorted(atoms(formula) - known.keys())
    looked = 0

    def search(told: dict[str, bool], rest: list[str]) -> bool:
        nonlocal looked
        looked += 1
        holds_now = _partly(formula, told)
        if holds_now is False or not _possible(told):
            return True
        if holds_now or looked > LOOKS or not rest:
            return False
        return all(search({**told, rest[0]: value}, rest[1:]) for value in (True, False))

    return len(names) <= ATOMS and search(dict(known), names)


def minimal(formula: Formula, known: Mapping[str, bool]) -> dict[str, bool]:
    """A part of an assignment that makes a formula hold by itself, whatever the other flags are."""
    kept = dict(known)
    for name in list(kept):
        others = {n: value for n, value in kept.items() if n != name}
        if impossible(negation(formula), others):
            kept = others
    return kept


def apart(given: Formula, holding: Formula, failing: Formula) -> dict[str, bool] | None:
    """One flag that tells why, given something, one formula holds and another does not, with what the first needs; None
    where it takes several. A flag that is off is said rather than one that is on."""
    for value in (False, True):
        for name in sorted(atoms(failing) - atoms(holding)):
            literal: Formula = name if value else ("not", name)
            found = example(conjunction([given, holding, literal]))
            if found is not None and impossible(conjunction([given, failing]), {name: value}):
                asked = {n: found[n] for n in atoms(holding)}
                return {**minimal(holding, asked), name: value}
    return None
