"""On a real device: the rules applied on the CPU are the device's, and the shim costs what native autocast costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import HERE, clean_environment, run_redirected

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DTYPES = HERE / "redirected" / "dtypes.py"
BENCH = Path(__file__).parents[1] / "bench"


def test_every_operation_gives_the_dtype_of_the_device() -> None:
    environment = {**clean_environment(), "PYTHONPATH": str(HERE)}
    real = subprocess.run(
        [sys.executable, str(DTYPES), "cuda"], capture_output=True, text=True, check=True, env=environment
    )
    on_device = json.loads(real.stdout)
    on_cpu = json.loads(run_redirected(DTYPES, "cuda", cwd=HERE, also_import=HERE).stdout)
    assert len(on_device) > 180
    assert on_cpu == on_device


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, Any]]:
    sys.path.insert(0, str(BENCH))
    try:
        from bench_training import MODES
        from bench_training import figures as measured
    finally:
        sys.path.remove(str(BENCH))
    return {mode: measured(mode, steps=30, small=False) for mode in MODES}


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_step_costs_what_native_autocast_costs(figures: dict[str, dict[str, Any]], level: str) -> None:
    assert figures[level]["seconds"] <= 1.1 * figures["autocast"]["seconds"]
    assert figures[level]["peak_bytes"] <= 1.1 * figures["autocast"]["peak_bytes"]
