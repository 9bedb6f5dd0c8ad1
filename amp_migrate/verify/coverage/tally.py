"""What ran of a migration, over all runs of a case, and over all cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.verify.coverage.places import SIDES, Key, Map, Place
from amp_migrate.verify.coverage.project import Program
from amp_migrate.verify.coverage.reach import Reason, reason
from amp_migrate.verify.coverage.statements import Spot
from amp_migrate.verify.recording.spec import Side

NEAREST = 1 << 16  # deeper than anything lies
RANGES = 4  # of lines that are told of one file


@dataclass(frozen=True)
class Missing:
    """Places that did not run for one reason."""

    reason: Reason
    places: tuple[Place, ...]

    @property
    def where(self) -> str:
        """`train.py:88-93`, the migrated file's lines where it is there."""
        side: Side = "migrated" if any(p.side == "migrated" for p in self.places) else "original"
        by_path: dict[str, set[int]] = {}
        for place in self.places:
            if place.side == side:
                by_path.setdefault(place.path, set()).update(range(place.lines[0], place.lines[1] + 1))
        told = ", ".join(f"{path}:{_ranges(sorted(lines))}" for path, lines in by_path.items())
        return told + ("" if side == "migrated" else " (original)")


@dataclass
class Coverage:
    """`places` by key, those that `ran`, and why the others did not."""

    places: dict[Key, Place] = field(default_factory=dict)
    ran: set[Key] = field(default_factory=set)
    reasons: dict[Key, Reason] = field(default_factory=dict)

    @property
    def percent(self) -> float:
        """Of the places; 100 where there are none."""
        return 100.0 * len(self.ran) / len(self.places) if self.places else 100.0

    @property
    def summary(self) -> str:
        """`38 of 44 changed places ran`."""
        if not self.places:
            return "nothing was changed"
        if not self.ran:
            return f"NOTHING of the migration ran: none of {len(self.places)} changed places"
        sides = []
        for side in SIDES:
            of_side = [key for key in self.places if key[0] == side]
            if of_side:
                sides.append(f"{side} {sum(key in self.ran for key in of_side)} of {len(of_side)}")
        return f"{len(self.ran)} of {len(self.places)} changed places ran, {self.percent:.0f}% ({', '.join(sides)})"

    def unjudged(self) -> Coverage:
        """Of a case without a verdict: what ran there stands for nothing."""
        reason = Reason("it ran only in a case that could not be judged", deep=NEAREST)
        return Coverage(self.places, set(), {**self.reasons, **dict.fromkeys(self.ran, reason)})

    def missing(self) -> list[Missing]:
        """What did not run, by file and reason: a reason that both programs share is one, told for the migrated one."""
        groups: dict[tuple[str, str], list[Place]] = {}
        for key, place in self.places.items():
            if key not in self.ran:
                groups.setdefault((place.file, self.reasons[key].why), []).append(place)
        found = []
        for places in groups.values():
            places.sort(key=lambda place: (place.side, place.path, place.lines))  # "migrated" comes first
            found.append(Missing(self.reasons[places[0].key], tuple(places)))
        return sorted(found, key=lambda group: (group.places[0].path, group.places[0].lines))

    def to_json(self) -> dict[str, Any]:
        return {
            "places": len(self.places),
            "ran": len(self.ran),
            "percent": round(self.percent, 1),
            "missing": [
                {
                    "why": group.reason.why,
                    "reach": list(group.reason.reach),
                    "places": [
                        {"side": p.side, "path": p.path, "line": p.lines[0], "end_line": p.lines[1], "text": p.text}
                        for p in group.places
                    ],
                }
                for group in self.missing()
            ],
        }


def count(found: Map, work: Path, *, steps: int | None, argv: tuple[str, ...] = ()) -> Coverage:
    """What the runs whose folders lie in `work` executed; `steps` when they were stopped after so many, `argv` with what
    they were called."""
    coverage = Coverage({place.key: place for place in found.places()})
    for side in SIDES:
        marked = [(source.path, spot) for source in found.sources(side) for spot in source.spots()]
        ran = _ran(marked, work, side)
        program = Program(found.trees[side], set(marked), ran, steps, argv)
        for source in found.sources(side):
            for place in source.places:
                if place.statement.shows is not None and (place.path, place.statement.shows) in ran:
                    coverage.ran.add(place.key)
                else:
                    coverage.reasons[place.key] = reason(place.path, place.statement, program)
    return coverage


def union(of_cases: Iterable[tuple[Coverage | None, bool]]) -> Coverage:
    """The cases together, each with whether it was judged: a place is known by its file, and has run when any case ran it.

    Why it did not run is told by the case that came closest to it.
    """
    total = Coverage()
    for counted, judged in of_cases:
        if counted is None:
            continue
        coverage = counted if judged else counted.unjudged()
        total.places |= coverage.places
        total.ran |= coverage.ran
        for key, told in coverage.reasons.items():
            if key not in total.reasons or told.deep > total.reasons[key].deep:
                total.reasons[key] = told
    return total


def _ranges(lines: Sequence[int]) -> str:
    """`88-93, 120`; at most RANGES of them."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in found[:RANGES]]
    return ", ".join(told) + (", ..." if len(found) > RANGES else "")


def _ran(marked: Sequence[tuple[str, Spot]], work: Path, side: Side) -> set[tuple[str, Spot]]:
    marks = bytearray(len(marked))
    for file in _files(work, side):
        for number, mark in enumerate(file.read_bytes()[: len(marks)]):
            marks[number] |= mark
    return {spot for spot, mark in zip(marked, marks, strict=True) if mark}


def _files(work: Path, side: Side) -> Sequence[Path]:
    """One a process: runs lie in a folder of their own, the ranks of a distributed one below it."""
    return [file for depth in ("*", "*/*", "*/*/*") for file in work.glob(f"{depth}/ran-{side}")]
