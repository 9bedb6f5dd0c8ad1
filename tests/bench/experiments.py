"""`make experiments`: every program of fixtures/experiments in fp32, on Apex's stand-in and migrated, side by side.

The same as `amp-migrate verify` in that folder, as a table for docs/benchmarks.md (--write). `--full` gives the
programs the size meant for a GPU. Exit code 1 when a case does not agree.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "fixtures" / "experiments"
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from run import keep, machine  # noqa: E402

from amp_migrate.verify import configuration, session  # noqa: E402
from amp_migrate.verify.judge import Outcome  # noqa: E402

RUNS = ("fp32", "original", "migrated")


def outcomes(names: list[str], full: bool, steps: int | None) -> Iterator[Outcome]:
    """Each case of the folder's pyproject.toml, run as the command would."""
    os.chdir(FOLDER)
    for case in configuration.load(FOLDER):
        if names and case.script.parent.name not in names:
            continue
        options = {**case.options, **({"steps": steps} if steps else {})}
        migrated = options.pop("migrated", None)
        argv = (*case.argv, "--full") if full else case.argv
        request = session.Request(case.script, argv, migrated and FOLDER / migrated, options=tuple(options.items()))
        yield from session.run(request)


def row(outcome: Outcome) -> str:
    """Three values a cell: fp32, Apex, native."""
    runs = {r["run"]: r for r in outcome.cost}
    verdict = ("agrees", "disagrees", "not judged")[outcome.exit_code]
    cells = [Path(outcome.case.name).parent.name, verdict]
    for key, form in (
        ("final_loss", lambda v: f"{v:.4g}"),
        ("accuracy", str),
        ("seconds_per_step", lambda v: f"{v * 1e3:.3g}"),
        ("peak_bytes", lambda v: f"{v / 2**20:.0f}"),
    ):
        values = [runs.get(name, {}).get(key) for name in RUNS]
        cells.append("-" if not any(values) else " / ".join("-" if v is None else form(v) for v in values))
    return "| " + " | ".join(cells) + " |"


def note(device: Any) -> str:
    if "CPU" not in str(device).upper():
        return f"Measured on: {device}."
    return (
        "Measured on a CPU, where half precision is emulated: times say nothing about a GPU, peaks are the process's. "
        "Not measured on a GPU yet: `make gpu` does it there."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="folders of fixtures/experiments; default: all")
    parser.add_argument("--full", action="store_true", help="the size meant for a GPU")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--write", action="store_true", help="keep the table in docs/benchmarks.md")
    given = parser.parse_args()
    lines = ["| | verdict | loss | accuracy | ms a step | peak MiB |", "|-|-|-|-|-|-|"]
    failed, device = [], None
    for outcome in outcomes(given.names, given.full, given.steps):
        lines.append(row(outcome))
        print(lines[-1], flush=True)
        device = outcome.environment.get("device") or device
        if outcome.exit_code:
            red = [v.summary for v in outcome.verdicts if v.status == "disagrees"]
            failed.append(f"{outcome.case.name}: {outcome.trouble or '; '.join(red)}")
    print("\n".join(failed))
    if given.write:
        title = "### Experiments: fp32 / Apex O1 or O2 (stand-in) / migrated"
        keep("experiments", "\n".join([title, "", *lines, "", f"{note(device)} {machine()}"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
