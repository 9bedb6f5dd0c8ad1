"""`python -m tests.trust.run`: every fault in every regime, and right migrations over many seeds.

Prints the tables of docs/verification.md and, with --write, puts them there. Exit code 1 when a fault that changes
the computation goes unseen or a right migration is rejected.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from amp_migrate.verify.launch import Launcher
from tests.trust import programs, suite
from tests.trust.programs import Regime
from tests.trust.suite import Device, Result

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
    """`count` right migrations: every regime in turn, other models, opt levels and seeds."""
    pick = random.Random(0)
    every = list(programs.regimes())
    return [
        replace(
            every[i % len(every)], model=pick.choice(("relu", "gelu", "conv")), level=pick.choice(("O1", "O2")), seed=i
        )
        for i in range(count)
    ]


def run(work: Path, cases: list[tuple[Regime, str | None]], workers: int, device: Device) -> Iterator[Result]:
    """Verify all, several at a time, each worker with a launcher of its own."""

    def share(number: int) -> list[Result]:
        with Launcher(environment={"OMP_NUM_THREADS": "1"}) as launcher:
            results = []
            for done, case in enumerate(cases[number::workers], 1):
                results.append(suite.verify(launcher, work / str(number), *case, device=device))
                if number == 0 and done % 20 == 0:
                    print(f"{done * workers} of {len(cases)}", file=sys.stderr, flush=True)
            return results

    with ThreadPoolExecutor(workers) as pool:
        for results in pool.map(share, range(workers)):
            yield from results


def fault_table(results: list[Result]) -> str:
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
    return f"{regime.optimizer} {regime.scale} x{regime.accumulation}"


def _cell(results: list[Result], reasons: dict[str, str]) -> str:
    """The regimes of one column (clip binds or never, resumed or not), merged."""
    parts = []
    for result in results:
        caught = "".join(dict.fromkeys(SHORT.get(name, "D") for name in result.caught_by))
        if not caught:
            why = programs.cannot_change(str(result.fault), result.regime)
            caught = "**missed**" if why is None else reasons.setdefault(why, chr(ord("a") + len(reasons)))
        parts.append(caught)
    return " / ".join(dict.fromkeys(parts))


def right_table(results: list[Result]) -> str:
    """Right migrations, by model and opt level."""
    lines = [
        "| model | original | runs | false alarms | worst gradient error | furthest from the curve |",
        "|-|-|-|-|-|-|",
    ]
    for model, level in sorted({(r.regime.model, r.regime.level) for r in results}):
        found = [r for r in results if (r.regime.model, r.regime.level) == (model, level)]
        alarms = sum(r.outcome.exit_code != 0 for r in found)
        errors = [s["median_error"] or 0.0 for r in found for v in r.outcome.verdicts for s in v.data.get("steps", [])]
        bands = [v.data.get("worst", 0.0) for r in found for v in r.outcome.verdicts if v.name == "loss curve"]
        lines.append(f"| {model} | {level} | {len(found)} | {alarms} | {max(errors):.1e} | {max(bands):.2g} |")
    return "\n".join(lines)


def failures(results: list[Result]) -> list[str]:
    """What must not be: a missed fault, a false alarm, a run that could not be judged."""
    told = []
    for result in results:
        code, regime = result.outcome.exit_code, result.regime
        if result.fault is None and code != 0:
            told.append(f"false alarm in {regime!r}: {result.outcome.trouble or result.caught_by}")
        elif result.fault is not None and code == 2:
            told.append(f"{result.fault}, {regime}: not judged, {result.outcome.trouble}")
        elif result.fault is not None and code == 0 and programs.cannot_change(result.fault, regime) is None:
            told.append(f"{result.fault}, {regime}: missed")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--right", type=int, default=216, help="right migrations to run, with all drills")
    parser.add_argument("--faults", choices=("all", "drilled", "none"), default="all", help="drilled: only the newest")
    parser.add_argument("--sample", type=int, help="so many of the planted faults, drawn over all of them")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/verification.md")
    options = parser.parse_args()
    started = time.perf_counter()
    faults = {"all": programs.FAULTS, "drilled": tuple(programs.DRILLED), "none": ()}[options.faults]
    chosen = planted(faults)
    if options.sample is not None and options.sample < len(chosen):
        chosen = random.Random(0).sample(chosen, options.sample)
    cases: list[tuple[Regime, str | None]] = [*chosen, *((regime, None) for regime in right(options.right))]
    with tempfile.TemporaryDirectory() as folder:
        results = list(run(Path(folder), cases, options.workers, options.device))
    faulty, fine = [r for r in results if r.fault], [r for r in results if not r.fault]
    tables = {}
    for name, drilled in (("faults", False), ("drilled", True)):
        if shown := [r for r in faulty if (r.fault in programs.DRILLED) == drilled]:
            tables[name] = fault_table(shown)
    if fine:
        tables["right"] = right_table(fine)
    wrong = failures(results)
    print("\n\n".join(tables.values()))
    caught = Counter(name for r in faulty for name in r.caught_by)
    print(
        f"\n{len(faulty)} planted faults, {len(fine)} right migrations, {time.perf_counter() - started:.0f} s; {caught}"
    )
    print("\n".join(wrong))
    print(f"{len(results) - len(wrong)} of {len(results)} as they must be on {options.device}")
    if options.write and options.sample is None:
        text = DOCS.read_text()
        for name, table in tables.items():
            begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
            text = text[: text.index(begin) + len(begin)] + table + text[text.index(end) :]
        DOCS.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
