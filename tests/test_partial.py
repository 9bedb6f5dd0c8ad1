"""--partial: what of a unit is migrated although the rest of it cannot be, and how the rest is marked."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amp_migrate.findings import FileResult
from tests.cli_testing import run, run_json
from tests.rules.helpers import rewrite
from tests.rules.programs import apex

IMPORTS = "from apex import amp\nfrom project import networks, optimizers"
MODEL = "netD, netG = networks()\noptD, optG = optimizers(netD, netG)"
PREPARE = '[netD, netG], [optD, optG] = amp.initialize([netD, netG], [optD, optG], opt_level="O1", num_losses=2)'
DISCRIMINATOR = """\
lossD = criterion(netD(x), y)
with amp.scale_loss(lossD, optD, loss_id=0) as scaledD:
    scaledD.backward()
optD.step()
"""
NATIVE_DISCRIMINATOR = """\
    with torch.autocast("cuda", dtype=torch.float16):
        lossD = criterion(netD(x), y)
    scaler.scale(lossD).backward()
    scaler.step(optD)
    scaler.update()
"""
GENERATOR = """\
def closure():
    lossG = criterion(netG(x), y)
    with amp.scale_loss(lossG, optG, loss_id=1) as scaledG:
        scaledG.backward()
    return lossG

optG.step(closure)
"""
TWO = apex(DISCRIMINATOR + "\n" + GENERATOR, PREPARE, imports=IMPORTS, model=MODEL)


def manual(result: FileResult) -> list[tuple[str, str]]:
    return [(f.code, f.construct) for f in result.findings if f.status == "manual"]


def after(result: FileResult) -> str:
    assert result.after is not None
    ast.parse(result.after)
    return result.after


def test_without_it_the_unit_stays_whole() -> None:
    result = rewrite(TWO)
    assert (result.status, result.after) == ("blocked", None)


def test_the_loss_of_one_optimizer_is_migrated_and_the_others_is_marked() -> None:
    result = rewrite(TWO, partial=True)
    text = after(result)
    assert result.status == "partial"
    assert NATIVE_DISCRIMINATOR in text
    assert "amp.initialize" not in text
    assert (
        """\
        # amp-migrate: AMP201 stays with Apex until what AMP212 marks is migrated
        with amp.scale_loss(lossG, optG, loss_id=1) as scaledG:
            scaledG.backward()
"""
        in text
    )
    assert "    # amp-migrate: AMP212 step is given a closure" in text
    assert "\n    optG.step(closure)\n" in text
    assert sorted(manual(result)) == [("AMP201", "amp.scale_loss"), ("AMP212", "optimizer.step")]


def test_the_forward_of_what_is_left_is_under_autocast_too() -> None:
    text = after(rewrite(TWO, partial=True))
    assert 'with torch.autocast("cuda", dtype=torch.float16):\n            lossG = criterion(netG(x), y)\n' in text


def test_every_name_that_is_left_stays_imported() -> None:
    text = after(rewrite(TWO, partial=True))
    assert "from apex import amp\n" in text
    bound = {a.asname or a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert "amp" in bound


def test_the_guards_of_apex_stay_with_what_is_left_of_it() -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\nassert HAS_APEX"
    text = after(rewrite(TWO.replace("from apex import amp", guard), partial=True))
    assert guard in text


def test_a_second_run_changes_nothing_and_still_reports() -> None:
    text = after(rewrite(TWO, partial=True))
    for partial in (True, False):
        again = rewrite(text, partial=partial)
        assert again.after is None
        assert manual(again)


def test_a_use_that_cannot_be_told_is_left_and_all_else_is_migrated() -> None:
    result = rewrite(
        apex(imports="from apex import amp\nfrom options import name", tail="getattr(amp, name)(model)"), partial=True
    )
    text = after(result)
    assert "scaler.step(optimizer)" in text
    assert "# amp-migrate: AMP102 " in text
    assert text.endswith("getattr(amp, name)(model)\n")
    assert manual(result) == [("AMP102", "amp")]


def test_gradients_that_are_read_go_with_the_loss_that_is_left() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optG), 1.0)\noptG.step(closure)"
    text = after(rewrite(TWO.replace("optG.step(closure)", clip.replace("\n", "\n    ")), partial=True))
    assert "clip_grad_norm_(amp.master_params(optG), 1.0)" in text
    assert "unscale_" not in text
    assert text.count("scaler.step(") == 1


@pytest.mark.parametrize(
    "source",
    [
        apex(
            "def closure():\n    loss = criterion(model(x), y)\n    with amp.scale_loss(loss, optimizer) as s:\n"
            "        s.backward()\n    return loss\n\noptimizer.step(closure)"
        ),
        apex(prepare="model, optimizer = amp.initialize(*things)"),
        apex(prepare=""),
    ],
    ids=["the only loss", "arguments out of sight", "no initialize"],
)
def test_a_unit_of_which_no_loss_can_be_migrated_stays_whole(source: str) -> None:
    result = rewrite(source, partial=True)
    assert result.after is None
    assert result.status == "blocked"


def test_one_optimizer_for_both_losses_leaves_both() -> None:
    result = rewrite(TWO.replace("optD", "optG"), partial=True)
    assert result.after is None


def test_a_step_on_the_line_of_its_if_gets_its_comment() -> None:
    text = after(rewrite(TWO.replace("    optG.step(closure)", "    if x: optG.step(closure)"), partial=True))
    assert "    if x:\n        # amp-migrate: AMP212" in text


def test_the_command_line_says_partial_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gan.py").write_text(TWO)
    code, report = run_json("rewrite", "--partial", "--check", "gan.py")
    assert (code, report["files"][0]["status"], report["summary"]["partial"]) == (1, "partial", 1)
    assert Path("gan.py").read_text() == TWO
    assert run("rewrite", "--partial", "gan.py").exit_code == 1
    written = Path("gan.py").read_text()
    assert written != TWO
    assert run("rewrite", "--partial", "gan.py").exit_code == 1
    assert Path("gan.py").read_text() == written
