"""`python -m tests.trust.run`: every fault in every regime, and right migrations over many seeds.

Prints the tables of docs/verification.md and, with --write, puts them there. Exit code 1 when a fault that changes
the computation goes unseen or a right migration is rejected. `--results FILE` keeps what has been run, so that an
interrupted run goes on, and `--part 2/8` runs an eighth of everything, for several machines (whose files, joined, are
one): the tables are about all that the file holds. Results of other programs or of another verifier do not count.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from amp_migrate.verify.launch import Launcher
from tests.trust import programs, shaped, suite
from tests.trust.kept import Kept, Told
from tests.trust.programs import Regime
from tests.trust.suite import Device

DOCS = Path(__file__).parents[2] / "docs" / "verification.md"
SHORT = {"lockstep": "L", "scale": "S", "precision": "P", "loss curve": "C", "checkpoint": "K"}  # any drill: D
ABOUT_FILES = ("scaler state not saved", "scaler state not restored")  # the only faults that resuming can show


def planted(faults: Iterable[str]) -> list[tuple[Regime, str]]:
    """Every fault in every regime; resuming only where it can matter."""
    return [
        (regime, fault)
        for fault in faults
        for regime in programs.regimes(resume=(False, True) if fault in ABOUT_FILES else (False,))
    ]


def right(count: int) -> list[Regime]:
    """`count` right migrations: every regime in turn with other models, opt levels and seeds, and every third one of the
    shapes of `shaped` in turn."""
    pick, shapes = random.Random(0), random.Random(1)
    every = list(programs.regimes())
    chosen = []
    for i in range(count):
        plain = replace(
            every[i % len(every)], model=pick.choice(("relu", "gelu", "conv")), level=pick.choice(("O1", "O2")), seed=i
        )
        shape = list(shaped.TEXTS)[i // 3 % len(shaped.TEXTS)]
        chosen.append(shaped.variation(shape, shapes, i) if i % 3 == 2 else plain)
    return chosen


Cases = list[tuple[Regime, str | None]]


def run(work: Path, cases: Cases, workers: int, device: Device, kept: Kept) -> None:
    """Verify all, several at a time, each worker with a launcher of its own."""

    def share(number: int) -> None:
        with Launcher(environment={"OMP_NUM_THREADS": "1"}) as launcher:
            for done, case in enumerate(cases[number::workers], 1):
                kept.add(suite.verify(launcher, work / str(number), *case, device=device))
                if number == 0 and done % 20 == 0:
                    print(f"{done * workers} of {len(cases)}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(share, range(workers)))


def fault_table(results: list[Told]) -> str:
    """Fault × regime: the verdicts that caught it."""
    columns = sorted({_column(r.regime) for r in results})
    lines = ["| fault | " + " | ".join(columns) + " |", "|" + "-|" * (len(columns) + 1)]
    reasons: dict[str, str] = {}
    for fault in dict.fromkeys(str(r.fault) for r in results):
        cells = []
        for column in columns:
            found = [r for r in results if r.fault == fault and _column(r.regime) == column]
            cells.append(_cell(found, reasons))
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    notes = [f"- {mark} {why}" for why, mark in reasons.items()]
    return "\n".join([*lines, "", *notes])


def _column(regime: Regime) -> str:
    return regime.shape or f"{regime.optimizer} {regime.scale} x{regime.accumulation}"


def _cell(results: list[Told], reasons: dict[str, str]) -> str:
    """The regimes of one column (clip binds or never, resumed or not), merged."""
    parts = []
    for result in results:
        caught = "".join(dict.fromkeys(SHORT.get(name, "D") for name in result.caught_by))
        if not caught:
            why = programs.cannot_change(str(result.fault), result.regime)
            caught = "**missed**" if why is None else reasons.setdefault(why, chr(ord("a") + len(reasons)))
        parts.append(caught)
    return " / ".join(dict.fromkeys(parts))


def right_table(results: list[Told]) -> str:
    """Right migrations, by program and opt level."""
    lines = [
        "| program | original | runs | false alarms | worst gradient error | furthest from the curve |",
        "|-|-|-|-|-|-|",
    ]
    every = {(r.regime.shape or f"two models, {r.regime.model}", r.regime.level) for r in results}
    for name, level in sorted(every, key=lambda key: (not key[0].startswith("two models"), key)):
        found = [
            r for r in results if r.regime.level == level and name in (r.regime.shape, f"two models, {r.regime.model}")
        ]
        alarms = sum(r.exit_code != 0 for r in found)
        errors, bands = [r.error for r in found], [r.band for r in found]
        lines.append(f"| {name} | {level} | {len(found)} | {alarms} | {max(errors):.1e} | {max(bands):.2g} |")
    return "\n".join(lines)


def failures(results: list[Told]) -> list[str]:
    """What must not be: a missed fault, a false alarm, a run that could not be judged."""
    told = []
    for result in results:
        code, regime = result.exit_code, result.regime
        if result.fault is None and code != 0:
            told.append(f"false alarm in {regime!r}: {result.trouble or result.caught_by}")
        elif result.fault is not None and code == 2:
            told.append(f"{result.fault}, {regime}: not judged, {result.trouble}")
        elif result.fault is not None and code == 0 and programs.cannot_change(result.fault, regime) is None:
            told.append(f"{result.fault}, {regime}: missed")
    return told


TABLES: dict[str, Callable[[Told], bool]] = {
    "faults": lambda told: not told.regime.shape and told.fault not in programs.DRILLED,
    "drilled": lambda told: not told.regime.shape and told.fault in programs.DRILLED,
    "shapes": lambda told: bool(told.regime.shape),
}


def _cases(faults: str, sample: int | None, count: int) -> Cases:
    chosen = planted({"all": programs.FAULTS, "drilled": tuple(programs.DRILLED), "none": ()}[faults])
    chosen += [(regime, fault) for regime, fault in shaped.planted() if faults == "all"]
    if sample is not None and sample < len(chosen):
        chosen = random.Random(0).sample(chosen, sample)
    return [*chosen, *((regime, None) for regime in right(count))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--right", type=int, default=324, help="right migrations to run, with all drills")
    parser.add_argument("--faults", choices=("all", "drilled", "none"), default="all", help="drilled: only the newest")
    parser.add_argument(
        "--programs", choices=("all", "regimes", "shapes"), default="all", help="only those of one kind"
    )
    parser.add_argument("--sample", type=int, help="so many of the planted faults, drawn over all of them")
    parser.add_argument("--part", metavar="K/N", default="1/1", help="only the K-th of N parts")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep results here; what it holds is not run again"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/verification.md")
    options = parser.parse_args()
    started = time.perf_counter()
    cases = _cases(options.faults, options.sample, options.right)
    if options.programs != "all":
        cases = [(regime, fault) for regime, fault in cases if bool(regime.shape) == (options.programs == "shapes")]
    number, parts = map(int, options.part.split("/"))
    mine = cases[number - 1 :: parts]
    kept = Kept(options.results, options.device)
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), [case for case in mine if kept.of(*case) is None], options.workers, options.device, kept)
    results = [told for case in cases if (told := kept.of(*case)) is not None]
    faulty, fine = [r for r in results if r.fault], [r for r in results if not r.fault]
    tables = {}
    for name, choose in TABLES.items():
        if shown := [r for r in faulty if choose(r)]:
            tables[name] = fault_table(shown)
    if fine:
        tables["right"] = right_table(fine)
    wrong = failures(results)
    print("\n\n".join(tables.values()))
    caught = Counter(name for r in faulty for name in r.caught_by)
    told = f"{len(faulty)} planted faults, {len(fine)} right migrations"
    print(f"\n{told}, {time.perf_counter() - started:.0f} s; {caught}")
    print("\n".join(wrong))
    print(f"{len(results) - len(wrong)} of {len(results)} as they must be on {options.device}")
    if len(results) < len(cases):
        print(f"{len(cases) - len(results)} of {len(cases)} not run yet")
        return 1 if wrong else 0
    whole = options.sample is None and options.faults == "all" and options.programs == "all"
    if options.write and whole:
        text = DOCS.read_text()
        for name, table in tables.items():
            begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
            text = text[: text.index(begin) + len(begin)] + table + text[text.index(end) :]
        DOCS.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
