"""What only happens on a GPU, with the CPU playing it: so that the first GPU verify meets is not its first run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from amp_migrate.shim import child_environment
from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
APEX = """
from apex import amp
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
"""
TRAINING = """
import os, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
{more}
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{setup}
for step in range(12):
    x = torch.randn(8, 4).cuda()
    {region}
        loss = model(x).float().square().mean() * shaken() / 16
    optimizer.zero_grad()
    {backward}
"""
APEX_BACKWARD = """with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()"""
NATIVE_BACKWARD = """scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()"""


def played() -> dict[str, str]:
    """The environment in which every Python process finds a device that the CPU plays."""
    base = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return {**base, **child_environment("shim", "cpu", base)}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a real device runs these tests itself")
def test_the_tests_for_a_device_pass_on_one_that_the_cpu_plays() -> None:
    chosen = "relu-O2 or recurrent"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda", "-k", chosen]
    done = subprocess.run(
        [*command, "tests/verify/test_cuda.py", "tests/shim/test_amp_cuda.py"],
        cwd=ROOT, env=played(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_nothing_asks_for_a_gpu_before_the_runs_are_forked() -> None:
    """CUDA, once started in a process, cannot be used in those it forks."""
    spied = (
        "import torch\n"
        "def spy(*a, **k): raise SystemExit('CUDA was asked for')\n"
        "torch.cuda._lazy_init = spy\n"
        "import amp_migrate.verify.recording.nursery\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", spied], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_find_cuda_asked_through_nvml_and_cudnn_held(launcher: Launcher, tmp_path: Path) -> None:
    """https://docs.pytorch.org/docs/stable/cuda.html: through NVML the answer comes without starting CUDA."""
    more = "assert os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] == '1' and not torch.backends.cudnn.benchmark"
    assert verify(launcher, tmp_path, "1.0", more).exit_code == 0


def verify(launcher: Launcher, folder: Path, shaken: str, more: str = "") -> Outcome:
    for side in ("original", "migrated"):
        apex = side == "original"
        text = TRAINING.format(
            more=f"def shaken():\n    return {shaken}\n{more}",
            setup=APEX if apex else 'scaler = torch.amp.GradScaler("cuda")',
            region="if True:" if apex else 'with torch.autocast("cuda", dtype=torch.float16):',
            backward=APEX_BACKWARD if apex else NATIVE_BACKWARD,
        )
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(text)
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("case", *programs, steps=12, reruns=1, fp32=False, device="cpu", apex="shim")
    return judge(case, launcher, folder / "runs")


def test_kernels_that_are_not_deterministic_are_no_fault_of_the_migration(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, "(1 + int.from_bytes(os.urandom(2), 'big') / 2**16 * 1e-6)")
    assert outcome.exit_code == 0, [(v.name, v.evidence) for v in outcome.verdicts]
    checkpoint = next(v for v in outcome.verdicts if v.name == "checkpoint")
    assert "within the band" in checkpoint.summary
    # Which step is chance: half precision rounds most of what was drawn away.
    assert re.search(r"run twice, the migrated program parts from itself at step \d", " ".join(checkpoint.announced))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_make_gpu_refuses_without_a_gpu_and_rehearses() -> None:
    script = [sys.executable, str(ROOT / "tests" / "bench" / "gpu.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "needs a CUDA device" in done.stderr
    done = subprocess.run(
        [*script, "--rehearse", "--only", "conformance", "--apex", "nowhere"], capture_output=True, text=True,
        env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| conformance | passed |" in done.stdout
    assert "CPU in place of CUDA" in done.stdout
