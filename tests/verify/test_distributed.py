"""`--nproc 2`: both programs as two processes on gloo, judged rank by rank."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher

COMMON = """
import os, torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
{imports}
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{setup}
torch.manual_seed(10 + rank)
for step in range(20):
    x, y = torch.randn(8, 8).cuda(), torch.randint(2, (8,)).cuda()
{body}
"""

APEX = COMMON.format(
    imports="from apex import amp\nfrom apex.parallel import DistributedDataParallel",
    setup='model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)\n'
    "model = DistributedDataParallel(model)",
    body="""\
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
""",
)


def native(region: str = "model(x)", after: str = "") -> str:
    return COMMON.format(
        imports="from torch.nn.parallel import DistributedDataParallel",
        setup='model = DistributedDataParallel(model, device_ids=[rank])\nscaler = torch.amp.GradScaler("cuda")',
        body=f"""\
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy({region}, y)
    scaler.scale(loss).backward()
    {after}
    scaler.step(optimizer)
    scaler.update()
""",
    )


def verify(launcher: Launcher, folder: Path, migrated: str) -> Outcome:
    for side, code in (("original", APEX), ("migrated", migrated)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(dedent(code))
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("ddp", *programs, steps=5, reruns=1, nproc=2, device="cpu", apex="shim")
    return judge(case, launcher, folder / "runs")


def test_a_right_migration_agrees_on_every_rank(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, native())
    assert outcome.exit_code == 0, (outcome.trouble, outcome.verdicts)
    assert all("rank" in v.summary for v in outcome.verdicts)


def test_gradients_that_are_not_reduced_are_caught(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, native("model.module(x)"))
    assert outcome.exit_code == 1
    assert "lockstep" in [v.name for v in outcome.verdicts if v.status == "disagrees"]


def test_a_step_skipped_on_one_rank_only_is_caught(launcher: Launcher, tmp_path: Path) -> None:
    overflow = "next(model.parameters()).grad[0] += float('inf') if (rank, step) == (1, 2) else 0"
    outcome = verify(launcher, tmp_path, native(after=overflow))
    assert outcome.exit_code == 1
    scale = next(v for v in outcome.verdicts if v.name == "scale")
    assert "step 2 is skipped on rank 1 and taken on rank 0" in scale.summary


def test_a_rank_that_fails_ends_the_job(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, native(after="assert (rank, step) != (1, 2), 'rank 1 is gone'"))
    assert outcome.exit_code == 1
    assert "rank 1 is gone" in outcome.verdicts[0].summary
