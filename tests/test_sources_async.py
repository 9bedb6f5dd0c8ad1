"""`x.cuda(async=True)`, which Python reads no more: a program that is migrated says non_blocking."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.cli_testing import run

PROGRAM = """\
import torch
from apex import amp


def train(loader, model, opt):
    model, opt = amp.initialize(model, opt, opt_level="O1")
    for x, y in loader:
        opt.zero_grad()
        x = x.cuda(async=True)
        y = y["a"].cuda(
            torch.device(0), async = True)
        loss = model(x).sub(y).sum()
        with amp.scale_loss(loss, opt) as scaled:
            scaled.backward()
        opt.step()
"""


def test_what_is_migrated_is_written_with_torchs_name_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_bytes(PROGRAM.replace("\n", "\r\n").encode())
    before = file.read_bytes()
    diff = run("rewrite", "train.py", "--diff").stdout
    assert "-        x = x.cuda(async=True)" in diff
    assert "+        x = x.cuda(non_blocking=True)" in diff
    assert file.read_bytes() == before
    result = run("rewrite", "train.py", "--format", "json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert [f["line"] for f in told["files"][0]["findings"] if f["code"] == "AMP012"] == [9, 11]
    assert told["summary"]["sites"] == 3
    after = file.read_bytes().decode()
    assert "torch.device(0), non_blocking = True)\r\n" in after
    ast.parse(after)
    assert run("check", "train.py").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("opt.step()", "opt.step(lambda: loss)"),  # a closure is refused
        ("def train(", "def load(x, async=False):\n    return x\n\n\ndef train("),  # somebody's own argument
        ("opt.step()", "print 'done'"),
    ],
)
def test_what_stays_is_told_as_what_does_not_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.replace(old, new))
    before = file.read_bytes()
    result = run("rewrite", "train.py", "--format", "json")
    assert result.exit_code == 2
    (told,) = json.loads(result.stdout)["files"]
    assert next(f["code"] for f in told["findings"] if f["code"] in ("AMP003", "AMP004", "AMP012")) != "AMP012"
    assert file.read_bytes() == before


def test_files_without_apex_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    other = tmp_path / "data.py"
    other.write_text("def load(x):\n    return x.cuda(async=True)\n")
    result = run("rewrite", ".", "--format", "json")
    assert result.exit_code == 2
    told = {f["path"]: [x["code"] for x in f["findings"]] for f in json.loads(result.stdout)["files"]}
    assert told["data.py"] == ["AMP003"]
    assert other.read_text().endswith("async=True)\n")
    assert "non_blocking" in (tmp_path / "train.py").read_text()


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("rewrite", "-", stdin=PROGRAM)
    assert result.exit_code == 0
    assert "x.cuda(non_blocking=True)" in result.stdout
