"""Whole projects with 50 training programs among ordinary files: time and memory as the project grows."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measuring import Row, Table, peak_memory
from trees import lay

SIZES = (1_000, 2_000, 4_000)
APEX = 50


def measure() -> Table:
    name = "rewrite, {} files"
    table = Table(
        "project",
        f"A project with {APEX} Apex programs",
        name.format(SIZES[0]),
        "under 10 s and 500 MB at 4,000 files on 2 cores, growing linearly",
    )
    for files in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            size = lay(Path(folder), files, APEX)
            runs = [
                peak_memory([sys.executable, "-m", "amp_migrate", "rewrite", "--check", "."], folder) for _ in range(2)
            ]
            seconds, memory = min(runs)
            table.rows.append(Row(name.format(files), seconds, f"{size / 1e6:.0f} MB of code, {memory} MB of memory"))
    return table
