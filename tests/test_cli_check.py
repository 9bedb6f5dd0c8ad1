from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from amp_migrate.engine import migrate
from tests.cli_testing import HARD, NOTE, SITE, fake_engine, run, run_json, write_tree


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


def test_lists_every_use_and_whether_it_is_automatic() -> None:
    write_tree(Path(), {"a.py": SITE + HARD + NOTE, "requirements.txt": "torch\napex\n"})
    result = run("check", ".")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "1 of 3 Apex sites can be migrated automatically in 1 file; 2 need a hand",
        "a.py:2:1 AMP110 cannot: 100%, sorry",
        "requirements.txt:2:1 AMP851 requirement 'apex': remove it; native AMP comes with torch>=2.4",
        "",
        "Worth a look:",
        "a.py:3:1 AMP112 O2 differs",
        "",
        "Automatic, with `amp-migrate rewrite`:",
        "a.py:1:1 AMP201 scaled backward",
        "",
        "Next: `amp-migrate rewrite --diff .` shows the changes, `amp-migrate rewrite .` writes them.",
    ]
    assert Path("a.py").read_text() == SITE + HARD + NOTE


def test_exit_codes() -> None:
    write_tree(Path(), {"none.py": "x = 1\n", "auto.py": SITE, "note.py": NOTE, "bad.py": "apex = (\n"})
    assert run("check", "none.py").exit_code == 0
    assert run("check", "auto.py").exit_code == 1
    assert run("check", "note.py").exit_code == 0
    assert run("check", "bad.py").exit_code == 2
    assert run("check", "gone").exit_code == 2
    assert run("check", ".").exit_code == 2


def test_nothing_found() -> None:
    write_tree(Path(), {"a.py": "x = 1\n", "b.py": ""})
    assert run("check", ".").stdout == "No Apex found in 2 files\n"


def test_leftovers_share_the_options() -> None:
    write_tree(Path(), {"requirements.txt": "apex\n", "sub/requirements.txt": "apex\n"})
    assert run("check", ".").exit_code == 1
    assert run("check", "--ignore", "AMP85", ".").exit_code == 0
    assert run("check", "--exclude", "requirements.txt", ".").exit_code == 0
    assert run("check", "requirements.txt").stdout.count("AMP851") == 1
    code, report = run_json("check", ".")
    assert code == 1
    assert [f["path"] for f in report["files"]] == ["requirements.txt", "sub/requirements.txt"]
    assert report["files"][0]["status"] == "blocked"
    assert report["summary"]["sites_manual"] == 2


def test_what_stays_with_apex_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """To keep FusedLAMB and to be told to uninstall Apex would contradict each other."""
    monkeypatch.setattr("amp_migrate.engine.migrate", migrate)
    source = "from apex.optimizers import FusedLAMB\n\noptimizer = FusedLAMB(parameters)\n"
    files = {"requirements.txt": "apex\n", "README.md": "torch\n\nInstall https://github.com/NVIDIA/apex first.\n"}
    write_tree(Path(), {"a.py": source, "setup.sh": "pip install apex\npython a.py --opt_level O1\n", **files})
    code, report = run_json("check", ".")
    assert code == 0
    found = {(f["path"], x["line"]): (x["status"], x["message"]) for f in report["files"] for x in f["findings"]}
    needed = "Apex is still needed for FusedLAMB (a.py:3); elsewhere it can go"
    assert found["requirements.txt", 1] == ("note", f"requirement 'apex': {needed}")
    assert found["setup.sh", 1] == ("note", f"`pip install apex` serves Apex: {needed}")
    assert found["README.md", 3][1] == "refers to NVIDIA Apex, which is still needed for FusedLAMB (a.py:3)"
    assert "still accepted" in found["setup.sh", 2][1]
    write_tree(Path(), {"a.py": "x = 1\n"})
    assert run("check", ".").exit_code == 1


def test_an_optimizer_that_stays_for_an_option_needs_apex_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.engine.migrate", migrate)
    for option, needed in (
        ("bias_correction=False", "Apex is still needed for FusedAdam (a.py:3)"),
        ("lr=0.1", "remove it"),
    ):
        source = f"from apex.optimizers import FusedAdam\n\noptimizer = FusedAdam(model.parameters(), {option})\n"
        write_tree(Path(), {"a.py": source, "requirements.txt": "apex\n"})
        _, report = run_json("check", ".")
        (message,) = [x["message"] for f in report["files"] for x in f["findings"] if x["code"] == "AMP851"]
        assert needed in message


def test_leftover_files_are_counted_and_must_be_readable() -> None:
    write_tree(Path(), {"a.py": "x = 1\n", "README.md": "Hello.\n"})
    assert run("check", ".").stdout == "No Apex found in 2 files\n"
    os.symlink("nowhere", "requirements.txt")
    assert run("check", ".").exit_code == 2


def test_setup_py_is_code_and_requirement_at_once() -> None:
    write_tree(Path(), {"setup.py": SITE + "setup(install_requires=['torch', 'apex'])\n"})
    code, report = run_json("check", ".")
    assert code == 1
    assert len(report["files"]) == 1
    assert [f["code"] for f in report["files"][0]["findings"]] == ["AMP201", "AMP851"]
    assert report["files"][0]["status"] == "partial"


def test_rewrite_takes_no_notice_of_leftovers() -> None:
    write_tree(Path(), {"requirements.txt": "apex\n", "a.py": SITE})
    assert run("rewrite", ".").exit_code == 0


def test_notebook_installations_are_leftovers() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "source": ["!pip install apex\n", "x = 1"], "outputs": []}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1)
    write_tree(Path(), {"nb.ipynb": notebook})
    code, report = run_json("check", ".")
    assert code == 1
    (finding,) = report["files"][0]["findings"]
    assert finding["code"] == "AMP852"
    assert notebook.split("\n")[finding["line"] - 1].strip() == '"!pip install apex\\n",'


def test_github_annotations() -> None:
    write_tree(Path(), {"a,b.py": SITE + HARD + NOTE})
    assert run("check", "--format", "github", ".").stdout.splitlines() == [
        "::warning file=a%2Cb.py,line=1,col=1,title=AMP201::scaled backward",
        "::error file=a%2Cb.py,line=2,col=1,title=AMP110::cannot: 100%25, sorry",
        "::notice file=a%2Cb.py,line=3,col=1,title=AMP112::O2 differs",
    ]


def test_standard_input() -> None:
    assert run("check", "-", stdin=SITE).exit_code == 1
    assert run("check", "-", stdin="x = 1\n").exit_code == 0
