"""`python -m tests.metamorphic [--fixture NAME] [--transform NAME] [--rate 0.3]`: every fixture under every transformation.

Prints a table (transformation x right, refused, wrong), refusals by finding code, and how to reproduce what is wrong.
The exit code is 1 if anything is wrong that is not listed in `KNOWN_WRONG`, or if a transformation is unsound.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

from tests.metamorphic.judging import Outcome, Reference, judge, lay_out
from tests.metamorphic.known import cause
from tests.metamorphic.program import Fixture, names
from tests.metamorphic.running import Runner
from tests.metamorphic.transforms import TRANSFORMS

PROCESSES = 2
CACHE = Path(__file__).resolve().parents[2] / "build" / "metamorphic"


def outcomes(fixture: str, transforms: list[str]) -> list[Outcome]:
    """One fixture under the transformations that apply to it; nothing if the fixture itself does not run with Apex."""
    runner = Runner(CACHE)
    try:
        reference = Reference(Fixture(fixture), runner)
        if reference.before.status or not reference.before.seen.get("losses"):
            return [Outcome(fixture, "", "not run", reference.before.raised or "it trains nothing")]
        found = []
        for name in transforms:
            project = TRANSFORMS[name](reference.fixture.read())
            if project is not None:
                found.append(judge(reference, name, project))
        return found
    finally:
        runner.close()


def _task(task: tuple[str, list[str]]) -> list[Outcome]:
    return outcomes(*task)


def at_rate(fixture: str, transform: str, rate: float) -> bool:
    """Whether it is among those that are tried, of which there are `rate` (0 to 1): the same ones, and more at a higher rate."""
    return int(hashlib.sha256(f"{fixture} {transform}".encode()).hexdigest()[:8], 16) < rate * 16**8


def table(found: list[Outcome]) -> list[str]:
    lines = [f"{'transformation':<34}{'right':>7}{'refused':>9}{'wrong':>7}  refused with"]
    for name in [*TRANSFORMS, "total"]:
        mine = [o for o in found if name in (o.transform, "total") and o.transform]
        if not mine:
            continue
        count = Counter(o.verdict for o in mine)
        codes = Counter(code for o in mine if o.verdict == "refused" for code in o.codes)
        told = " ".join(f"{code}:{n}" for code, n in sorted(codes.items()))
        lines.append(f"{name:<34}{count['right']:>7}{count['refused']:>9}{count['wrong']:>7}  {told}".rstrip())
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.metamorphic", description=__doc__)
    parser.add_argument("--fixture", action="append", choices=names(), metavar="NAME", help="only this program")
    parser.add_argument("--transform", action="append", choices=list(TRANSFORMS), metavar="NAME", help="only this one")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the transformed programs there, run nothing")
    parser.add_argument("--refused", action="store_true", help="list every refusal")
    parser.add_argument("--rate", type=float, default=1.0, help="the share of all programs (default: all of them)")
    given = parser.parse_args()
    transforms = given.transform or list(TRANSFORMS)
    tasks = [(f, [t for t in transforms if at_rate(f, t, given.rate)]) for f in given.fixture or names()]
    if given.keep:
        for fixture, mine in tasks:
            for name in mine:
                project = TRANSFORMS[name](Fixture(fixture).read())
                if project is not None:
                    lay_out(project, given.keep / fixture / name.replace(" ", "_"))
        return 0
    found: list[Outcome] = []
    with multiprocessing.Pool(PROCESSES) as pool:
        for done in pool.imap(_task, tasks, chunksize=1):
            found += done
            if sys.stderr.isatty():
                print(f"\r{len(found)} programs", end="", file=sys.stderr, flush=True)
    print("\n".join(table(found)))
    bad = []
    for outcome in found:
        known = cause(outcome)
        if outcome.verdict in ("wrong", "unsound", "not run") or (given.refused and outcome.verdict == "refused"):
            place = (
                f"--fixture {outcome.fixture} --transform '{outcome.transform}'"
                if outcome.transform
                else outcome.fixture
            )
            note = f"  [known: {known}]" if known and outcome.verdict == "wrong" else ""
            print(f"{outcome.verdict}: {place}: {' '.join(outcome.codes)} {outcome.why}{note}")
        if outcome.verdict == "unsound" or (outcome.verdict == "wrong" and not known):
            bad.append(outcome)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
