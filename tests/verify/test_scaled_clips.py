"""A clip after each backward of a step, by the Apex that verify brings: its counterpart clips to a bound times the scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import judge
from amp_migrate.verify.launch import Launcher
from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from torch.nn.utils import clip_grad_norm_
from apex import amp

torch.manual_seed(0)
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)


def backward(loss):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 0.05)


for step in range(12):
    for _ in range(2):
        loss = model(torch.randn(8, 4).cuda()).float().square().mean() / 100
        backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("bound", "verdict"), [(None, "agrees"), ("0.05", "disagrees")])
def test_it_clips_as_apex_did(launcher: Launcher, tmp_path: Path, bound: str | None, verdict: str) -> None:
    native = rewrite(PROGRAM).after
    assert native is not None
    scaled = "0.05 * scaler.get_scale()"
    assert scaled in native
    programs = []
    for side, text in (("original", PROGRAM), ("migrated", native.replace(scaled, bound or scaled))):
        folder = tmp_path / side
        folder.mkdir()
        (folder / "train.py").write_text(text)
        programs.append(Program(folder / "train.py", folder))
    case = Case("case", *programs, steps=12, reruns=1, fp32=False, device="cpu", apex="shim")
    outcome = judge(case, launcher, tmp_path / "runs")
    found = next(v for v in outcome.verdicts if v.name == "lockstep")
    assert found.status == verdict
    assert any("norm found by clipping" in told for told in found.evidence) == (bound is not None)
