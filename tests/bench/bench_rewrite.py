"""Rewriting the fixtures' programs in one process, against libcst's own parsing and code generation of the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import libcst
from measuring import Row, Table, best
from trees import programs

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile

TIMES = (1, 4, 16)


def one_by_one(texts: list[str], options: Options) -> None:
    for text in texts:
        migrate(Program([SourceFile(Path("train.py"), "train.py", text)]), options)


def round_trip(texts: list[str]) -> None:
    for text in texts:
        assert libcst.parse_module(text).code == text


def measure() -> Table:
    table = Table(
        "rewrite", "Rewriting, per file", "libcst parse + codegen", "at most 3 times libcst's parse + codegen"
    )
    texts = [data.decode() for data in programs()]
    times = best(
        {
            "libcst parse + codegen": partial(round_trip, texts),
            "amp-migrate": partial(one_by_one, texts, Options()),
        },
        rounds=5,
    )
    table.rows = [Row(name, seconds, f"{len(texts)} programs") for name, seconds in times.items()]
    longest = max(texts, key=len)
    for times_ in TIMES:
        # A longer file: the program, and as much again of functions that have nothing to do with it.
        padding = "".join(f"\n\ndef helper_{i}(x):\n    y = x + {i}\n    return y * 2\n" for i in range(200 * times_))
        text = longest + padding
        grown: dict[str, Callable[[], object]] = {
            "libcst": partial(round_trip, [text]),
            "ours": partial(one_by_one, [text], Options()),
        }
        seconds = best(grown, rounds=3)
        note = f"{seconds['ours'] / seconds['libcst']:.2f} times libcst's {seconds['libcst'] * 1000:.0f} ms"
        table.rows.append(
            Row(f"amp-migrate, one file of {len(text) / 1000:.0f} kB", seconds["ours"], note, compared=False)
        )
    return table
