"""A process that has imported torch and forks the runs: importing it once, not once a run, is most of their start-up.

Reads one JSON line a run on standard input, `{"spec": path}`, and answers `{"spec": path, "pid": n}` when the run has
been started and `{"spec": path, "status": n}` when it has ended. Each run gets a process group of its own; what it leaves
running is ended with it. Ends, with every run, when standard input does; when that comes without the line `null` before
it, the tool was killed: then it removes the folder named in its argument.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it, which takes as long as torch itself
import torch.utils.data

from amp_migrate.verify.recording import child, strays
from amp_migrate.verify.recording.spec import RunSpec

POLL_SECONDS = 0.01


def main(early: frozenset[str]) -> None:
    """Serve until standard input ends. `early`: the modules a bare Python has imported at its start."""
    torch.set_num_threads(torch.get_num_threads())  # read the environment before forking
    strays.adopt()
    runs: dict[int, str] = {}
    pending, farewell = b"", False
    while True:
        ready, _, _ = select.select([0], [], [], POLL_SECONDS if runs else None)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                asked = json.loads(line)
                if asked is None:
                    farewell = True
                    continue
                pid = _start(str(asked["spec"]), early)
                runs[pid] = str(asked["spec"])
                _answer({"spec": runs[pid], "pid": pid})
        for pid in list(runs):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                strays.end(spare=set(runs), session=pid)
                _answer({"spec": runs.pop(pid), "status": os.waitstatus_to_exitcode(status)})
    for pid in runs:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    strays.end(spare=set())
    if not farewell and sys.argv[1:] and sys.argv[1]:
        shutil.rmtree(sys.argv[1], ignore_errors=True)


def _start(spec_file: str, early: frozenset[str]) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        strays.die_with_parent()
        spec = RunSpec.read(Path(spec_file))
        folder = Path(spec.out)
        for descriptor, target, mode in (
            (0, os.devnull, os.O_RDONLY),
            (1, folder / "stdout.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, folder / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            opened = os.open(target, mode, 0o644)
            os.dup2(opened, descriptor)
            os.close(opened)
        child.run(spec, early)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(70)  # only reached when the recorder itself failed


def _answer(message: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the tool is gone: its end of standard input says so too
        os.write(1, json.dumps(message).encode() + b"\n")
