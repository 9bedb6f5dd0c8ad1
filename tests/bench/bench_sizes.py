"""Long files and many programs, each in three sizes; the smallest beside libcst's own parsing and writing of the same."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from long_programs import functions, lines, numbers, programs
from measuring import Row, Table, peak_memory

SIZES = ((125, 250, 500), (25_000, 50_000, 100_000), (75_000, 150_000, 300_000), (50, 100, 200))


# What any tool that rewrites with libcst does at least.
PEER = """
import pathlib, libcst
for path in pathlib.Path().glob("*.py"):
    text = path.read_text()
    assert libcst.parse_module(text).code == text
"""


def cases() -> Iterator[tuple[str, dict[str, str]]]:
    """Each in three sizes, the largest the one that the goal is about."""
    train, long, table, many = SIZES
    yield from ((f"{n} functions that train, in one file", functions(n)) for n in train)
    yield from ((f"one file of {n:,} lines", lines(n)) for n in long)
    yield from ((f"a list of {n:,} numbers", numbers(n)) for n in table)
    yield from ((f"{n} programs of one file", programs(n)) for n in many)


def measure() -> Table:
    first = f"{SIZES[0][0]} functions that train, in one file"
    table = Table(
        "sizes", "Long files, many programs (one run each)", first, "each under 5 s and 300 MB, growing linearly"
    )
    command = [sys.executable, "-m", "amp_migrate", "rewrite", "--check", "."]
    for number, (name, files) in enumerate(cases()):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                (Path(folder) / path).write_text(text)
            seconds, memory = peak_memory(command, folder)
            note = f"{memory} MB of memory"
            if number % len(SIZES[0]) == 0:
                peer, more = peak_memory([sys.executable, "-c", PEER], folder)
                note += f"; libcst's parse + codegen of it takes {(peer.cpu or 0) * 1000:.0f} CPU ms, {more} MB"
        table.rows.append(Row(name, seconds, note, compared=False))
    return table
