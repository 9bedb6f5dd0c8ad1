"""Start a Python program with the shim, alone or as several ranks of one distributed run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from amp_migrate.shim import ApexChoice, DeviceChoice, child_environment

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0


def run(
    arguments: Sequence[str], apex: ApexChoice = "auto", device: DeviceChoice = "auto", nproc: int | None = None
) -> int:
    """Run `python ARGUMENTS...` and return its exit code, as a shell reports it (128 + n for signal n).

    Without `nproc` the program replaces this process where the system can do that, and the call does not return. With
    it, that many ranks are started with the environment variables of `torchrun`
    (docs.pytorch.org/docs/stable/elastic/run.html), and `{local_rank}` in an argument becomes the rank's number, for
    programs that want `--local_rank`; the first failure ends the others and gives the exit code.
    """
    environment = {**os.environ, **child_environment(apex, device)}
    command = [sys.executable, *arguments]
    if nproc is not None:
        return _run_ranks(command, environment, nproc)
    if os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


def rank_environment(rank: int, nproc: int, address: str, port: int) -> dict[str, str]:
    """What `torchrun` on one machine tells a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def _run_ranks(command: Sequence[str], environment: dict[str, str], nproc: int) -> int:
    address = environment.get("MASTER_ADDR", "127.0.0.1")
    port = int(environment.get("MASTER_PORT") or _free_port())
    if nproc > 1:  # as torchrun does: ranks that each take every core only slow each other down
        environment.setdefault("OMP_NUM_THREADS", "1")
    ranks = [
        subprocess.Popen(
            [argument.replace("{local_rank}", str(rank)) for argument in command],
            env={**environment, **rank_environment(rank, nproc, address, port)},
        )
        for rank in range(nproc)
    ]

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, interrupted)
    try:
        return _wait(ranks)
    finally:
        signal.signal(signal.SIGTERM, previous)
        _end(ranks)


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [code for code in codes if code]
        if failed:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if all(code == 0 for code in codes):
            return 0
        time.sleep(POLL_SECONDS)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for rank in ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
