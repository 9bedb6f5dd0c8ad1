"""What tests of several files share, once for each process that runs tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from amp_migrate.verify.launch import Launcher, Limits


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts runs of `verify`. It has started its own process before any test could change where that finds modules."""
    from amp_migrate.verify.launch import Launcher

    with Launcher(parallel=2, environment={"OMP_NUM_THREADS": "1"}) as launcher:
        launcher.warm_up()
        yield launcher


@pytest.fixture
def amp_migrate(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line in the folder of the test, within this process; what it verifies `launcher` starts, so that it need
    not wait for another process to import torch."""
    from tests.cli_testing import run

    def lend(*, limits: Limits, **asked: object) -> nullcontext[Launcher]:
        monkeypatch.setattr(launcher, "limits", limits)
        return nullcontext(launcher)

    monkeypatch.setattr("amp_migrate.verify.session.Launcher", lend)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.chdir(tmp_path)
    return run
