"""The parent's side of a run: start it, watch it, stop it when it hangs, and hand back its record."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.verify.interpreter import command
from amp_migrate.verify.progress import Tracker
from amp_migrate.verify.record import Recording, read
from amp_migrate.verify.recording.spec import ALIVE, RunSpec
from amp_migrate.verify.trees import again, beside

POLL_SECONDS = 0.1  # a run that ends says so at once; this is for those that hang
PATIENCE = 10.0  # seconds the ranks of a job are given once one of them has failed
ANOTHER_RANK = "was waiting for a rank that had failed"


class LaunchError(Exception):
    """No run could be started at all."""


@dataclass(frozen=True)
class Limits:
    """Seconds a run may take: between two signs of life, and in total."""

    step: float = 120.0
    total: float = 1800.0


@dataclass(eq=False)
class _Run:
    spec: RunSpec
    file: Path
    pid: int | None = None
    status: int | None = None
    stopped: str | None = None
    ended: float = 0.0
    started: float = 0.0
    grown: float = 0.0
    seen: list[tuple[int, int]] = field(default_factory=list)


class Launcher:
    """Starts runs through one nursery process (see `recording.nursery`), at most `parallel` at a time.

    A context manager: leaving it ends whatever still runs. Should this process be killed, the nursery ends the runs and
    removes `folder`. Raises LaunchError when Python or torch cannot start.
    """

    def __init__(
        self,
        *,
        parallel: int = 1,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.parallel = max(1, parallel)
        self.folder = folder
        self.tracker = Tracker(lambda message: None)
        self.limits = limits or Limits()
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._live: set[int] = set()
        self._started = False  # whether there was a run

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End whatever still runs, and the nursery; the next run starts another."""
        for pid in list(self._live):
            _kill(pid)
        self._live.clear()
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.write(b"null\n")  # a farewell: the folder is not the nursery's to remove
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(10 if self._started else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def warm_up(self) -> None:
        """Start importing torch, while the caller does something else."""
        self._nursery()

    def run(self, specs: Sequence[RunSpec]) -> list[Recording]:
        """Run all, return their recordings in order; `tracker` is told of each as it begins and ends.

        Leaves no run behind, also where it raises.
        """
        try:
            return self._run(specs)
        except BaseException:
            self.close()
            raise

    def _run(self, specs: Sequence[RunSpec]) -> list[Recording]:
        runs = [_Run(spec, Path(spec.out) / "spec.json") for spec in specs]
        by_file = {str(run.file): run for run in runs}
        jobs = _jobs(runs)
        waiting, active = list(jobs), 0
        nursery = self._nursery()
        while waiting or active:
            while waiting and active < self.parallel:
                job = waiting.pop(0)
                _lay_out(job[0].spec)
                for run in job:  # the ranks of a job start together
                    self.tracker.began(run.spec)
                    self._start(run, nursery)
                active += 1
            for message in self._messages():
                run = by_file[message["spec"]]
                if "pid" in message:
                    run.pid = message["pid"]
                    run.started = run.grown = time.monotonic()
                    self._live.add(message["pid"])
                    self._started = True
                else:
                    run.status, run.ended = message["status"], time.monotonic()
                    self._live.discard(run.pid or 0)
                    _kill(run.pid)  # what the program left behind in its process group
                    if all(r.status is not None for r in next(job for job in jobs if run in job)):
                        active -= 1
                        _clear(run.spec)
                    self.tracker.ended(run.spec)
            now = time.monotonic()
            for job in jobs:
                for run in job:
                    if run.pid is not None and run.status is None:
                        self._watch(run, job, now)
        return [read(run.spec, run.status, run.stopped) for run in runs]

    def _start(self, run: _Run, nursery: subprocess.Popen[bytes]) -> None:
        run.file.parent.mkdir(parents=True, exist_ok=True)
        run.spec.in_own_tree().write(run.file)
        assert nursery.stdin is not None
        try:
            nursery.stdin.write(json.dumps({"spec": str(run.file)}).encode() + b"\n")
            nursery.stdin.flush()
        except BrokenPipeError as error:
            raise LaunchError("the process that starts the runs has died.") from error

    def _watch(self, run: _Run, job: list[_Run], now: float) -> None:
        seen = [_stamp(Path(run.spec.out) / name) for name in ("record.jsonl", ALIVE)]
        if seen != run.seen:
            run.seen, run.grown = seen, now
        if now - run.started > self.limits.total:
            run.stopped = f"did not finish within {self.limits.total:g} s"
        elif now - run.grown > self.limits.step:
            run.stopped = f"made no step for {self.limits.step:g} s"
        elif any(other.status and now - other.ended > PATIENCE for other in job):
            run.stopped = ANOTHER_RANK
        if run.stopped is not None:
            _kill(run.pid)

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        try:
            messages.append(self._expect(self._answers.get(timeout=POLL_SECONDS)))
            while True:
                messages.append(self._expect(self._answers.get_nowait()))
        except queue.Empty:
            return messages

    def _expect(self, message: dict[str, Any] | None) -> dict[str, Any]:
        if message is None:
            raise LaunchError("the process that starts the runs has died; is torch installed and does it import?")
        return message

    def _nursery(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
        threads = str(max(1, cores // self.parallel))
        environment = {
            "OMP_NUM_THREADS": threads,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking whether there is a GPU must not start CUDA before the fork
            **os.environ,
            **self._environment,
            "PYTHONHASHSEED": "0",
        }
        self._process = subprocess.Popen(
            [*command("amp_migrate.verify.recording.nursery:main(early)"), str(self.folder or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the tool: it ends the runs in order
        )
        self._started, self._answers = False, queue.Queue()
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()
        return self._process


def _listen(process: subprocess.Popen[bytes], answers: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(json.loads(line))
    answers.put(None)


def _lay_out(spec: RunSpec) -> None:
    """A fresh copy of the program for a job: what one run writes, none of the others finds. Beside it stand links to what
    stands beside the user's folder."""
    if spec.tree is None or spec.own_tree is None:
        return
    shutil.rmtree(spec.home / "tree", ignore_errors=True)
    again(Path(spec.continues or spec.tree), spec.own_tree)
    if spec.origin is not None:
        beside(Path(spec.origin), spec.own_tree, spec.home / "tree")


def _stamp(file: Path) -> tuple[int, int]:
    try:
        state = file.stat()
    except FileNotFoundError:
        return (-1, -1)
    return (state.st_size, state.st_mtime_ns)


def _clear(spec: RunSpec) -> None:
    shutil.rmtree(spec.home / "tmp", ignore_errors=True)
    if spec.own_tree is not None and not spec.keep_tree:
        shutil.rmtree(spec.home / "tree", ignore_errors=True)


def _jobs(runs: list[_Run]) -> list[list[_Run]]:
    """The runs that belong together: the ranks of one distributed job follow each other."""
    jobs: list[list[_Run]] = []
    for run in runs:
        if run.spec.rank:
            jobs[-1].append(run)
        else:
            jobs.append([run])
    return jobs


def ranks(specs: Sequence[RunSpec], world: int) -> list[RunSpec]:
    """Each spec as `world` processes of one job; unchanged for a single process."""
    if world == 1:
        return list(specs)
    expanded = []
    for spec in specs:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        expanded += [spec.of_rank(rank, world, port) for rank in range(world)]
    return expanded


def _kill(pid: int | None) -> None:
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
