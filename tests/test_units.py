"""A unit is written whole or not at all, over all its files; and what the user asked to be left alone is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.cli_testing import run, run_json, write_tree
from tests.rules.programs import INITIALIZE, apex

# A file with a unit, the packages beside it, and deprecated names.
MIXED = """\
import torch
from apex import amp
from apex.optimizers import FusedAdam
from apex.parallel import DistributedDataParallel as DDP
from torch.cuda.amp import GradScaler, autocast

from project import build, criterion, loader

model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model = DDP(model)
other = FusedAdam(model.parameters())
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


def old(inputs):
    own = GradScaler()
    with autocast():
        print(own)
    with autocast():
        print(inputs)
"""
UNIT = ("amp.initialize", "amp.scale_loss", "    optimizer.step()")
TRAIN = """\
import torch
from apex import amp

from project import build, loader
from step import advance

model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    advance(model, optimizer, x, y)
"""
STEP = """\
from apex import amp

from project import criterion


def advance(model, optimizer, x, y):
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sources(**files: str) -> list[SourceFile]:
    return [SourceFile(Path(f"{name}.py"), f"{name}.py", text) for name, text in files.items()]


def marked(text: str, line: str, comment: str = "# amp-migrate: ignore") -> str:
    """The text with a comment at the end of the first line that contains something."""
    lines = text.split("\n")
    at = next(i for i, row in enumerate(lines) if line in row)
    return "\n".join([*lines[:at], f"{lines[at]}  {comment}", *lines[at + 1 :]])


def rewritten(text: str, *options: str) -> tuple[int, str, list[tuple[int, str, str]]]:
    """Exit code, the file afterwards, and line, code and message of what needs a hand."""
    Path("a.py").write_text(text)
    code, report = run_json("rewrite", *options, "a.py")
    findings = report["files"][0]["findings"] if report["files"] else []
    return (
        code,
        Path("a.py").read_text(),
        [(f["line"], f["code"], f["message"]) for f in findings if f["status"] == "manual"],
    )


# -- the files of a unit ---------------------------------------------------------------------------------------------


def test_results_tell_which_files_share_a_unit() -> None:
    alone = apex(prepare=INITIALIZE)
    train, step, other, clean = migrate(
        Program(sources(train=TRAIN, step=STEP, other=alone, clean="x = 1\n")), Options()
    )
    assert train.units
    assert train.units == step.units
    assert other.units
    assert not other.units & train.units
    assert not clean.units


def test_of_a_large_tree_what_nothing_ties_is_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    files = sources(
        train=TRAIN, step=STEP, other=apex(prepare=INITIALIZE), clean="x = 1\n", more=apex(prepare=INITIALIZE)
    )
    whole = migrate(Program(files), Options())
    monkeypatch.setattr("amp_migrate.program.LARGE", 1)
    program = Program(files)
    assert [[s.display for s in part.targets] for part in program.parts()] == [
        *(["clean.py"], ["more.py"], ["other.py"], ["step.py", "train.py"]),
    ]
    apart = migrate(program, Options())
    assert [(r.path, r.after, r.findings) for r in apart] == [(r.path, r.after, r.findings) for r in whole]
    train, step, other, _, more = (r.units for r in apart)
    assert train == step
    assert len(train | other | more) == 3


def test_a_file_that_cannot_be_put_together_holds_its_unit_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from amp_migrate.writing import apply

    real = apply.apply

    def breaks_on_step(edits: object) -> str:
        text = real(edits)  # type: ignore[arg-type]
        return text + ")" if "def advance" in text else text

    monkeypatch.setattr(apply, "apply", breaks_on_step)
    alone = apex(prepare=INITIALIZE)
    train, step, other = migrate(Program(sources(train=TRAIN, step=STEP, other=alone)), Options())
    assert step.status == "failed"
    assert step.after is None
    assert train.status == "blocked"
    assert train.after is None
    assert all(f.status == "manual" and "step.py" in f.message for f in train.findings)
    assert other.status == "migrated"


def test_what_holds_a_file_back_holds_back_the_files_of_its_other_units() -> None:
    from amp_migrate.engine import whole_units

    a = FileResult("a.py", "failed", units=frozenset({1}))
    b = FileResult("b.py", "migrated", before="x", after="y", units=frozenset({1, 2}))
    c = FileResult("c.py", "migrated", before="x", after="y", units=frozenset({2}))
    d = FileResult("d.py", "migrated", before="x", after="y", units=frozenset({3}))
    assert [r.status for r in whole_units([a, b, c, d])] == ["failed", "blocked", "blocked", "migrated"]


