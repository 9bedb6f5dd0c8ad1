"""Drills that call the programs otherwise: without mixed precision, evaluating alone, with short epochs and a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.verdicts.verdict import Verdict

HEAD = """
import argparse, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--opt_level", default="O1")
parser.add_argument("-e", "--evaluate", action="store_true")
parser.add_argument("--resume")
args = parser.parse_args()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(640, 4), torch.randn(640, 2)), batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
"""
APEX = (
    HEAD
    + """
from apex import amp
model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level, verbosity=0)
def evaluate():
    model.eval()
    with torch.no_grad():
        print(sum(F.mse_loss(model(x.cuda()).float(), y.cuda()).item() for x, y in loader))
    model.train()
if args.evaluate:
    evaluate()
    raise SystemExit
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    amp.load_state_dict(state["amp"])
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.cuda()).float(), y.cuda()) / 256
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    evaluate()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}
    torch.save(state, "last.pt")
"""
)
NATIVE = (
    HEAD
    + """
on = args.opt_level != "O0"
scaler = torch.amp.GradScaler("cuda", enabled=on)
def evaluate():
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=on):
        print(sum(F.mse_loss(model(x.cuda()).float(), y.cuda()).item() for x, y in loader))
    model.train()
if args.evaluate:
    evaluate()
    raise SystemExit
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=on):
            loss = F.mse_loss(model(x.cuda()).float(), y.cuda()) / 256
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    evaluate()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    torch.save(state, "last.pt")
"""
)


EVALUATED = 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=on):'


def verify(launcher: Launcher, folder: Path, native: str, drills: str, original: str = APEX, **more: str) -> Outcome:
    for side, text in (("original", original), ("migrated", native)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(text)
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case(
        "case", *programs, steps=6, reruns=1, fp32=False, device="cpu", apex="shim", drills=drills,
        resume_args="--resume {checkpoint}", **more,
    )  # fmt: skip
    return judge(case, launcher, folder / "runs")


def drill(outcome: Outcome, name: str) -> Verdict:
    return next(v for v in outcome.verdicts if v.name == f"drill: {name}")


def red(outcome: Outcome) -> list[str]:
    return [v.name for v in outcome.verdicts if v.status == "disagrees"]


def test_a_right_migration_agrees_in_each_mode(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path, NATIVE, "resume,switch-off,evaluation")
    assert outcome.exit_code == 0, (outcome.trouble, [(v.name, v.evidence) for v in outcome.verdicts])
    # six steps end before the first epoch does: only the drill reaches what stands behind it
    assert "neither program saved" in " ".join(v for w in outcome.verdicts[:5] for v in w.announced)
    assert drill(outcome, "resume").summary == (
        "epochs of 3 batches: evaluated, saved, own checkpoint: 5 steps after step 3 equal bit for bit"
    )
    assert drill(outcome, "switch-off").summary == "6 steps in fp32 with `--opt_level O0`: equal"
    assert drill(outcome, "evaluation").summary == "20 forwards with `--evaluate`: alike"
    told = {v["name"]: v["status"] for v in outcome.to_json()["verdicts"]}
    assert [told[f"drill: {name}"] for name in ("resume", "switch-off", "evaluation")] == ["agrees"] * 3
    html = pytest.importorskip("amp_migrate.verify.report.html")
    assert "20 forwards with" in html.render([outcome])


@pytest.mark.parametrize(
    ("text", "wrong", "name", "says"),
    [
        ("enabled=on):\n            loss", "enabled=True):\n            loss", "switch-off", "linear computes in half 100%"),
        ('GradScaler("cuda", enabled=on)', 'GradScaler("cuda")', "switch-off", "scales its loss"),
        ("if args.evaluate:\n", "if args.evaluate:\n    on = False\n", "evaluation", "linear computes in half 0%"),
        (
            "if args.evaluate:\n", "if args.evaluate:\n    nn.init.normal_(model[0].weight)\n", "evaluation",
            "mean magnitude of what comes out",
        ),
        ("    scaler.load_state_dict", "    state and", "resume", "scale 65536, in the unbroken run 32768"),
        (', "scaler": scaler.state_dict()', "", "resume", "the migrated one does not"),
        (EVALUATED, "with torch.no_grad():", "resume", "evaluation: linear computes in half 0%"),
    ],
)  # fmt: skip
def test_faults_off_the_beaten_path(
    launcher: Launcher, tmp_path: Path, text: str, wrong: str, name: str, says: str
) -> None:
    assert text in NATIVE
    outcome = verify(launcher, tmp_path, NATIVE.replace(text, wrong), name)
    assert red(outcome) == [f"drill: {name}"]
    assert any(says in told for told in drill(outcome, name).evidence), drill(outcome, name).evidence


def test_arguments_can_be_named(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(
        launcher,
        tmp_path,
        NATIVE,
        "switch-off,evaluation",
        off_args="--opt_level O1",
        eval_args="--resume {checkpoint}",
    )
    assert outcome.exit_code == 0
    assert "computes in half all the same" in drill(outcome, "switch-off").summary
    assert "no checkpoint to evaluate was saved" in drill(outcome, "evaluation").summary


def test_a_program_without_a_switch_is_switched_off_by_the_tool(launcher: Launcher, tmp_path: Path) -> None:
    fixed = APEX.replace('parser.add_argument("--opt_level", default="O1")\n', "").replace("args.opt_level", "'O1'")
    native = NATIVE.replace('parser.add_argument("--opt_level", default="O1")\n', "").replace("args.opt_level", "'O1'")
    assert red(verify(launcher, tmp_path, native, "switch-off", fixed)) == []
    (tmp_path / "again").mkdir()
    decayed = native.replace("lr=0.01", "lr=0.01, weight_decay=1e-9, eps=1e-7")
    outcome = verify(launcher, tmp_path / "again", decayed, "switch-off", fixed)
    assert "switched off by the tool" in drill(outcome, "switch-off").summary


def test_what_the_original_does_not_save_need_not_come_back(launcher: Launcher, tmp_path: Path) -> None:
    forgets = [APEX.replace(', "amp": amp.state_dict()', "").replace('    amp.load_state_dict(state["amp"])\n', "")]
    forgets += [NATIVE.replace(', "scaler": scaler.state_dict()', "")]
    forgets[1] = forgets[1].replace('    scaler.load_state_dict(state["scaler"])\n', "")
    outcome = verify(launcher, tmp_path, forgets[1], "resume", forgets[0])
    told = drill(outcome, "resume")
    assert (outcome.exit_code, told.status) == (0, "agrees"), told.evidence
    assert [note for note in told.announced if "does not save its loss scale either" in note]
    (tmp_path / "momentum").mkdir()
    forgets = [text.replace('    optimizer.load_state_dict(state["optimizer"])\n', "") for text in (APEX, NATIVE)]
    outcome = verify(launcher, tmp_path / "momentum", forgets[1], "resume", forgets[0])
    assert (outcome.exit_code, drill(outcome, "resume").status) == (0, "agrees"), drill(outcome, "resume").evidence
    (tmp_path / "red").mkdir()
    outcome = verify(launcher, tmp_path / "red", forgets[1], "resume")
    assert red(outcome) == ["drill: resume"]
