"""Timing side by side: what a benchmark measures, and how a table of it looks."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class Seconds(float):
    """Wall-clock seconds; `cpu` holds the processor's, children included, which a busy machine disturbs less."""

    cpu: float | None = None

    @classmethod
    def of(cls, wall: float, cpu: float) -> Seconds:
        seconds = cls(wall)
        seconds.cpu = cpu
        return seconds


@dataclass(frozen=True)
class Row:
    """One thing measured, in seconds; compared with the table's base unless its note says what to compare it with."""

    name: str
    seconds: float
    note: str = ""
    compared: bool = True

    @property
    def cpu(self) -> float | None:
        return getattr(self.seconds, "cpu", None)


@dataclass
class Table:
    """A benchmark's outcome. `base` names the row that counts as 1; `goal` says what we want, in words."""

    key: str
    title: str
    base: str
    goal: str
    rows: list[Row] = field(default_factory=list)

    def lines(self) -> list[str]:
        base = next(row for row in self.rows if row.name == self.base)
        lines = [f"### {self.title}", "", f"Goal: {self.goal}", ""]
        lines += ["| | ms | ratio | CPU ms | CPU ratio | |", "|-|-:|-:|-:|-:|-|"]
        for row in self.rows:
            cells = [*_cells(row.seconds, base.seconds, row.compared), *_cells(row.cpu, base.cpu, row.compared)]
            lines.append(f"| {row.name} | {' | '.join(cells)} | {row.note} |")
        return lines


def _cells(seconds: float | None, base: float | None, compared: bool) -> tuple[str, str]:
    if seconds is None:
        return "", ""
    return f"{seconds * 1000:.0f}", f"{seconds / base:.2f}" if base and compared else ""


def best(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, Seconds]:
    """The least seconds of each action, the rounds of all interleaved so that noise hits all alike."""
    walls = dict.fromkeys(actions, float("inf"))
    cpus = dict(walls)
    for _ in range(rounds):
        for name, action in actions.items():
            cpu, start = cpu_seconds(), time.perf_counter()
            action()
            walls[name] = min(walls[name], time.perf_counter() - start)
            cpus[name] = min(cpus[name], cpu_seconds() - cpu)
    return {name: Seconds.of(walls[name], cpus[name]) for name in actions}


def cpu_seconds() -> float:
    """Processor time of this process and of the children it has waited for."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def command(arguments: Sequence[str], cwd: str | None = None) -> Callable[[], object]:
    """An action that runs a program to its end, whatever it exits with."""
    return lambda: subprocess.run(arguments, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def peak_memory(arguments: Sequence[str], cwd: str) -> tuple[Seconds, int]:
    """Seconds and peak resident megabytes of one run of a program; memory without its children's."""
    start = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(arguments, cwd=cwd, stdout=nothing, stderr=nothing)
        _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # reaped already
    return Seconds.of(time.perf_counter() - start, usage.ru_utime + usage.ru_stime), usage.ru_maxrss // 1024
