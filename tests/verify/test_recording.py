"""The record says what the program itself saw: every signal against values the program writes down."""

from __future__ import annotations

import json
import math
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec

HEAD = """
import json, torch, torch.nn as nn, torch.nn.functional as F
seen = []
def note(**values):
    seen.append({k: v.item() if isinstance(v, torch.Tensor) else v for k, v in values.items()})
    json.dump(seen, open("seen.json", "w"))
def grad_norm(optimizer):
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    return torch.cat([g.float().flatten() for g in grads]).norm()
torch.manual_seed(0)
"""


def record(
    launcher: Launcher, folder: Path, code: str, *, side: str = "migrated", steps: int = 100, **options: Any
) -> tuple[Recording, list[dict[str, Any]]]:
    (folder / "train.py").write_text(HEAD + dedent(code))
    spec = RunSpec(
        str(folder / "train.py"), (), str(folder), side, str(folder / "out"), steps, "shim", "cpu", **options  # type: ignore[arg-type]
    )  # fmt: skip
    (recording,) = launcher.run([spec])
    assert recording.trouble is None
    return recording, json.loads((folder / "seen.json").read_text())


NATIVE = """
model = nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3)
for step in range(8):
    losses = []
    for micro in range(2):
        x = torch.randn(5, 4).cuda() * (1e30 if step == 2 and micro == 0 else 1)
        loss = model(x).square().mean() / 2
        losses.append(loss.item())
        scale, tracker = scaler.get_scale(), scaler._get_growth_tracker()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    note(losses=losses, scale=scale, tracker=tracker, clip=norm, norm=grad_norm(optimizer),
         lr=optimizer.param_groups[0]["lr"])
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    scheduler.step()
note(scale=scaler.get_scale(), tracker=scaler._get_growth_tracker())
"""


def test_native_accumulation_clip_overflow_and_schedule(launcher: Launcher, tmp_path: Path) -> None:
    recording, seen = record(launcher, tmp_path, NATIVE)
    assert [a.skipped for a in recording.attempts] == [i == 2 for i in range(8)]
    for attempt, saw in zip(recording.attempts, seen, strict=False):
        assert [b.loss for b in attempt.backwards] == pytest.approx(saw["losses"], nan_ok=True)
        assert [(b.scale, b.tracker) for b in attempt.backwards] == [(saw["scale"], saw["tracker"])] * 2
        assert attempt.clips[-1].norm == pytest.approx(saw["clip"], nan_ok=True)
        assert attempt.clips[-1].limit == 0.5
        assert attempt.lr == (saw["lr"],)
        assert attempt.unscales == 1
        assert attempt.updates == [None]
        if not attempt.skipped:
            assert attempt.grad_norm == pytest.approx(saw["norm"])
    assert (recording.final[0]["scale"], recording.final[0]["tracker"]) == (seen[-1]["scale"], seen[-1]["tracker"])


