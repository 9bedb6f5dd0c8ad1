"""Programs that are long in one way: functions that train, lines, numbers in a list, programs beside each other."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Table, peak_memory

SIZES = ((125, 250, 500), (25_000, 50_000, 100_000), (75_000, 150_000, 300_000), (50, 100, 200))
HEAD = "import torch\nfrom apex import amp\n"
TRAINING = """

def train_{0}(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
"""
HELPER = """

def helper_{0}(x, y=None):
    if y is None:
        y = x + {0}
    return [v * 2 for v in y]
"""


def functions(number: int) -> dict[str, str]:
    """One file with so many functions that train."""
    return {"train.py": HEAD + "".join(TRAINING.format(i) for i in range(number))}


def lines(number: int) -> dict[str, str]:
    """One file of so many lines, one function of which trains."""
    each = HELPER.count("\n")
    return {"train.py": HEAD + TRAINING.format(0) + "".join(HELPER.format(i) for i in range(number // each))}


def numbers(number: int) -> dict[str, str]:
    """One file with a list of so many numbers beside its training."""
    table = "".join(f"{i % 97}," + "\n" * (i % 20 == 19) for i in range(number))
    return {"train.py": f"{HEAD}\nTABLE = [\n{table}\n]\n{TRAINING.format(0)}"}


def programs(number: int) -> dict[str, str]:
    """So many programs of one file each."""
    return {f"train_{i}.py": HEAD + TRAINING.format(i) for i in range(number)}


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
    for name, files in cases():
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                (Path(folder) / path).write_text(text)
            seconds, memory = peak_memory(command, folder)
        table.rows.append(Row(name, seconds, f"{memory} MB of memory", compared=False))
    return table
