"""A training step through the shim at O1 and O2 against native autocast; says on which device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import Row, Table

PROGRAM = Path(__file__).parent / "training_program.py"
MODES = ("autocast", "fp32", "O1", "O2")


def figures(mode: str, steps: int, small: bool) -> dict[str, Any]:
    """Median seconds per step and peak bytes of one run."""
    options = ["--steps", str(steps), *(["--small"] if small else [])]
    run = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "run", "--apex", "shim", str(PROGRAM), mode, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def measure() -> Table:
    import torch

    small = not torch.cuda.is_available() or "CPU" in torch.cuda.get_device_name()
    measured = {mode: figures(mode, steps=10 if small else 30, small=small) for mode in MODES}
    device = measured["autocast"]["device"]
    model = "a small residual network" if small else "a network of ResNet-50's size, batch 64"
    unmeasured = "; not measured on a GPU" if small else ""
    table = Table(
        "training",
        f"Training step of {model} on: {device}{unmeasured}",
        "autocast",
        "on a GPU, O1 and O2 through the shim within 10% of native autocast",
    )
    table.rows = [Row(mode, f["seconds"], f"peak {f['peak_bytes'] / 2**20:.0f} MiB") for mode, f in measured.items()]
    return table