def test_valid_code_that_libcst_cannot_read_is_left_alone_and_said_so() -> None:
    text = "x: tuple = *(1, 2), 3\n" + apex()
    compile(text, "a.py", "exec")
    write_tree(Path(), {"a.py": text})
    result = run("rewrite", "a.py")
    if Path("a.py").read_text() == text:  # a later libcst may read it
        assert result.exit_code == 2
        assert "AMP190 left alone: libcst" in result.stdout


# -- sites to be left alone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", UNIT)
def test_a_unit_with_an_ignored_site_stays_whole_and_the_rest_of_the_file_goes_on(site: str) -> None:
    code, after, manual = rewritten(marked(MIXED, site))
    assert code == 1
    assert "    with amp.scale_loss(loss, optimizer) as scaled_loss:" in after
    assert "amp.initialize(model" in after
    assert "from apex import amp" in after
    assert "scaler.step" not in after
    assert "from apex.parallel import DistributedDataParallel as DDP" in after  # it wraps what Apex still initializes
    assert "FusedAdam" not in after
    assert "torch.cuda.amp" not in after
    held = [message for at, code_, message in manual if code_ == "AMP135"]
    assert held == ["left with Apex: what DistributedDataParallel wraps is still handed to amp.initialize"]
    waiting = [message for at, code_, message in manual if code_ != "AMP135"]
    assert waiting
    assert all("left alone with a.py:" in message and "is ignored" in message for message in waiting)
    line = next(i for i, row in enumerate(after.split("\n"), 1) if "amp-migrate: ignore" in row)
    assert manual
    assert line not in {at for at, _, _ in manual}
    again, same, _ = rewritten(after)
    assert (again, same) == (1, after)


def test_a_unit_all_of_whose_sites_are_ignored_is_not_mentioned() -> None:
    text = apex()
    for site in UNIT:
        text = marked(text, site)
    assert rewritten(text) == (0, text, [])


def test_an_ignored_call_keeps_its_import_and_the_other_uses_of_the_name_wait() -> None:
    code, after, manual = rewritten(marked(MIXED, "with autocast()", "# amp-migrate: ignore[AMP9]"))
    assert code == 1
    assert "from torch.amp import GradScaler\nfrom torch.cuda.amp import autocast\n" in after
    assert 'GradScaler("cuda")' in after
    assert 'autocast("cuda")' not in after
    assert [(c, "where AMP901 is ignored" in m) for _, c, m in manual] == [("AMP905", True)]


def test_a_dotted_use_is_ignored_by_itself() -> None:
    text = """\
import torch

with torch.cuda.amp.autocast():  # amp-migrate: ignore[AMP901]
    a()
with torch.cuda.amp.autocast():
    b()
"""
    code, after, manual = rewritten(text)
    assert (code, manual) == (0, [])
    assert after.count("torch.cuda.amp.autocast()") == 1
    assert 'with torch.autocast("cuda"):\n    b()' in after


def test_an_ignored_optimizer_keeps_its_import() -> None:
    code, after, manual = rewritten(marked(MIXED, "other = FusedAdam"))
    assert (code, manual) == (0, [])
    assert "from apex.optimizers import FusedAdam" in after
    assert "scaler.step(optimizer)" in after
    assert "from apex import amp" not in after
    assert "apex.parallel" not in after


def test_uses_that_share_an_import_with_what_stays_with_apex_wait() -> None:
    """Nobody asked for that one to be ignored."""
    text = marked(MIXED, "amp.initialize").replace("other = ", "beside = DDP(torch.nn.Linear(2, 2))\nother = ", 1)
    code, after, manual = rewritten(text)
    assert code == 1
    assert "beside = DDP(" in after
    assert [m.partition(", ")[2] for _, _, m in manual if m.startswith("shares its import")] == [
        "which stays with Apex"
    ]


def test_uses_that_share_an_import_with_an_ignored_one_wait() -> None:
    text = marked(MIXED, "other = FusedAdam").replace("other = ", "more = FusedAdam(model.parameters())\nother = ", 1)
    code, after, manual = rewritten(text)
    assert code == 1
    assert "more = FusedAdam(" in after
    assert ["shares its import with line" in m for _, _, m in manual] == [True]


def test_an_import_with_a_comment_stays() -> None:
    text = apex(imports="from apex import amp  # amp-migrate: ignore[AMP101]")
    code, after, _ = rewritten(text)
    assert code == 0
    assert "from apex import amp  # amp-migrate: ignore[AMP101]\n" in after
    assert "scaler.step" in after


@pytest.mark.parametrize(
    ("options", "exit_code", "gone", "kept"),
    [
        (("--select", "AMP9"), 0, "torch.cuda.amp", "from apex import amp"),
        (("--select", "AMP6"), 0, "apex.parallel", "from apex import amp"),
        (("--ignore", "AMP6"), 0, "from apex import amp", "apex.parallel"),
        (("--ignore", "AMP902"), 0, "import amp", "from torch.cuda.amp import GradScaler"),
        (("--ignore", "AMP2"), 1, "torch.cuda.amp", "from apex import amp"),
        (("--select", "AMP1,AMP2"), 0, "from apex import amp", "apex.parallel"),
    ],
)
def test_codes_choose_what_is_migrated(options: tuple[str, ...], exit_code: int, gone: str, kept: str) -> None:
    code, after, _ = rewritten(MIXED, *options)
    assert code == exit_code
    assert gone not in after
    assert kept in after
    compile(after, "a.py", "exec")


