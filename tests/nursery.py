"""Programs in processes of their own that need not import torch: one process that has imported it forks them.

It reads an order a line of standard input, as JSON, and answers with the exit status once the program has ended. It ends
when standard input does.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120


class Nursery:
    """The parent's side: starts `module` when the first program is to run. `variables` are set in its environment.

    A context manager; `close` ends the process.
    """

    def __init__(self, variables: Mapping[str, str], module: str = "tests.nursery") -> None:
        self._variables = {"OMP_NUM_THREADS": "1", **variables}
        self._command = [sys.executable, "-m", module]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def order(self, **order: Any) -> int:
        """What `serve` is given in the other process; the exit status there."""
        if self._process is None:
            pipe = subprocess.PIPE
            environment = {**os.environ, **self._variables}
            environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), str(ROOT)])
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def run(self, script: str, args: list[str], cwd: Path) -> tuple[int, str, str]:
        """`python SCRIPT ARGS...`: exit status, standard output, standard error. -14: it took more than `SECONDS`."""
        with tempfile.TemporaryDirectory() as out:
            order = {"script": script, "args": args, "cwd": str(cwd), "out": out, "seconds": SECONDS}
            status = self.order(**order, environment={**os.environ, **self._variables})
            printed, errors = ((Path(out) / f"{name}.txt").read_text("utf-8") for name in ("stdout", "stderr"))
        return status, printed, errors

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


@functools.cache
def plain() -> Nursery:
    """One without a stand-in for Apex, for all tests of this process."""
    nursery = Nursery({})
    atexit.register(nursery.close)
    return nursery


def serve(run: Callable[..., None]) -> None:
    """Call `run` with each order, in a process of its own."""
    import torch
    import torch._dynamo  # the first optimizer imports it, which takes as long as torch itself
    import torch.utils.data

    torch.set_num_threads(1)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                run(**json.loads(line))
                status = 0
            except SystemExit as left:
                status = left.code if isinstance(left.code, int) else int(left.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def enter(script: str, args: list[str], cwd: str, out: str, seconds: int) -> None:
    """As Python is when it starts a script; what it prints goes to files in `out`."""
    os.chdir(cwd)
    for descriptor, name in ((1, "stdout.txt"), (2, "stderr.txt")):
        os.dup2(os.open(os.path.join(out, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    signal.alarm(seconds)
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.dont_write_bytecode = True


def _run(environment: dict[str, str], **order: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    enter(**order)
    runpy.run_path(order["script"], run_name="__main__")


if __name__ == "__main__":
    serve(_run)
