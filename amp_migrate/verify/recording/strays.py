"""Processes that programs leave behind, also those that went into a session of their own: found and ended on Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
MARK = "AMP_MIGRATE_RUN"  # in the environment of a run and of what it starts: the process id of the run


def adopt() -> None:
    """Orphans below this process become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """This process is killed when the one that forked it ends, however that ends. Forgotten by its own children."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(*, spare: set[int], session: int | None = None) -> None:
    """Kill adopted orphans: those of the run `session`, or all. `spare` are children that are none."""
    for _ in range(100):  # what a killed one leaves behind comes up next
        found = [pid for pid in _children() if pid not in spare and (session is None or _belongs(pid, session))]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    return [int(entry.name) for entry in _processes() if _stat(entry)[1:2] == [str(os.getpid())]]


def _belongs(pid: int, run: int) -> bool:
    """By the session it is in, or, where it has one of its own, by the environment it was started with."""
    if _stat(Path(f"/proc/{pid}"))[3:4] == [str(run)]:
        return True
    with contextlib.suppress(OSError):
        return f"{MARK}={run}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _processes() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:  # no Linux
        return []


def _stat(process: Path) -> list[str]:
    """State, parent, process group, session, ... (proc_pid_stat(5)); nothing for a process that is gone."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
