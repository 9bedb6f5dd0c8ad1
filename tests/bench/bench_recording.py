"""What recording adds to a training step of a ResNet-50.

Two processes forked from one, a bare and a recorded one, take turns: one step of the one, one step of the other, so
that whatever else the machine does hits both alike. In the recorded one every statement of the network's file is
marked as well, as if a migration had changed them all: far more than any does. Compared is the CPU time of the least
disturbed step of each; the medians stand beside it.
"""

from __future__ import annotations

import ast
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from measuring import Row, Seconds, Table

from amp_migrate.verify.coverage.statements import executable, statements

STEPS, WARM_UP = 24, 4
NETWORK = Path(__file__).with_name("training_program.py")


def training() -> Callable[[], None]:
    """One step of SGD with clipping: 25 million parameters, 8 images of 32 x 32."""
    import torch
    import torch.nn.functional as F
    from training_program import network

    torch.manual_seed(0)
    model = network((3, 4, 6, 3), 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 3, 64, 64), torch.randint(1000, (8,))

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def marked(watch: Path) -> Path:
    """A list of all statements of the network's file, as `marks` reads it."""
    tree = ast.parse(NETWORK.read_bytes())
    spots = sorted({s.shows for s in statements(tree) if executable(s) and s.shows is not None})
    watch.write_text(json.dumps({"script": Path(__file__).name, "files": {NETWORK.name: spots}}))
    return watch


def serve(recorded: bool, folder: Path, pipe: Connection) -> None:
    """Make a step whenever asked; answer with its seconds, wall-clock and CPU."""
    if recorded:
        from amp_migrate.verify.recording import files, hooks, marks
        from amp_migrate.verify.recording.guard import Guard
        from amp_migrate.verify.recording.recorder import Recorder
        from amp_migrate.verify.recording.spec import RunSpec

        watch = str(marked(folder / "watch.json"))
        spec = RunSpec(__file__, (), str(folder), "migrated", str(folder), 10 * STEPS, device="cpu", watch=watch)
        recorder = Recorder(spec)
        hooks.install(recorder)
        guard = Guard(spec)
        guard.install()
        files.install(recorder, guard)
        marks.install(spec)
    step = training()
    while pipe.recv():
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        pipe.send((time.perf_counter() - wall, time.process_time() - cpu))


def fork(recorded: bool, folder: Path) -> Connection:
    ours, theirs = Pipe()
    if os.fork() == 0:
        try:
            serve(recorded, folder, theirs)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)
    theirs.close()
    return ours


def measure() -> Table:
    import torch

    torch.set_num_threads(1)
    times: dict[str, list[tuple[float, float]]] = {"bare": [], "recorded": []}
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: fork(name == "recorded", Path(folder)) for name in times}
        for turn in range(STEPS):
            for name in sorted(runs, reverse=bool(turn % 2)):
                runs[name].send(True)
                times[name].append(runs[name].recv())
        for pipe in runs.values():
            pipe.send(False)
            os.wait()
        ran = sum((Path(folder) / "ran-migrated").read_bytes())
        assert ran, "no mark was reached"
        steps = (Path(folder) / "record.jsonl").read_text().count('"kind": "step"')
        assert steps == STEPS, f"{steps} steps were recorded"
    table = Table("recording", "Recording a step of ResNet-50", "bare", "at most 3% of a step")
    settled = {name: list(zip(*taken[WARM_UP:], strict=True)) for name, taken in times.items()}
    middle = {name: statistics.median(cpu) for name, (_, cpu) in settled.items()}
    for name, (wall, cpu) in settled.items():
        marked_too = f"{ran} marked statements ran; " if name == "recorded" else ""
        added = f"{marked_too}median of CPU time {middle[name] * 1e3:.0f} ms, {middle[name] / middle['bare'] - 1:+.1%}"
        table.rows.append(Row(name, Seconds.of(min(wall), min(cpu)), added))
    return table
