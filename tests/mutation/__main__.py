"""`python -m tests.mutation [--file whole.py] [--rate 0.05] [--minutes 10]`: do the tests see faults that are planted?

Of each file of `targets.py` a part of the mutants, each run against the tests of that file. Prints the survivors and the share
that was seen. The exit code is 1 if one survives that `argued.tsv` does not name, if an argument is stale, or if the time
was over before all were tried: the next run goes on there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.mutation.argued import Argument, arguments, stale
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.results import Results
from tests.mutation.running import FEWEST_SECONDS, ROOT, TIMES, copied, outcome, warm_up
from tests.mutation.targets import TARGETS


def tried(name: str, folder: Path, chosen: list[Mutant], results: Results, until: float) -> None:
    """Run the mutants of a file whose outcome is not known."""
    text = (ROOT / name).read_text("utf-8")
    path, tests = folder / name, TARGETS[name]
    known = results.of(name, tests)
    left = [m for m in chosen if m.ident not in known]
    if not left or time.monotonic() > until:
        return
    began = time.monotonic()
    if outcome(folder, tests, 600) != "passed":
        raise SystemExit(f"{', '.join(tests)}: these do not pass without a mutant")
    seconds = max(FEWEST_SECONDS, TIMES * (time.monotonic() - began))
    try:
        for mutant in left:
            if time.monotonic() > until:
                break
            path.write_text(mutant.of(text), "utf-8")
            known[mutant.ident] = outcome(folder, tests, seconds)
            results.save()
            if known[mutant.ident] == "passed":
                print(f"    lives: {name}:{mutant.line} {mutant.ident} {mutant.told(text)}", flush=True)
    finally:
        path.write_text(text, "utf-8")


def told(name: str, chosen: list[Mutant], results: Results, known: list[Argument]) -> Counter[str]:
    """Print what became of the mutants of a file; how many of which kind."""
    text, argued = (ROOT / name).read_text("utf-8"), {a.ident for a in known if a.file == name}
    outcomes = results.of(name, TARGETS[name])
    found: Counter[str] = Counter()
    for mutant in chosen:
        was = outcomes.get(mutant.ident)
        lives = was == "passed"
        kind = "not tried" if was is None else "argued" if lives and mutant.ident in argued else "left"
        kind = "seen" if was is not None and not lives else kind
        found[kind] += 1
        if kind == "left":
            print(f"    {name}:{mutant.line}\t{mutant.ident}\t{mutant.told(text)}")
        if kind == "seen" and mutant.ident in argued:
            found["stale"] += 1
            print(f"    {name}:{mutant.line}\t{mutant.ident}\tis argued, and seen: {mutant.told(text)}")
    print(f"{name}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(found.items())), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--file", action="append", metavar="NAME", help="only files whose path holds this")
    parser.add_argument("--rate", type=float, default=0.05, help="the share of all mutants (default: 0.05)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after these")
    parser.add_argument("--state", type=Path, default=ROOT / ".mutation", metavar="DIR", help="default: .mutation")
    parser.add_argument("--fresh", action="store_true", help="try again what was tried")
    given = parser.parse_args()
    names = [n for n in TARGETS if not given.file or any(part in n for part in given.file)]
    if not names:
        parser.error(f"no file of {', '.join(TARGETS)}")
    until, known, results = time.monotonic() + given.minutes * 60, arguments(), Results(given.state, given.fresh)
    argued = {(a.file, a.ident) for a in known}
    chosen = {
        n: [m for m in mutants((ROOT / n).read_text("utf-8")) if m.chosen(given.rate) or (n, m.ident) in argued]
        for n in names
    }
    warm_up()
    found: Counter[str] = Counter()
    with copied() as folder:
        for name in names:
            tried(name, folder, chosen[name], results, until)
            found += told(name, chosen[name], results, known)
    for argument in stale([a for a in known if a.file in names or a.file not in TARGETS]):
        found["stale"] += 1
        print(f"    {argument.file}\t{argument.ident}\tis argued, and no such mutant is there: {argument.told}")
    print(f"all: {found['seen']} seen, {found['argued']} argued, {found['left']} left, {found['not tried']} not tried, "
          f"{found['stale']} arguments stale")  # fmt: skip
    return 1 if found["left"] or found["not tried"] or found["stale"] else 0


if __name__ == "__main__":
    sys.exit(main())
