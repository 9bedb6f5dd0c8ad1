"""Starting Python programs the way users do: through `amp-migrate run`, or as a child with the shim's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from amp_migrate.shim import child_environment

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 300


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change a child: the shim's variables, a launcher's, warnings."""
    launcher = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    dropped = {*launcher, "AMP_MIGRATE_APEX", "AMP_MIGRATE_DEVICE", "PYTHONPATH", "PYTHONWARNINGS"}
    return {**{k: v for k, v in os.environ.items() if k not in dropped}, "OMP_NUM_THREADS": "1"}


def run_cli(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`amp-migrate run ARGUMENTS...`."""
    return _run([sys.executable, "-m", "amp_migrate", "run", *map(str, arguments)], cwd, environment)


def run_redirected(
    *arguments: str | Path, cwd: Path | None = None, also_import: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS...` with CUDA redirected to the CPU; modules in `also_import` can be imported."""
    base = {**clean_environment(), "PYTHONPATH": str(also_import or "")}
    return _run([sys.executable, *map(str, arguments)], cwd, child_environment("shim", "cpu", base))


def _run(command: list[str], cwd: Path | None, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
