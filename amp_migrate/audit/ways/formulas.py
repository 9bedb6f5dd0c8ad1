"""Formulas over flags, and under which values of the flags they hold."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Mapping, Sequence

Formula = bool | str | tuple["str | Formula", ...]  # "x": an atom; ("not", f), ("and", f, ...), ("or", f, ...)
ATOMS = 16  # more of them are not compared
_MEASURED = re.compile(r"(.+) (==|>=|<=|>|<) (-?\d+(?:\.\d+)?)")
_FLAG = re.compile(r" (?:==|>=|<=|>|<|is|in) ")
_HELD = re.compile(r"(?:^|(?<=[\s(\[,]))\.(?=[^\W\d])")
_SIGNS = {"==": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


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
    found: set[str] = set()
    todo = [formula]
    while todo:
        part = todo.pop()
        if type(part) is str:
            found.add(part)
        elif type(part) is tuple:
            todo += part[1:]
    return found


def plain(formula: Formula) -> Formula:
    """A flag and the parameter of the same name that it is handed on as are one: `fp16` and `args.fp16`."""
    if isinstance(formula, str):
        return formula.lstrip(".")
    if isinstance(formula, tuple):
        return (formula[0], *(plain(part) for part in formula[1:]))
    return formula


def example(formula: Formula) -> dict[str, bool] | None:
    """An assignment under which a formula holds, the fewest flags set otherwise than they most likely are; or None."""
    names = sorted(atoms(formula))
    if len(names) <= ATOMS:
        return _fewest(formula, names, {})
    rest, found = _settled(formula, {})
    for part in _apart(rest):
        names = sorted(atoms(part))
        chosen = _fewest(part, names, found) if len(names) <= ATOMS else None
        if chosen is None:
            return None
        found |= chosen
    return dict(sorted(found.items()))


def _fewest(formula: Formula, names: Sequence[str], known: Mapping[str, bool]) -> dict[str, bool] | None:
    found = _under(formula, names, known)
    for off in range(len(names) + 1) if found else ():
        if fewest := found & _with_off(len(names), off):
            number = (fewest & -fewest).bit_length() - 1
            return {name: not number >> len(names) - 1 - i & 1 for i, name in enumerate(names)}
    return None


def _settled(formula: Formula, known: Mapping[str, bool]) -> tuple[Formula, dict[str, bool]]:
    """What is left to ask of a formula of many flags, such as all that a program checks at its start: its conjuncts that are
    single flags hold, and so does each wherever else it is asked; with these flags."""
    forced, before = dict(known), None
    while formula != before:
        before = formula
        formula = _given(formula, forced, frozenset())
        parts = _conjuncts(formula)
        facts = frozenset(part for part in parts if isinstance(part, tuple))
        formula = conjunction(dict.fromkeys(_given(part, forced, facts - {part}) for part in parts))
        for part in _conjuncts(formula):
            name, value = (part[1], False) if isinstance(part, tuple) and part[0] == "not" else (part, True)
            if isinstance(name, str) and forced.setdefault(name, value) is not value:
                return False, forced
    return formula, forced


def _conjuncts(formula: Formula) -> tuple[Formula, ...]:
    return formula[1:] if isinstance(formula, tuple) and formula[0] == "and" else (formula,)


def _given(formula: Formula, known: Mapping[str, bool], facts: frozenset[Formula]) -> Formula:
    """A formula where some flags are known, and other formulas to hold."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, str):
        return known.get(formula, formula)
    if formula in facts:
        return True
    if formula[0] == "not":
        return False if formula[1] in facts else negation(_given(formula[1], known, facts))
    parts = [_given(part, known, facts) for part in formula[1:]]
    if formula[0] == "or":
        return disjunction(parts)
    return conjunction(inner for part in parts for inner in _conjuncts(part))


def _apart(formula: Formula) -> list[Formula]:
    """The conjuncts of a formula, those together that have to do with the same flag."""
    groups: list[tuple[set[str], list[Formula]]] = []
    for part in _conjuncts(formula):
        about = {_FLAG.split(name, maxsplit=1)[0] for name in atoms(part)}
        joined, others = [g for g in groups if g[0] & about], [g for g in groups if not g[0] & about]
        names = about.union(*(g[0] for g in joined))
        groups = [*others, (names, [p for g in joined for p in g[1]] + [part])]
    return [conjunction(parts) for _, parts in groups]


