"""Several optimizers, scalers or trainings in one program; and what is no part of any training."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.programs import prepare

HEAD = "import torch, torch.nn as nn, torch.nn.functional as F\ntorch.manual_seed(0)\n"
AUTOCAST = 'torch.autocast("cuda", dtype=torch.float16)'


def verify(launcher: Launcher, folder: Path, original: str, migrated: str, steps: int = 20) -> Outcome:
    for side, text in (("original", original), ("migrated", migrated)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(HEAD + text)
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("case", *programs, steps=steps, reruns=1, fp32=False, device="cpu", apex="shim")
    return judge(case, launcher, folder / "runs")


def told(outcome: Outcome) -> dict[str, str]:
    return {v.name: v.status for v in outcome.verdicts}


GAN = """
{imports}
G, D = nn.Linear(4, 6).cuda(), nn.Linear(6, 1).cuda()
optD, optG = torch.optim.SGD(D.parameters(), lr=0.1), torch.optim.SGD(G.parameters(), lr=0.1)
{setup}
for i in range(20):
    optD.zero_grad()
    with {region}:
        real = D(torch.randn(8, 6).cuda() + 1).float().mean() * 0.01
    {real}
    with {region}:
        fake = G(torch.randn(8, 4).cuda())
        cheat = D(fake.detach()).float().mean() * {factor}
    {cheat}
    {step_d}
    optG.zero_grad()
    with {region}:
        praise = -D(fake).float().mean() * 0.01
    {praise}
    {step_g}
"""


def gan(factor: str) -> tuple[str, str]:
    """A generator that learns from the fakes its discriminator was shown; a loss of `factor` makes one scale overflow."""
    scaled = "with amp.scale_loss({0}, {1}, loss_id={2}) as s: s.backward()".format
    native = "scaler{1}.scale({0}).backward()".format
    step = "scaler{0}.step(opt{0}); scaler{0}.update()".format
    original = GAN.format(
        imports="import contextlib\nfrom apex import amp", region="contextlib.nullcontext()", factor=factor,
        setup='[D, G], [optD, optG] = amp.initialize([D, G], [optD, optG], opt_level="O1", num_losses=3, verbosity=0)',
        real=scaled("real", "optD", 0), cheat=scaled("cheat", "optD", 1), praise=scaled("praise", "optG", 2),
        step_d="optD.step()", step_g="optG.step()",
    )  # fmt: skip
    migrated = GAN.format(
        imports="", region=AUTOCAST, factor=factor,
        setup='scalerD, scalerG = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")',
        real=native("real", "D"), cheat=native("cheat", "D"), praise=native("praise", "G"),
        step_d=step("D"), step_g=step("G"),
    )  # fmt: skip
    return original, migrated


def test_a_gan_in_lockstep(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, *gan("0.01"))
    assert set(told(outcome).values()) == {"agrees"}, outcome.verdicts
    assert outcome.verdicts[1].announced == []


def test_a_scale_for_each_loss_is_named_and_lockstep_not_misled(launcher: Launcher, tmp_path: Path) -> None:
    """Apex halves the scale of the loss that overflowed, GradScaler that of both: from there on other steps are
    skipped. From equal states the two still agree."""
    outcome = verify(launcher, tmp_path, *gan("(30.0 if 5 < i < 9 else 0.01)"))
    verdicts = {v.name: v for v in outcome.verdicts}
    assert verdicts["lockstep"].status == "agrees", verdicts["lockstep"].evidence
    assert verdicts["scale"].status == "agrees", verdicts["scale"].evidence
    assert "Apex kept a scale for each loss" in " ".join(verdicts["scale"].announced)
    announced = " ".join(a for v in outcome.verdicts for a in v.announced)
    assert "leaves the iteration" not in announced  # the step was skipped in the iteration of its overflow


TRAININGS = """
{imports}
def train(lr):
    torch.manual_seed(1)
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    {setup}
    for i in range(6):
        optimizer.zero_grad()
        with {region}:
            loss = model(torch.randn(8, 4).cuda()).float().square().mean()
        {backward}
        {step}
for lr in (0.1, 0.2, 0.3):
    train(lr)
"""


def test_trainings_one_after_another(launcher: Launcher, tmp_path: Path) -> None:
    """Apex keeps the optimizers it was given alive; natively those of earlier trainings are gone."""
    original = TRAININGS.format(
        imports="import contextlib\nfrom apex import amp", region="contextlib.nullcontext()",
        setup='model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)',
        backward="with amp.scale_loss(loss, optimizer) as s: s.backward()", step="optimizer.step()",
    )  # fmt: skip
    migrated = TRAININGS.format(
        imports="", region=AUTOCAST, setup='scaler = torch.amp.GradScaler("cuda")',
        backward="scaler.scale(loss).backward()", step="scaler.step(optimizer); scaler.update()",
    )  # fmt: skip
    outcome = verify(launcher, tmp_path, original, migrated)
    assert outcome.exit_code == 0, outcome.verdicts
    assert len(outcome.verdicts[0].data["steps"]) > 8


LABELS = """
{imports}
model = nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{setup}
rule = torch.randn(4, 3).cuda()
for i in range(8):
    x = torch.randn(8, 4).cuda()
    y = (x @ rule).argmax(1)
    optimizer.zero_grad()
    with {region}:
        loss = F.cross_entropy(model(x), y)
    {backward}
    {step}
"""


@pytest.mark.parametrize(("region", "status"), [(AUTOCAST, "agrees"), ("contextlib.nullcontext()", "disagrees")])
def test_labels_computed_outside_the_region(launcher: Launcher, tmp_path: Path, region: str, status: str) -> None:
    """Apex cast them too; that is no part of the training. The model is."""
    original = LABELS.format(
        imports="import contextlib\nfrom apex import amp", region="contextlib.nullcontext()",
        setup='model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)',
        backward="with amp.scale_loss(loss, optimizer) as s: s.backward()", step="optimizer.step()",
    )  # fmt: skip
    migrated = LABELS.format(
        imports="import contextlib", region=region, setup='scaler = torch.amp.GradScaler("cuda")',
        backward="scaler.scale(loss).backward()", step="scaler.step(optimizer); scaler.update()",
    )  # fmt: skip
    outcome = verify(launcher, tmp_path, original, migrated, steps=50)
    assert told(outcome)["precision"] == status, outcome.verdicts
    if status == "agrees":  # a program that ends before the middle of the steps asked for is resumed earlier
        assert told(outcome)["checkpoint"] == "agrees"
        assert "after step 2 equal bit for bit" in outcome.verdicts[4].summary


def test_a_file_that_does_not_parse_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("from apex import amp\n")
    (project / "old.py").write_text('print "two"\n')
    pair = prepare(project / "train.py", tmp_path / "work", cwd=project)
    assert any(note.startswith("old.py:1 AMP004") for note in pair.notes)
    assert (pair.migrated.cwd / "old.py").read_text() == 'print "two"\n'
