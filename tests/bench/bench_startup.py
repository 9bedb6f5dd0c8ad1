"""Start-up against importing click."""

from __future__ import annotations

import sys

from measuring import Row, Table, best, command

PROGRAM = [sys.executable, "-m", "amp_migrate"]


def measure() -> Table:
    table = Table("startup", "Start-up", "python -c 'import click'", "at most 2 times click")
    times = best(
        {
            "python -c pass": command([sys.executable, "-c", "pass"]),
            "python -c 'import click'": command([sys.executable, "-c", "import click"]),
            "amp-migrate --version": command([*PROGRAM, "--version"]),
            "amp-migrate check (empty file)": command([*PROGRAM, "check", "/dev/null"]),
            "amp-migrate explain": command([*PROGRAM, "explain"]),
            "python -c 'import libcst'": command([sys.executable, "-c", "import libcst"]),
        },
        rounds=15,
    )
    table.rows = [Row(name, seconds) for name, seconds in times.items()]
    return table