def _under(formula: Formula, names: Sequence[str], known: Mapping[str, bool]) -> int:
    """The assignments to some atoms under which a formula holds that is made of these and of known ones: a bit for each, by
    the number whose digits say which atoms are false. Not two values of one flag are true at once, None among them."""
    every = (1 << (1 << len(names))) - 1
    true = dict(zip(names, _true(len(names)), strict=True))
    true |= {name: every if value else 0 for name, value in known.items()}

    def under(part: Formula) -> int:
        if isinstance(part, bool):
            return every if part else 0
        if isinstance(part, str):
            return true[part]
        if part[0] == "not":
            return every ^ under(part[1])
        found = every if part[0] == "and" else 0
        for inner in part[1:]:
            found = found & under(inner) if part[0] == "and" else found | under(inner)
        return found

    found = under(formula)
    values: dict[str, int] = {}  # under which one value of a flag is true
    for name, told in true.items():
        left, equals, _ = name.partition(" == ")
        if name.endswith(" is None"):
            left = name.removesuffix(" is None")
            found &= every ^ (told & true.get(left, 0))
        if equals or left != name:
            found &= every ^ (values.get(left, 0) & told)
            values[left] = values.get(left, 0) | told
    for measured in _measured(tuple(true)):
        found &= _of_some_number(measured, true, every)
    return found


@functools.cache
def _measured(names: tuple[str, ...]) -> list[list[tuple[str, str, float]]]:
    """The atoms that compare one flag with numbers, of each flag that is compared with several."""
    of: dict[str, list[tuple[str, str, float]]] = {}
    for name in names:
        if match := _MEASURED.fullmatch(name):
            of.setdefault(match[1], []).append((name, match[2], float(match[3])))
    return [atoms for atoms in of.values() if len(atoms) > 1]


def _of_some_number(measured: Sequence[tuple[str, str, float]], true: Mapping[str, int], every: int) -> int:
    """The assignments under which what is said of one flag is true of some number: not `x > 0` and `x == 0`."""
    marks = {number for _, _, number in measured}
    found = 0
    for number in {n + step for n in marks for step in (-0.5, 0, 0.5)}:
        here = every
        for name, sign, other in measured:
            here &= true[name] if _SIGNS[sign](number, other) else every ^ true[name]
        found |= here
    return found


@functools.cache
def _true(count: int) -> list[int]:
    """The assignments to so many atoms under which each of them is true."""
    if not count:
        return []
    half = 1 << count - 1
    return [(1 << half) - 1, *(true | true << half for true in _true(count - 1))]


@functools.cache
def _with_off(count: int, off: int) -> int:
    """The assignments to so many atoms with so many of them false."""
    if not 0 <= off <= count:
        return 0
    if not count:
        return 1
    return _with_off(count - 1, off) | _with_off(count - 1, off - 1) << (1 << count - 1)


def impossible(formula: Formula, known: Mapping[str, bool]) -> bool:
    """Whether a formula holds under no assignment that agrees with what is known; False where that was not found out."""
    names = sorted(atoms(formula) - known.keys())
    if len(names) <= ATOMS:
        return not _under(formula, names, known)
    rest, forced = _settled(formula, known)
    asked = [(part, sorted(atoms(part))) for part in _apart(rest)]
    return any(len(each) <= ATOMS and not _under(part, each, forced) for part, each in asked)


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
                asked = {n: found[n] for n in sorted(atoms(holding))}
                return {**minimal(holding, asked), name: value}
    return None


def matter(when: Mapping[str, bool], was: Formula, now: Formula) -> dict[str, bool]:
    """The flags that set the two conditions apart."""
    return {a: v for a, v in when.items() if a in atoms(was) | atoms(now)}


def flags_told(when: Mapping[str, bool]) -> list[str]:
    """Flags as they are named one by one: `not do_train`."""
    return [named(atom) if value else f"not {named(atom)}" for atom, value in sorted(when.items())]


def named(atom: str) -> str:
    """An atom to be read: without the dots before names that whatever object may hold."""
    return _HELD.sub("", atom)


def comparable(one: Formula, other: Formula) -> bool:
    """Whether two switches are written with the same flags; else they may be one switch under two names."""
    a, b = atoms(one), atoms(other)
    return a <= b or b <= a


def spelled(when: Mapping[str, bool]) -> str:
    """`, where do_train is off`."""
    said = []
    for atom, value in sorted(when.items()):
        text = named(atom).replace(" == ", " is ")
        for asked, other in ((" is ", " is not "), (" in ", " not in ")):
            if not value and text.count(asked) == 1:
                text, value = text.replace(asked, other), True
        said.append(text if value else f"not {text}")
    return f" where {' and '.join(said)}" if said else ""
