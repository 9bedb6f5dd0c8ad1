"""What a check says: one place of the program that the migration gets wrong, changes, or that could not be followed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Verdict = Literal["refuse", "review", "look"]
MOST = 8  # further places that are named
CAME = re.compile(r"called (from \S+?:\d+(?: in a run of [^)]*)?)(?=[,)])")
WHERE = re.compile(r" now where ([^,]*),")


@dataclass(frozen=True, order=True)
class Doubt:
    """One thing that a check found.

    `line` counts from 1 in the file as it was before the migration. `verdict` says what becomes of it: "refuse" leaves
    the migration unit that wrote there with Apex; "review" and "look" are told beside the migration, which stands.
    `told_by` are codes of the rules that say the same: the doubt is dropped where one of them speaks in this file
    between the lines `near` (both ends included; the line itself where it is None). `remedy`: the file and the line of what
    a rule may write otherwise, for the doubt to go; of a half value, `given` is where a forward gives it as a whole, and `by`
    the code of the rule that casts it where it is used. `lost`: the line and the column of each forward that has no region
    now, in the file as it was. `alike`: what of the message is said of other places as well. `because`: what is seen, to be
    said of what the rule writes. `aside`: it is about no region, and does not go without one.
    """

    path: str
    line: int
    code: str
    construct: str
    message: str
    verdict: Verdict = "refuse"
    told_by: tuple[str, ...] = ()
    near: tuple[int, int] | None = None
    remedy: tuple[str, int] | None = None
    alike: str = ""
    given: tuple[str, int] | None = None
    by: str = ""
    lost: tuple[tuple[int, int], ...] = ()
    because: str = ""
    aside: bool = False

    @property
    def refusal(self) -> str:
        """What is said where the doubt leaves something with Apex: the message tells of a migration that nobody sees, and of
        no fault of the program."""
        if self.message.startswith("left with Apex"):
            return self.message
        return f"left with Apex; migrate it by hand. What this tool wrote instead failed its audit, and is taken back: {self.message}"


def with_ways(doubt: Doubt, others: Iterable[Doubt]) -> Doubt:
    """The same doubt with the other calls in which it is so, each with its own condition: each has to switch the region off by
    itself."""
    further: dict[str, list[str]] = {}
    for other in others:
        came = CAME.search(other.message)
        if came is not None and came.group(1) not in doubt.message:
            asked = WHERE.search(other.message)
            where = f"where {asked.group(1)} " if asked is not None else "in every run "
            where = where * (other.alike != doubt.alike)
            calls = further.setdefault(where, [])
            calls += [came.group(1)] * (came.group(1) not in calls)
    for where, calls in further.items():
        more = f" and {len(calls) - MOST} more" if len(calls) > MOST else ""
        doubt = replace(doubt, message=f"{doubt.message}; so it is {where}called {', '.join(calls[:MOST])}{more}")
    return doubt


def with_lines(doubts: list[Doubt]) -> Doubt:
    """One doubt for the calls of a function that are written alike, that of most weight, which names the others' lines."""
    first = min(doubts, key=lambda d: (d.verdict == "look", d.line))
    first = replace(first, lost=tuple(sorted({place for d in doubts for place in d.lost})))
    lines = sorted({d.line for d in doubts} - {first.line})
    if not lines:
        return first
    also = f"lines {', '.join(map(str, lines[:-1]))} and {lines[-1]}" if len(lines) > 1 else f"line {lines[0]}"
    return replace(first, message=f"{first.message} (see {also}, too)")
