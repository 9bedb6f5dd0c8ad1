"""What Windows does differently, by tests that need no Windows: line ends, flags, drives, locks, streams."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import pytest

from amp_migrate.sources import discover, files, journal
from amp_migrate.sources.gitignore import Rules
from tests.cli_testing import run, run_json, write_tree
from tests.test_precommit import APEX


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def crlf(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


def test_line_ends_of_programs_stay() -> None:
    write_tree(Path(), {"windows.py": crlf(APEX), "unix.py": APEX})
    assert run("rewrite", ".").exit_code == 0
    windows, unix = Path("windows.py").read_bytes(), Path("unix.py").read_bytes()
    assert windows == crlf(unix.decode())
    assert windows.count(b"\n") == windows.count(b"\r\n")


def test_line_ends_of_notebooks_and_settings_stay() -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": APEX.splitlines(keepends=True)}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"
    settings = '{\n  "amp": {"enabled": true, "opt_level": "O1"},\n  "train_batch_size": 8\n}\n'
    write_tree(Path(), {"nb.ipynb": crlf(notebook), "ds.json": crlf(settings)})
    assert run("rewrite", ".").exit_code == 0
    for name in ("nb.ipynb", "ds.json"):
        data = Path(name).read_bytes()
        assert data.count(b"\n") == data.count(b"\r\n") > 2
        assert b"apex" not in data
        assert b'"amp"' not in data


def test_a_diff_of_such_a_file_applies(tmp_path: Path) -> None:
    import subprocess

    write_tree(Path(), {"a.py": crlf(APEX)})
    diff = run("rewrite", "--diff", ".").stdout_bytes
    subprocess.run(["git", "init", "-q", "."], check=True, cwd=tmp_path)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff, check=True, cwd=tmp_path)
    data = Path("a.py").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")


def test_ignore_comments_and_reports_count_lines_alike() -> None:
    text = APEX.replace("as scaled_loss:", "as scaled_loss:  # amp-migrate: ignore[AMP2]")
    write_tree(Path(), {"windows.py": crlf(text), "unix.py": text})
    _, report = run_json("check", ".")
    unix, windows = ([(f["code"], f["line"]) for f in file["findings"]] for file in report["files"])
    assert unix == windows


def test_bytes_are_read_as_bytes() -> None:
    """Windows has no O_NONBLOCK, and changes line ends without O_BINARY."""
    assert files.reading_flags(SimpleNamespace(O_BINARY=0x8000)) == 0x8000
    assert files.reading_flags(SimpleNamespace(O_NONBLOCK=0x800)) == 0x800


def test_a_path_on_another_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_way(path: object, start: object = None) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", no_way)
    assert discover.shown("train.py") == (Path.cwd() / "train.py").as_posix()


def test_files_on_several_drives_are_still_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_way(paths: object) -> str:
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr("os.path.commonpath", no_way)
    with journal.opened([Path("a.py").absolute()]) as log:
        log.staged(Path("a.py"), ".a.py.x", b"", b"")
        log.complete()
    assert os.listdir() == []


def test_without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    write_tree(Path(), {"a.py": APEX})
    assert run("rewrite", ".").exit_code == 0
    assert os.listdir() == ["a.py"]


def test_a_journal_that_is_open_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: object, target: object) -> None:
        raise PermissionError(13, "The process cannot access the file because it is being used by another process")

    path = Path(".amp-migrate.1.journal")
    path.write_text("")
    assert not journal._in_use(str(path))
    assert path.exists()
    monkeypatch.setattr("os.rename", refused)
    assert journal._in_use(str(path))


def test_patterns_match_paths_with_backslashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sep", "\\")
    rules = Rules("C:\\project", ["third_party/", "*.gen.py"])
    assert rules.verdict("C:\\project\\third_party", True) is True
    assert rules.verdict("C:\\project\\src\\a.gen.py", False) is True
    assert rules.verdict("C:\\project\\src\\a.py", False) is None


def test_reports_have_slashes() -> None:
    assert PureWindowsPath("src\\train.py").as_posix() == "src/train.py"  # what `shown` relies on
    write_tree(Path(), {"src/train.py": APEX})
    _, report = run_json("check", "src")
    assert report["files"][0]["path"] == "src/train.py"


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_a_console_that_lacks_a_character(encoding: str) -> None:
    import subprocess

    write_tree(Path(), {"größe-模型.py": APEX})
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "amp_migrate", "check", "."]
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 1
    assert b".py:6:20 AMP110" in done.stdout
    assert b"Traceback" not in done.stderr
