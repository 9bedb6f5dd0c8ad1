"""`python -m tests.mutation [--file whole.py] [--count 20] [--seed 1]`: do the tests see faults that are planted?

For each file of `targets.py`, so many mutants, chosen by the seed, each run against the tests of that file. Prints the
survivors and the share that was seen. The exit code is 1 if one survives that `argued.py` does not name.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.mutation.argued import ARGUED
from tests.mutation.mutants import sample
from tests.mutation.running import FEWEST_SECONDS, ROOT, TIMES, copied, outcome, warm_up
from tests.mutation.targets import TARGETS


def survivors(name: str, folder: Path, count: int, seed: int) -> tuple[list[str], int, int]:
    """What survived of the mutants of a file, how many are argued, and how many there were."""
    text = (ROOT / name).read_text("utf-8")
    path, tests = folder / name, TARGETS[name]
    began = time.monotonic()
    if outcome(folder, tests, 600) != "passed":
        raise SystemExit(f"{', '.join(tests)}: these do not pass without a mutant")
    seconds = max(FEWEST_SECONDS, TIMES * (time.monotonic() - began))
    chosen, left, argued = sample(text, count, seed), [], 0
    try:
        for mutant in chosen:
            path.write_text(mutant.of(text), "utf-8")
            if outcome(folder, tests, seconds) == "passed":
                if (name, mutant.told(text)) in ARGUED:
                    argued += 1
                else:
                    left.append(f"{name}:{mutant.line}: {mutant.told(text)}")
                    print(f"    {left[-1]}", flush=True)
    finally:
        path.write_text(text, "utf-8")
    return left, argued, len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--file", action="append", metavar="NAME", help="only files whose path holds this")
    parser.add_argument("--count", type=int, default=20, help="mutants a file (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    given = parser.parse_args()
    names = [n for n in TARGETS if not given.file or any(part in n for part in given.file)]
    if not names:
        parser.error(f"no file of {', '.join(TARGETS)}")
    warm_up()
    total = seen = lived = 0
    with copied() as folder:
        for name in names:
            left, argued, count = survivors(name, folder, given.count, given.seed)
            print(
                f"{name}: {count - len(left) - argued} of {count} seen, {argued} argued, {len(left)} left", flush=True
            )
            total, seen, lived = total + count, seen + count - len(left) - argued, lived + len(left)
    print(f"{seen} of {total} mutants seen ({seen / max(total, 1):.0%}), {lived} left")
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
