"""A process that has imported torch and forks the runs: importing it once, not once a run, is most of their start-up.

Reads one JSON line a run on standard input, `{"spec": path}`, and answers `{"spec": path, "pid": n}` when the run has
been started and `{"spec": path, "status": n}` when it has ended. Each run gets a process group of its own. Ends, with
every run, when standard input does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it, which takes as long as torch itself
import torch.utils.data

from amp_migrate.verify.recording import child
from amp_migrate.verify.recording.spec import RunSpec

POLL_SECONDS = 0.01


def main() -> None:
    torch.set_num_threads(torch.get_num_threads())  # read the environment before forking
    runs: dict[int, str] = {}
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], POLL_SECONDS if runs else None)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                spec = str(json.loads(line)["spec"])
                pid = _start(spec)
                runs[pid] = spec
                _answer({"spec": spec, "pid": pid})
        for pid in list(runs):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                _answer({"spec": runs.pop(pid), "status": os.waitstatus_to_exitcode(status)})
    for pid in runs:
        os.killpg(pid, signal.SIGKILL)


def _start(spec_file: str) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
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
        child.run(spec)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(70)  # only reached when the recorder itself failed


def _answer(message: dict[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