def test_the_gradient_is_the_one_the_optimizer_sees(launcher: Launcher, tmp_path: Path) -> None:
    """Without unscale_ the scaler unscales inside step(), after the program has looked."""
    recording, seen = record(
        launcher,
        tmp_path,
        """
        model = nn.Linear(4, 3).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda", init_scale=64.0)
        for step in range(3):
            scaler.scale(model(torch.randn(5, 4).cuda()).sum()).backward()
            note(norm=grad_norm(optimizer))
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    for attempt, saw in zip(recording.attempts, seen, strict=True):
        assert attempt.grad_norm == pytest.approx(saw["norm"] / 64.0)


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_apex_signals(launcher: Launcher, tmp_path: Path, level: str) -> None:
    recording, seen = record(
        launcher,
        tmp_path,
        f"""
        from apex import amp
        model = nn.Linear(4, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="{level}", loss_scale="dynamic", verbosity=0)
        scaler = amp._amp_state.loss_scalers[0]
        for step in range(6):
            x = torch.randn(5, 4).cuda() * (1e30 if step == 2 else 1)
            loss = model(x).float().square().mean()
            scale, tracker = scaler.loss_scale(), scaler._unskipped
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            norm = nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)
            note(loss=loss.item(), scale=scale, tracker=tracker, clip=norm, norm=grad_norm(optimizer))
            optimizer.step()
            optimizer.zero_grad()
        note(scale=scaler.loss_scale(), tracker=scaler._unskipped)
        """,
        side="original",
    )
    assert recording.opt_level == level
    assert [a.skipped for a in recording.attempts] == [i == 2 for i in range(6)]
    for attempt, saw in zip(recording.attempts, seen, strict=False):
        (backward,) = attempt.backwards
        assert backward.loss == pytest.approx(saw["loss"], nan_ok=True)
        assert (backward.scale, backward.tracker) == (saw["scale"], saw["tracker"])
        assert attempt.clips[-1].norm == pytest.approx(saw["clip"], nan_ok=True)
        assert attempt.dtypes == ("float32",)
        if not attempt.skipped:
            assert attempt.grad_norm == pytest.approx(saw["norm"])
    assert (recording.final[0]["scale"], recording.final[0]["tracker"]) == (seen[-1]["scale"], seen[-1]["tracker"])


def test_two_optimizers_and_two_losses_belong_together(launcher: Launcher, tmp_path: Path) -> None:
    recording, seen = record(
        launcher,
        tmp_path,
        """
        d, g = nn.Linear(4, 1).cuda(), nn.Linear(2, 4).cuda()
        opt_d, opt_g = torch.optim.Adam(d.parameters()), torch.optim.SGD(g.parameters(), lr=0.1)
        scaler_d, scaler_g = torch.amp.GradScaler("cuda", init_scale=8.0), torch.amp.GradScaler("cuda", init_scale=4.0)
        for step in range(4):
            fake = g(torch.randn(5, 2).cuda())
            loss_d = d(fake.detach()).square().mean()
            scaler_d.scale(loss_d).backward()
            scaler_d.step(opt_d); scaler_d.update(); opt_d.zero_grad()
            loss_g = -d(fake).mean()
            scaler_g.scale(loss_g).backward()
            scaler_g.step(opt_g); scaler_g.update(); opt_g.zero_grad()
            note(d=loss_d, g=loss_g)
        """,
    )
    assert [a.optimizer for a in recording.attempts] == [0, 1] * 4
    assert [a.name for a in recording.attempts[:2]] == ["Adam", "SGD"]
    assert [a.backwards[0].scale for a in recording.attempts] == [8.0, 4.0] * 4
    assert [a.loss for a in recording.attempts] == pytest.approx([v for saw in seen for v in (saw["d"], saw["g"])])


def test_a_loss_derived_from_a_scaled_one(launcher: Launcher, tmp_path: Path) -> None:
    recording, seen = record(
        launcher,
        tmp_path,
        """
        model = nn.Linear(4, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
        for step in range(2):
            loss = model(torch.randn(5, 4).cuda()).square().mean()
            torch.autograd.backward((scaler.scale(loss) + 0.0) / 4)
            note(loss=loss / 4)
            scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
        """,
    )
    assert [a.loss for a in recording.attempts] == pytest.approx([saw["loss"] for saw in seen])
    assert [a.backwards[0].scalings for a in recording.attempts] == [1, 1]


def test_census_by_phase(launcher: Launcher, tmp_path: Path) -> None:
    recording, _ = record(
        launcher,
        tmp_path,
        """
        model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, 3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(5, 1, 8).cuda(), torch.zeros(5, dtype=torch.long).cuda()
        for step in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            model(x)
        note(done=1)
        """,
        census=True,
    )
    assert recording.census["train"]["conv"] == {"float16": 2}
    assert recording.census["train"]["linear"] == {"float16": 2}
    assert recording.census["train"]["layer_norm"] == {"float32": 2}
    assert recording.census["train"]["nll_loss"] == {"float32": 2}
    assert recording.census["eval"]["linear"] == {"float32": 1}


def test_a_forced_run_follows_the_states_it_was_given(launcher: Launcher, tmp_path: Path) -> None:
    """From a capture every later step is the same bit for bit, whatever happened before it."""
    code = """
    import sys
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(16, 4)).square().mean()
        if SPOILED and step == 2:
            loss = loss * 100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(loss=loss)
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, _ = record(launcher, tmp_path / "a", code.replace("SPOILED", "False"), captures=(0, 4))
    forced, _ = record(
        launcher, tmp_path / "b", code.replace("SPOILED", "True"), force_from=str(tmp_path / "a" / "out")
    )
    assert forced.losses()[:2] == whole.losses()[:2]
    assert forced.losses()[3] != whole.losses()[3]
    assert forced.losses()[4:] == whole.losses()[4:]


def test_noise_is_of_fp16_size_and_leaves_the_random_numbers(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        x = torch.randn(16, 4)
        loss = (model(x) + 3).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        note(x=x.sum(), loss=loss)
    """
    for name in "ab":
        (tmp_path / name).mkdir()
    plain, saw = record(launcher, tmp_path / "a", code)
    noisy, saw_noisy = record(launcher, tmp_path / "b", code, noise=2.0**-10)
    assert [s["x"] for s in saw] == [s["x"] for s in saw_noisy]
    gaps = [abs(a - b) / a for a, b in zip(plain.losses(), noisy.losses(), strict=True)]
    assert all(0 < gap < 2.0**-8 for gap in gaps)
    assert all(math.isfinite(loss) for loss in noisy.losses())


def test_of_many_checkpoints_the_nearest_is_kept(launcher: Launcher, tmp_path: Path) -> None:
    recording, _ = record(
        launcher,
        tmp_path,
        """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(9):
            torch.save({"optimizer": optimizer.state_dict(), "step": step}, "state.pt")
            torch.save([1, 2], "no-state.pt")
            optimizer.zero_grad(); model(torch.randn(16, 4)).sum().backward(); optimizer.step()
        note(done=1)
        """,
        keep_save_near=4,
    )
    import torch

    (kept,) = (s for s in recording.saves if s["kept"] and Path(s["kept"]).exists())
    assert kept["window"] == 4
    assert torch.load(kept["kept"], weights_only=True)["step"] == 4
    assert sorted(p.name for p in recording.folder.glob("window_*.pt")) == ["window_4.pt"]
    assert len(recording.saves) == 18
