"""Do the tests see a mutant? Each runs in a process of its own, forked from one that has imported what is heavy.

The mutant stands in a copy of the repository, so that what tests start as another process meets it too.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("amp_migrate", "tests", "fixtures", "docs", "pyproject.toml", "README.md", "Makefile", "LICENSE")
FEWEST_SECONDS = 60
TIMES = 10  # a mutant that runs so many times as long as the tests do is seen: it hangs


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the repository to plant faults in."""
    with tempfile.TemporaryDirectory(prefix="mutants") as place:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, Path(place) / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, Path(place) / name)
        yield Path(place)


def warm_up() -> None:
    """What every test imports that is not ours."""
    import hypothesis  # noqa: F401
    import libcst  # noqa: F401
    import pytest  # noqa: F401
    import torch  # noqa: F401


def outcome(folder: Path, tests: tuple[str, ...], seconds: float) -> str:
    """`passed`, `failed` or `timed out`."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        _run(folder, tests)
    while time.monotonic() - began < seconds:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timed out"


def _run(folder: Path, tests: tuple[str, ...]) -> None:
    """In the child: the tests of the copy, and nothing of what is imported from elsewhere."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.environ["PYTHONPATH"] = str(folder)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # compiled, a mutant may pass for the next: same second, same size
        sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
        for name in [n for n in sys.modules if n.partition(".")[0] in ("amp_migrate", "tests")]:
            del sys.modules[name]
        sys.dont_write_bytecode = True
        import pytest

        status = int(pytest.main(["-x", "-q", "-m", "", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    finally:
        os._exit(status)
