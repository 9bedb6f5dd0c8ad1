"""`make bench`: run every bench_*.py here, print its table; with --write keep the tables in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import platform
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "benchmarks.md"
HEAD = """\
# Benchmarks

Measured by `make bench`, side by side in one run; ratios hold better than times. Each table is the best of several
interleaved rounds. `python tests/bench/run.py --write` renews the tables here.
"""


def main() -> int:
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *names], help=f"which to run; default: all ({', '.join(names)})"
    )
    parser.add_argument("--tree", action="append", type=Path, default=[], help="measure this repository instead")
    parser.add_argument("--write", action="store_true", help="keep the tables in docs/benchmarks.md")
    given = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent.parent)]
    os.environ["PYTHONPATH"] = str(HERE.parent.parent)
    compileall.compile_dir(HERE.parent.parent / "amp_migrate", quiet=1)  # as an installation does
    for name in given.names or (["trees"] if given.tree else names):
        if name == "trees":
            table = importlib.import_module("named_trees").measure(given.tree)
        else:
            table = importlib.import_module(f"bench_{name}").measure()
        text = "\n".join(table.lines())
        print(f"{text}\n", flush=True)
        if given.write:
            keep(table.key, f"{text}\n\n{machine()}")
    return 0


def machine() -> str:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    # A benchmark is one process at a time: what waits beyond that is somebody else's work.
    busy = (
        f"; busy with other work, {load:.0f} processes at once: of the times only the ratios hold"
        if load > cores + 1
        else ""
    )
    return f"({cores} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}{busy})"


def keep(key: str, text: str) -> None:
    """Put a table between its marks in the page, which keeps whatever else stands there."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    block = f"<!-- bench: {key} -->\n{text}\n<!-- end: {key} -->"
    marks = re.compile(rf"<!-- bench: {key} -->\n.*?<!-- end: {key} -->", re.S)
    page = marks.sub(lambda _: block, page) if marks.search(page) else f"{page.rstrip()}\n\n{block}\n"
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