def test_check_counts_only_what_is_wanted() -> None:
    write_tree(Path(), {"a.py": MIXED})
    assert run("check", "--select", "AMP7", "a.py").exit_code == 0
    code, report = run_json("check", "--select", "AMP9", "a.py")
    assert code == 1
    assert {f["code"][:4] for f in report["files"][0]["findings"]} == {"AMP9"}


# -- what is beside them ---------------------------------------------------------------------------------------------


def test_large_generated_files_beside_a_program_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = ast.parse

    def noted(source: str, *rest: Any, **options: Any) -> Any:
        parsed.append(len(source))
        return real(source, *rest, **options)

    monkeypatch.setattr("ast.parse", noted)
    large = "import torch\nfrom a import model\n" + "x = 1\n" * 400_000
    write_tree(Path(), {"a.py": apex(), "data.py": large, "more.py": "from apex import amp\n" + large})
    assert run("rewrite", "a.py").exit_code == 0
    assert run("check", "a.py", "data.py").exit_code == 0
    assert parsed
    assert max(parsed) < 100_000
    assert run("check", ".").exit_code == 2  # more.py mentions Apex, and nobody has looked at it


def test_a_file_that_nothing_is_held_back_of_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the audit refutes is decided again without it; what the others come to is known by then."""
    from amp_migrate import audit
    from amp_migrate.writing import apply
    from amp_migrate.writing.edits import Edits

    written: list[str] = []
    carry_out = apply.apply

    def counted(edits: Edits) -> str:
        written.append(edits.module.display)
        return carry_out(edits)

    def refuting(before: object, after: dict[str, str], *_: object) -> list[audit.Doubt]:
        return [audit.Doubt("one.py", 1, "AMP131", "a name", "no value") for path in after if path == "one.py"]

    monkeypatch.setattr(apply, "apply", counted)
    monkeypatch.setattr(audit, "audit", refuting)
    sources = [SourceFile(Path(path), path, apex()) for path in ("one.py", "other.py")]
    one, other = migrate(Program(sources, root=Path()), Options())
    assert (one.after, other.status) == (None, "migrated")
    assert written == ["one.py", "other.py"]


@pytest.mark.parametrize(("aside", "told"), [(True, "AMP131"), (False, "AMP502")])
def test_what_is_about_no_region_does_not_cost_one(monkeypatch: pytest.MonkeyPatch, aside: bool, told: str) -> None:
    from amp_migrate import audit

    text = """
import torch
from apex import amp


def step(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()


def main(model, optimizer, x):
    model, optimizer = amp.initialize(model, optimizer)
    loss = model(x).sum()
    step(loss, optimizer)
"""

    def refuting(*_: object) -> list[audit.Doubt]:
        return [audit.Doubt("one.py", 13, "AMP131", "a name", "no value", aside=aside)]

    monkeypatch.setattr(audit, "audit", refuting)
    (result,) = migrate(Program([SourceFile(Path("one.py"), "one.py", text)], root=Path()), Options())
    assert result.after is None
    assert told in {finding.code for finding in result.findings}


def test_why_a_region_that_was_tried_is_left_out_is_what_was_found_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from amp_migrate import audit

    evaluation = "\n\ndef check(model, x):\n    with torch.no_grad():\n        return model(x)\n"
    text = apex() + evaluation

    def refuting(_: object, after: dict[str, str], *__: object) -> list[audit.Doubt]:
        last = after["one.py"].partition("def check")[2]
        line = text.count("\n")
        return [audit.Doubt("one.py", line, "AMP131", "a name", "a is not set")] if "autocast" in last else []

    monkeypatch.setattr(audit, "audit", refuting)
    (result,) = migrate(Program([SourceFile(Path("one.py"), "one.py", text)], root=Path()), Options())
    assert result.after is not None
    assert result.after.endswith(evaluation)
    (told,) = [f for f in result.findings if f.code == "AMP502"]
    assert told.message.startswith("runs in float32: the region tried here was left out (a is not set);")


def test_what_the_audit_could_not_follow_is_not_called_wrong() -> None:
    """It refuses what may raise as well as what does."""
    from amp_migrate.audit import Doubt

    said = Doubt("one.py", 1, "AMP231", "optimizer.step", "the scaler may step this optimizer again").refusal
    assert said.endswith("failed its audit, and is taken back: the scaler may step this optimizer again")
