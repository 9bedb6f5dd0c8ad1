"""The report: a page of several cases, its plots, and what it says that it did not see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.coverage import places, tally
from amp_migrate.verify.coverage.diff import changes
from amp_migrate.verify.judge import Outcome
from amp_migrate.verify.programs import Pair
from amp_migrate.verify.report import text
from amp_migrate.verify.report.findings import likely, not_seen
from amp_migrate.verify.report.ranges import calm
from amp_migrate.verify.verdicts.verdict import Verdict

CASE = Case("train.py", Program(Path("train.py"), Path()), Program(Path("train.py"), Path()))
CURVES = {"loss 0": {"original": [2.0] * 4, "migrated": [2.0, 2.0, 2.0001, 2.0], "band": [1e-3] * 4}}
SCALES = {"scale": [65536.0] * 4, "tracker": [0] * 4, "skipped": []}


def outcome(
    name: str = "train.py", status: Any = "agrees", device: str = "CPU in place of CUDA", **more: Any
) -> Outcome:
    causes = ["see the precision verdict", "`scaler.update()` is missing"] if status == "disagrees" else []
    verdicts = [
        Verdict("scale", status, "first symptom", ["first symptom", "second symptom"], causes,
                data={"original": SCALES, "migrated": SCALES}),
        Verdict("loss curve", "agrees", "inside", data={"series": CURVES}),
    ]  # fmt: skip
    case = Case(name, CASE.original, CASE.migrated)
    environment = {
        "device": device,
        "torch": "2.9",
        "date": "2030-01-02 03:04 UTC",
        "commit": "abc1234",
        "amp-migrate": "1",
    }
    return Outcome(
        case, verdicts, environment=environment, norms={"original": [1.0] * 4, "migrated": [1.0] * 4}, **more
    )


def test_the_likely_cause_stands_above_the_symptoms() -> None:
    lines = text.render(outcome(status="disagrees")).splitlines()
    assert lines[1] == "  likely: `scaler.update()` is missing"  # not the one that points to another verdict
    assert likely(outcome(status="disagrees")) == "`scaler.update()` is missing"
    scale = next(i for i, line in enumerate(lines) if line.startswith("  NO scale"))
    assert lines[scale + 1].strip() == "likely: see the precision verdict"
    assert lines[scale + 2].strip() == "second symptom"


def test_what_was_not_seen_is_listed() -> None:
    told = not_seen(outcome(stopped=True))
    assert any("GPU" in line for line in told)
    assert "what comes after 50 steps (--steps)" in told
    assert "the program's own loading of a checkpoint (--resume-args)" in told
    assert any("--drills" in line for line in told)
    assert not any("GPU" in line for line in not_seen(outcome(device="NVIDIA H100")))
    assert not_seen(Outcome(CASE, trouble="no")) == []
    assert "judged on NVIDIA H100, torch 2.9, amp-migrate 1, commit abc1234, 2030-01-02 03:04 UTC" in text.render(
        outcome(device="NVIDIA H100")
    )


def test_a_constant_looks_constant() -> None:
    low, high = calm([100.0, 100.001]) or (0, 0)
    assert high - low == pytest.approx(0.05 * 100.001)
    assert calm([1.0, 2.0]) == (1.0, 2.0)
    assert calm([float("nan")]) is None
    assert calm([0.0]) == (-0.5, 0.5)
    page = pytest.importorskip("amp_migrate.verify.report.plots").losses("loss 0", CURVES["loss 0"], 3.0)
    ticks = [float(t.replace("−", "-")) for t in re.findall(r">(−?[0-9.]+)</text>", page.svg)]
    assert ticks[:4] == [0.0, 1.0, 2.0, 3.0]  # there is no half step
    assert all(1.9 < tick < 2.1 for tick in ticks[4:])  # the numbers themselves, no offset beside the axis
    assert max(ticks[4:]) - min(ticks[4:]) > 0.05
    assert page.keys[-1] == ("allowed by rounding", "grey area")


def test_several_cases_have_an_index(tmp_path: Path) -> None:
    html = pytest.importorskip("amp_migrate.verify.report.html")
    pytest.importorskip("matplotlib")
    trees = []
    for side, word in (("original", "1"), ("migrated", "2")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(f"x = {word}  # <b>\nif x > 3:\n    print({word})\n")
        trees.append(Program(tmp_path / side / "train.py", tmp_path / side, tmp_path / side, tmp_path / side))
    found = places.find(Pair(*trees))
    run = tmp_path / "runs" / "migrated"
    run.mkdir(parents=True)
    (run / "ran-migrated").write_bytes(bytes([1, 1, 0]))  # `x = 2` and the test
    counted = tally.count(found, tmp_path / "runs", steps=None)
    assert {group.reason.why for group in counted.missing()} == {"no case runs train.py", "`x > 3` was never true"}
    one = outcome("one", coverage=counted, changes=changes(found, counted))
    other = outcome("two", "disagrees")
    page = html.render([one, other])
    assert "<h1>1 of 2 migrations train as before</h1>" in page
    assert '<a href="#case1">two</a>' in page
    assert 'id="case1"' in page
    assert "<code>scaler.update()</code> is missing" in page.split("</table>")[0]
    assert "1 of 4 places" in page
    assert '<div class="row add ran"><b><span class="nr">  1 </span>● </b><u>+x = 2  # &lt;b&gt;</u></div>' in page
    assert 'class="row add not" title="did not run"' in page

    assert len(tally.union([(counted, True), (None, True)]).ran) == 1
    unjudged = tally.union([(counted, False)])  # what ran without a verdict stands for nothing
    assert (len(unjudged.ran), len(unjudged.places)) == (0, 4)
    assert "could not be judged" in " ".join(group.reason.why for group in unjudged.missing())
