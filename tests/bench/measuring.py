"""Timing side by side: what a benchmark measures, and how a table of it looks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One thing measured: seconds, and its ratio to the row everything is compared with."""

    name: str
    seconds: float
    note: str = ""


@dataclass
class Table:
    """A benchmark's outcome. `base` names the row that counts as 1; `goal` says what we want, in words."""

    key: str
    title: str
    base: str
    goal: str
    rows: list[Row] = field(default_factory=list)

    def lines(self) -> list[str]:
        base = next(row.seconds for row in self.rows if row.name == self.base)
        lines = [f"### {self.title}", "", f"Goal: {self.goal}", "", "| | ms | ratio | |", "|-|-:|-:|-|"]
        lines += [f"| {r.name} | {r.seconds * 1000:.0f} | {r.seconds / base:.2f} | {r.note} |" for r in self.rows]
        return lines


def best(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least wall-clock seconds of each action, the rounds of all interleaved so that noise hits all alike."""
    times = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def command(arguments: Sequence[str], cwd: str | None = None) -> Callable[[], object]:
    """An action that runs a program to its end, whatever it exits with."""
    return lambda: subprocess.run(arguments, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def peak_memory(arguments: Sequence[str], cwd: str) -> tuple[float, int]:
    """Seconds and peak resident megabytes of one run of a program, its children not counted."""
    start = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(arguments, cwd=cwd, stdout=nothing, stderr=nothing)
        _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # reaped already
    return time.perf_counter() - start, usage.ru_maxrss // 1024
