"""`python -m tests.fuzz [--minutes 10] [--count 500] [--case 17]`: programs that nobody wrote, migrated and run.

Goes on where the last run ended (`STATE/state.json`), case by case, and keeps what was wrong below `STATE/found/NUMBER/`. The exit
code is 1 if this run found anything wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case, case
from tests.fuzz.orders import orders
from tests.fuzz.verdict import Judge, Verdict, result_of
from tests.metamorphic.program import names

ORDERS_EVERY = 25  # one case in so many is a project whose files are given in pieces


class State:
    """Where the last run ended, and what all runs found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.json"
        known: dict[str, Any] = json.loads(self.path.read_text("utf-8")) if self.path.exists() else {}
        self.next: int = known.get("next", 0)
        self.seconds: float = known.get("seconds", 0.0)
        self.ran: int = known.get("ran", 0)
        self.kinds: Counter[str] = Counter(known.get("kinds", {}))
        self.wrong: dict[str, str] = known.get("wrong", {})

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        said = {k: v for k, v in vars(self).items() if k not in ("folder", "path")}
        half = self.path.with_suffix(".new")
        half.write_text(json.dumps(said, indent=1), encoding="utf-8")
        half.replace(self.path)

    def keep(self, found: Case, verdict: Verdict) -> Path:
        """The program as it was and as it came out, and what is wrong with it."""
        folder = self.folder / "found" / str(found.number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plain.py").write_text(found.text, encoding="utf-8")
        (folder / "plain.after.py").write_bytes(result_of("train.py", found.text.encode()).data)
        if found.spelled != found.text.encode():
            (folder / found.file).write_bytes(found.spelled)
            (folder / f"after.{found.file}").write_bytes(result_of(found.file, found.spelled).data)
        story = {"fixture": found.fixture, "steps": found.steps, "spellings": found.spellings, **asdict(verdict)}
        (folder / "why.json").write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
        return folder


def verdict_of(number: int, judge: Judge, given: argparse.Namespace) -> tuple[Case, Verdict]:
    found = case(number, given.fixture)
    if number % ORDERS_EVERY == 0 and (trouble := orders(number)):
        return found, Verdict("wrong", trouble)
    return found, judge.judge(found, run=not given.unrun)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--count", type=int, help="how many cases, if that comes first")
    parser.add_argument("--case", type=int, action="append", metavar="NUMBER", help="these cases, and nothing is noted")
    parser.add_argument("--from", type=int, dest="start", metavar="NUMBER", help="not where the last run ended: here")
    parser.add_argument(
        "--fixture", action="append", choices=names(), metavar="NAME", help="only mutations of this one"
    )
    parser.add_argument("--state", type=Path, default=Path(".fuzz"), metavar="DIR", help="default: .fuzz")
    parser.add_argument("--unrun", action="store_true", help="migrate only, run nothing")
    given = parser.parse_args()
    state, judge = State(given.state), Judge()
    number = given.start if given.start is not None else state.next
    began = time.monotonic()
    wrong = count = 0
    try:
        numbers = iter(given.case) if given.case else None
        while time.monotonic() - began < given.minutes * 60 and (given.count is None or count < given.count):
            here = next(numbers, None) if numbers is not None else number
            if here is None:
                break
            start = time.monotonic()
            found, verdict = verdict_of(here, judge, given)
            count += 1
            if verdict.kind == "wrong":
                wrong += 1
                print(f"{here}: {found.fixture}: {' '.join(found.steps)}: {verdict.why}", flush=True)
                print(f"    kept in {state.keep(found, verdict)}", flush=True)
            elif given.case:
                print(f"{here}: {found.fixture}: {' '.join(found.steps)} {' '.join(found.spellings)}: {verdict}")
            if numbers is not None:
                continue
            number += 1
            state.next = number
            state.seconds += time.monotonic() - start
            state.ran += verdict.ran
            state.kinds[verdict.kind] += 1
            if verdict.kind == "wrong":
                state.wrong[str(here)] = verdict.why
            state.save()
    finally:
        judge.close()
    print(f"{count} cases in {(time.monotonic() - began) / 60:.1f} min, {wrong} wrong.", end=" ")
    print(f"In all {state.next} in {state.seconds / 60:.0f} min, {state.ran} run before and after: {dict(state.kinds)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
