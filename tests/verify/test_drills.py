"""What fifty good steps never show is forced on both sides: faults behind it are red, right programs agree."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from amp_migrate.verify.case import Case, Program, VerifyError
from amp_migrate.verify.drills import plan
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.report import text
from amp_migrate.verify.verdicts.verdict import Verdict

HEAD = """
import math, sys, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model, other = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda() for _ in range(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
second = torch.optim.Adam(other.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
{setup}
for step in range(10):
    x, y = torch.randn(8, 4).cuda(), torch.randn(8, 2).cuda()
{body}
"""
APEX = "from apex import amp\nmodel, optimizer = amp.initialize(model, optimizer, opt_level='{level}', verbosity=0)\n"
STEP = """
loss = F.mse_loss(model(x).float(), y) / 256
optimizer.zero_grad()
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
optimizer.step()
scheduler.step()
"""
SCALER = "scaler = torch.amp.GradScaler('cuda')\n"
NATIVE = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = F.mse_loss(model(x).float(), y) / 256
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
scheduler.step()
"""


def verify(
    launcher: Launcher, folder: Path, body: str, native: str, drills: str, *, level: str = "O1", setup: str = "",
    scaler: str = SCALER,
) -> Outcome:  # fmt: skip
    sides = {"original": (setup or APEX.format(level=level), body), "migrated": (scaler, native)}
    for side, (first, step) in sides.items():
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(HEAD.format(setup=first, body=indent(dedent(step), " " * 4)))
    programs = [Program(folder / side / "train.py", folder / side) for side in sides]
    case = Case("case", *programs, steps=10, reruns=1, fp32=False, device="cpu", apex="shim", drills=drills)
    return judge(case, launcher, folder / "runs")


def drill(outcome: Outcome, name: str) -> Verdict:
    return next(v for v in outcome.verdicts if v.name == f"drill: {name}")


def red(outcome: Outcome) -> list[str]:
    return [v.name for v in outcome.verdicts if v.status == "disagrees"]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_right_program_skips_as_apex_does(launcher: Launcher, tmp_path: Path, level: str) -> None:
    outcome = verify(launcher, tmp_path, STEP, NATIVE, "all", level=level)
    assert outcome.exit_code == 0, (outcome.trouble, [v for v in outcome.verdicts if v.status != "agrees"])
    for name in ("overflow", "first-overflow", "nan-loss"):
        assert "skipped on both sides" in drill(outcome, name).summary
    assert drill(outcome, "one-optimizer").status == "skipped"
    assert "not drilled: one-optimizer (there is one optimizer)" in text.render(outcome)


def test_a_plain_step_after_unscaling_is_named(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, STEP, NATIVE.replace("scaler.step(optimizer)", "optimizer.step()"), "overflow")
    assert red(outcome) == ["drill: overflow"]
    assert "reach the weights in the migrated program; Apex skips this step" in drill(outcome, "overflow").summary
    assert "`optimizer.step()` stands where `scaler.step(optimizer)` belongs" in drill(outcome, "overflow").causes[0]


def test_a_scheduler_held_back_is_seen(launcher: Launcher, tmp_path: Path) -> None:
    held = NATIVE.replace("scaler.step(o", "before = scaler.get_scale()\nscaler.step(o").replace(
        "scheduler.step()", "if scaler.get_scale() >= before:\n    scheduler.step()"
    )
    outcome = verify(launcher, tmp_path, STEP, held, "overflow")
    assert red(outcome) == ["drill: overflow"]
    assert "learning rate" in drill(outcome, "overflow").summary


def test_without_an_update_the_error_is_explained(launcher: Launcher, tmp_path: Path) -> None:
    lazy = NATIVE.replace("nn.utils.clip", "norm = nn.utils.clip").replace(
        "scaler.update()", "if norm.isfinite():\n    scaler.update()"
    )
    verdict = drill(verify(launcher, tmp_path, STEP, lazy, "overflow"), "overflow")
    assert verdict.status == "disagrees"
    assert "unscale_() is being called after step()" in verdict.summary
    assert verdict.causes == ["`scaler.update()` is missing after `scaler.step`"]


ACCUMULATED = """
loss = F.mse_loss(model(x).float(), y) / 512
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
if step % 2:
    optimizer.step()
    optimizer.zero_grad()
"""
ACCUMULATED_NATIVE = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = F.mse_loss(model(x).float(), y) / 512
scaler.scale(loss).backward()
if step % 2:
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def test_an_overflow_in_the_middle_of_an_accumulation(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, ACCUMULATED, ACCUMULATED_NATIVE, "overflow,accumulation-overflow")
    assert outcome.exit_code == 0, red(outcome)
    assert "skipped on both sides" in drill(outcome, "accumulation-overflow").summary


def test_gradients_hidden_in_the_middle_of_an_accumulation(launcher: Launcher, tmp_path: Path) -> None:
    clean = "for p in model.parameters():\n    p.grad.nan_to_num_(0.0, 0.0, 0.0)\nif step % 2:"
    wrong = ACCUMULATED_NATIVE.replace("if step % 2:", clean)
    outcome = verify(launcher, tmp_path, ACCUMULATED, wrong, "accumulation-overflow")
    assert red(outcome) == ["drill: accumulation-overflow"]
    assert "takes a step in which gradients had overflowed" in drill(outcome, "accumulation-overflow").summary


TWO = (
    "from apex import amp\n[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second],\n"
)
TWO += "    opt_level='O1', verbosity=0)\n"
ONE_LOSS = """
optimizer.zero_grad()
second.zero_grad()
loss = (F.mse_loss(model(x).float(), y) + F.mse_loss(other(x).float(), y)) / 256
with amp.scale_loss(loss, [optimizer, second]) as scaled:
    scaled.backward()
optimizer.step()
second.step()
"""
ONE_LOSS_NATIVE = """
optimizer.zero_grad()
second.zero_grad()
with torch.autocast("cuda", dtype=torch.float16):
    loss = (F.mse_loss(model(x).float(), y) + F.mse_loss(other(x).float(), y)) / 256
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.step(second)
scaler.update()
"""
TWO_LOSSES = """
for o, m in ((optimizer, model), (second, other)):
    o.zero_grad()
    loss = F.mse_loss(m(x).float(), y) / 256
    with amp.scale_loss(loss, o) as scaled:
        scaled.backward()
    o.step()
"""
TWO_LOSSES_NATIVE = """
for o, m in ((optimizer, model), (second, other)):
    o.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(m(x).float(), y) / 256
    scaler.scale(loss).backward()
    scaler.step(o)
scaler.update()
"""


@pytest.mark.parametrize("bodies", [(ONE_LOSS, ONE_LOSS_NATIVE), (TWO_LOSSES, TWO_LOSSES_NATIVE)])
def test_an_overflow_in_one_of_two_optimizers(launcher: Launcher, tmp_path: Path, bodies: tuple[str, str]) -> None:
    outcome = verify(launcher, tmp_path, *bodies, "overflow,one-optimizer", setup=TWO)
    assert outcome.exit_code == 0, [(v.name, v.evidence) for v in outcome.verdicts]
    assert drill(outcome, "one-optimizer").status == "agrees"
    known = " ".join(drill(outcome, "one-optimizer").announced)
    assert ("GradScaler skips only the one whose gradients are not finite" in known) == (bodies[0] is ONE_LOSS)


def test_a_plain_step_of_the_second_optimizer(launcher: Launcher, tmp_path: Path) -> None:
    wrong = ONE_LOSS_NATIVE.replace("scaler.step(second)", "scaler.unscale_(second)\nsecond.step()")
    outcome = verify(launcher, tmp_path, ONE_LOSS, wrong, "one-optimizer", setup=TWO)
    assert red(outcome) == ["drill: one-optimizer"]


STOPPED = "optimizer.zero_grad()\nif not math.isfinite(loss.item()):\n    {}"


@pytest.mark.parametrize("reaction", ["continue", "raise ValueError('no loss')", "sys.exit(1)"])
def test_programs_that_look_at_their_loss(launcher: Launcher, tmp_path: Path, reaction: str) -> None:
    before, after = (body.replace("optimizer.zero_grad()", STOPPED.format(reaction)) for body in (STEP, NATIVE))
    outcome = verify(launcher, tmp_path, before, after, "nan-loss")
    assert outcome.exit_code == 0, red(outcome)
    says = {"continue": "is left out or taken as in the original"}.get(reaction, "both programs end here")
    assert says in drill(outcome, "nan-loss").summary


def test_a_step_without_a_backward_raises(launcher: Launcher, tmp_path: Path) -> None:
    def guarded(body: str, backward: str) -> str:
        return body.replace(backward, f"if math.isfinite(loss.item()):\n    {indent(backward, '    ').strip()}")

    before = guarded(STEP, "with amp.scale_loss(loss, optimizer) as scaled:\n    scaled.backward()")
    after = guarded(NATIVE, "scaler.scale(loss).backward()").replace("scaler.unscale_(optimizer)\n", "")
    outcome = verify(launcher, tmp_path, before.replace("nn.utils", "#"), after.replace("nn.utils", "#"), "nan-loss")
    assert red(outcome) == ["drill: nan-loss"]
    assert "No inf checks were recorded" in drill(outcome, "nan-loss").summary


def test_a_static_scale_is_told_apart(launcher: Launcher, tmp_path: Path) -> None:
    setup = APEX.format(level="O1").replace("verbosity=0", "verbosity=0, loss_scale=128.0")
    native = NATIVE.replace("scaler.update()", "scaler.update(128.0)")
    outcome = verify(
        launcher, tmp_path, STEP, native, "overflow", setup=setup, scaler=SCALER.replace("'cuda'", "'cuda', 128.0")
    )
    assert outcome.exit_code == 0, red(outcome)
    assert "a static Apex scale never skips a step" in " ".join(drill(outcome, "overflow").announced)


@pytest.mark.parametrize(
    ("interval", "says"), [(2000, "Apex counts backward passes, GradScaler steps"), (1000, ""), (500, None)]
)
def test_growth_under_accumulation(launcher: Launcher, tmp_path: Path, interval: int, says: str | None) -> None:
    scaler = SCALER.replace("'cuda'", f"'cuda', growth_interval={interval}")
    outcome = verify(launcher, tmp_path, ACCUMULATED, ACCUMULATED_NATIVE, "growth", scaler=scaler)
    verdict = drill(outcome, "growth")
    assert verdict.status == ("disagrees" if says is None else "agrees")
    assert (says or "") in " ".join(verdict.announced)
    assert says or not verdict.announced


def test_a_scale_that_grows_by_another_factor(launcher: Launcher, tmp_path: Path) -> None:
    scaler = SCALER.replace("'cuda'", "'cuda', growth_factor=1.001")
    outcome = verify(launcher, tmp_path, STEP, NATIVE, "overflow,growth", scaler=scaler)
    assert red(outcome) == ["drill: growth"]
    assert drill(outcome, "growth").summary == "the scale grows by 1.001; Apex doubles it"


def test_a_plain_backward_after_the_scaled_one_is_none_that_apex_looks_at(launcher: Launcher, tmp_path: Path) -> None:
    plain = "(model[0].weight.float() ** 2).sum().backward()\n{}"
    before = STEP.replace("nn.utils", plain.format("nn.utils"))
    after = NATIVE.replace("nn.utils", plain.format("nn.utils"))
    outcome = verify(launcher, tmp_path, before, after, "overflow,first-overflow")
    assert outcome.exit_code == 0, [(v.name, v.evidence) for v in outcome.verdicts]
    assert "skipped on both sides" in drill(outcome, "overflow").summary


PERTURBED = """
moved = x.clone().requires_grad_()
loss = F.mse_loss(model(moved).float(), y) / 256
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
x = x + 0.1 * torch.nan_to_num(moved.grad).sign()
{zero}
loss = F.mse_loss(model(x).float(), y) / 256
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
optimizer.step()
optimizer.zero_grad()
"""
PERTURBED_NATIVE = """
moved = x.clone().requires_grad_()
with torch.autocast("cuda", dtype=torch.float16):
    loss = F.mse_loss(model(moved).float(), y) / 256
scaler.scale(loss).backward()
x = x + 0.1 * torch.nan_to_num(moved.grad).sign()
{zero}
with torch.autocast("cuda", dtype=torch.float16):
    loss = F.mse_loss(model(x).float(), y) / 256
scaler.scale(loss).backward()
{mend}
scaler.step(optimizer)
scaler.update()
optimizer.zero_grad()
"""


@pytest.mark.parametrize("zero", ["optimizer.zero_grad()", "model.zero_grad()"])
def test_an_overflow_that_is_zeroed_before_the_step(launcher: Launcher, tmp_path: Path, zero: str) -> None:
    after = PERTURBED_NATIVE.format(zero=zero, mend="")
    outcome = verify(launcher, tmp_path, PERTURBED.format(zero=zero), after, "overflow,accumulation-overflow,nan-loss")
    assert outcome.exit_code == 0, red(outcome)
    for name in ("accumulation-overflow", "nan-loss"):
        verdict = drill(outcome, name)
        assert verdict.summary.endswith("is taken, and the training goes on")
        assert "zeroed before the step, which Apex skips all the same" in " ".join(verdict.announced)
    assert "skipped on both sides" in drill(outcome, "overflow").summary


def test_an_overflow_that_is_mended_is_none_that_is_zeroed(launcher: Launcher, tmp_path: Path) -> None:
    mend = "for p in model.parameters():\n    p.grad.nan_to_num_(0, 0, 0)"
    after = PERTURBED_NATIVE.format(zero="", mend=mend)
    outcome = verify(launcher, tmp_path, PERTURBED.format(zero=""), after, "accumulation-overflow")
    assert red(outcome) == ["drill: accumulation-overflow"]


def test_names_are_checked() -> None:
    assert plan.wanted("none") == ()
    assert plan.wanted("overflow, nan-loss") == ("overflow", "nan-loss")
    with pytest.raises(VerifyError, match="there is no drill 'flood'"):
        plan.wanted("flood")
