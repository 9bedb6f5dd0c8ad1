"""Differences that come with Apex are named; what only looks like one of them is still a disagreement."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = {model}.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{setup}
for step in range(12):
    x = torch.randn(8, 4).cuda()
{body}
"""


def verify(
    launcher: Launcher, folder: Path, apex: tuple[str, str], native: tuple[str, str], model: str = "nn.Linear(4, 2)",
    **options: Any,
) -> Outcome:  # fmt: skip
    for side, (setup, body) in (("original", apex), ("migrated", native)):
        (folder / side).mkdir()
        text = HEAD.format(
            model=model, setup=setup, body="\n".join("    " + line for line in dedent(body).splitlines())
        )
        (folder / side / "train.py").write_text(text)
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("case", *programs, steps=12, reruns=1, fp32=False, device="cpu", apex="shim", **options)
    return judge(case, launcher, folder / "runs")


def announced(outcome: Outcome, name: str) -> str:
    return " ".join(next(v for v in outcome.verdicts if v.name == name).announced)


def apex(level: str = "O1", more: str = "", options: str = "") -> str:
    return (
        "from apex import amp\n"
        f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}", verbosity=0{options})\n{more}'
    )


STEP = """
optimizer.zero_grad()
loss = model(x).float().square().mean() * 1e-6
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
optimizer.step()
"""
NATIVE = """
optimizer.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).float().square().mean() * 1e-6
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""
NEAR_THE_CAP = "s = amp._amp_state.loss_scalers[0]\ns._loss_scale, s._scale_seq_len = 2.0**23, 3"


def test_the_cap_of_the_scale(launcher: Launcher, tmp_path: Path) -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**23, growth_interval=3)'
    outcome = verify(launcher, tmp_path, (apex(more=NEAR_THE_CAP), STEP), (scaler, NATIVE))
    assert outcome.exit_code == 0, outcome.verdicts
    assert "Apex stops at 1.67772e+07" in announced(outcome, "scale")


def test_growth_without_the_cap_must_agree(launcher: Launcher, tmp_path: Path) -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**13, growth_interval=4)'
    near = NEAR_THE_CAP.replace("2.0**23", "2.0**13")
    outcome = verify(launcher, tmp_path, (apex(more=near), STEP), (scaler, NATIVE))
    assert outcome.exit_code == 1
    assert "grows after 4 clean steps, Apex's after 3" in outcome.verdicts[1].summary


ACCUMULATED = (STEP.replace("optimizer.zero_grad()\n", "") + "optimizer.zero_grad()\n").replace(
    "optimizer.step()\noptimizer.zero_grad()", "if step % 2:\n    optimizer.step()\n    optimizer.zero_grad()"
)
ACCUMULATED_NATIVE = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(x).float().square().mean() * 1e-6
scaler.scale(loss).backward()
if step % 2:
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("interval", "says"), [(2000, "GradScaler counts steps: 2000"), (1000, "2000 // 2 steps")])
def test_growth_under_accumulation(launcher: Launcher, tmp_path: Path, interval: int, says: str) -> None:
    scaler = f'scaler = torch.amp.GradScaler("cuda", growth_interval={interval})'
    outcome = verify(launcher, tmp_path, (apex(), ACCUMULATED), (scaler, ACCUMULATED_NATIVE))
    assert outcome.exit_code == 0, outcome.verdicts
    assert says in announced(outcome, "scale")


def test_another_interval_under_accumulation_disagrees(launcher: Launcher, tmp_path: Path) -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", growth_interval=500)'
    outcome = verify(launcher, tmp_path, (apex(), ACCUMULATED), (scaler, ACCUMULATED_NATIVE))
    # 2000 is what most people write; 500 is nobody's translation of 2000 backward passes
    assert outcome.exit_code == 1


@pytest.mark.parametrize("update", ["scaler.update(128.0)", "scaler.update()"])
def test_a_static_scale(launcher: Launcher, tmp_path: Path, update: str) -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", init_scale=128.0)'
    native = NATIVE.replace("scaler.update()", update)
    outcome = verify(launcher, tmp_path, (apex(options=", loss_scale=128.0"), STEP), (scaler, native))
    assert outcome.exit_code == (0 if "128" in update else 1)


def test_a_static_scale_of_one_needs_no_scaler(launcher: Launcher, tmp_path: Path) -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=False)'
    outcome = verify(launcher, tmp_path, (apex(options=", loss_scale=1.0"), STEP), (scaler, NATIVE))
    assert outcome.exit_code == 0, outcome.verdicts


def test_gelu_is_named(launcher: Launcher, tmp_path: Path) -> None:
    model = "nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))"
    scaler = 'scaler = torch.amp.GradScaler("cuda")'
    outcome = verify(launcher, tmp_path, (apex(), STEP), (scaler, NATIVE), model)
    assert outcome.exit_code == 0, outcome.verdicts
    assert "Apex O1 computes gelu in fp32" in announced(outcome, "precision")


BFLOAT16 = NATIVE.replace("float16", "bfloat16").replace("scaler.scale(loss).backward()", "loss.backward()")
BFLOAT16 = BFLOAT16.replace("scaler.step(optimizer)", "optimizer.step()").replace("scaler.update()", "")


def test_bfloat16_that_was_asked_for_is_announced(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, (apex(), STEP), ("", BFLOAT16), dtype="bfloat16")
    assert outcome.exit_code == 0, outcome.verdicts
    assert "bfloat16 has the exponents of fp32" in announced(outcome, "scale")
    assert "8 significant bits where float16 has 11" in announced(outcome, "precision")


@pytest.mark.parametrize("scaled", [True, False])
def test_bfloat16_that_nobody_asked_for_disagrees(launcher: Launcher, tmp_path: Path, scaled: bool) -> None:
    native = (
        ('scaler = torch.amp.GradScaler("cuda")', NATIVE.replace("float16", "bfloat16")) if scaled else ("", BFLOAT16)
    )
    outcome = verify(launcher, tmp_path, (apex(), STEP), native)
    verdict = next(v for v in outcome.verdicts if v.name == "precision")
    assert verdict.status == "disagrees"
    assert verdict.summary == "training: linear in bfloat16, in the original in float16"
    assert "bfloat16 in place of float16" in verdict.causes[0]
    assert "--dtype bfloat16" in verdict.causes[0]


def test_float16_where_bfloat16_was_asked_for_disagrees(launcher: Launcher, tmp_path: Path) -> None:
    native = ('scaler = torch.amp.GradScaler("cuda")', NATIVE)
    outcome = verify(launcher, tmp_path, (apex(), STEP), native, dtype="bfloat16")
    verdict = next(v for v in outcome.verdicts if v.name == "precision")
    assert verdict.summary == "training: bfloat16 was asked for; the migrated program computes linear in float16"


def test_clipping_inside_scale_loss_disagrees_and_is_named(launcher: Launcher, tmp_path: Path) -> None:
    clip = "nn.utils.clip_grad_norm_(model.parameters(), 1e-8)\n"
    before = STEP.replace("scaled.backward()\n", f"scaled.backward()\n    {clip}")
    after = NATIVE.replace("scaler.step", f"scaler.unscale_(optimizer)\n{clip}scaler.step")
    outcome = verify(launcher, tmp_path, (apex(), before), ('scaler = torch.amp.GradScaler("cuda")', after))
    assert outcome.exit_code == 1
    assert "clips inside `scale_loss`" in announced(outcome, "lockstep")


def test_a_loss_scaled_by_hand(launcher: Launcher, tmp_path: Path) -> None:
    body = """
    optimizer.zero_grad()
    loss = model(x).float().square().mean() * 64.0
    loss.backward()
    for p in model.parameters():
        p.grad.div_(64.0)
    optimizer.step()
    """
    native = NATIVE.replace(" * 1e-6", "").replace("scaler.update()", "scaler.update(64.0)")
    outcome = verify(launcher, tmp_path, ("", body), ('scaler = torch.amp.GradScaler("cuda", init_scale=64.0)', native))
    assert "the original multiplies its loss by 64 itself" in outcome.notes
    assert {v.name: v.status for v in outcome.verdicts}["scale"] == "agrees"
