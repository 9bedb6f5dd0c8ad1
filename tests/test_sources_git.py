"""What git is asked of files: whether a commit holds them as they are, and that nothing of the repository is started for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amp_migrate.sources.git import holding
from tests.cli_testing import git, write_tree


@pytest.fixture(autouse=True)
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_tree(Path(), {"a.py": "x = 1\n", "sub/b.py": "y = 1\n"})
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return git("rev-parse", "--short", "HEAD").strip()


def test_a_commit_that_holds_them(head: str) -> None:
    assert holding(["a.py", "sub/b.py"]) == holding(["sub/b.py"]) == head
    assert holding([]) is None


def test_what_differs_is_not_held(head: str) -> None:
    Path("a.py").write_text("x = 2\n")
    assert holding(["a.py", "sub/b.py"]) is None
    assert holding(["sub/b.py"]) == head
    git("add", "a.py")  # in the index alone
    assert holding(["a.py"]) is None
    Path("new.py").write_text("")
    assert holding(["new.py"]) is None
    os.unlink("sub/b.py")
    assert holding(["sub/b.py"]) is None


def test_carriage_returns_of_a_checkout(head: str) -> None:
    Path("a.py").write_bytes(b"x = 1\r\n")
    assert holding(["a.py"]) == head


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_is_the_file_it_leads_to(head: str) -> None:
    os.symlink("a.py", "link.py")
    assert holding(["link.py"]) == head


@pytest.mark.skipif(os.name == "nt", reason="the spy is a shell script")
def test_nothing_that_the_repository_names_is_started() -> None:
    Path("spy").write_text(f"#!/bin/sh\necho >> {os.path.abspath('started')}\nexec cat\n")
    os.chmod("spy", 0o755)
    spy = os.path.abspath("spy")
    Path(".git/info/attributes").write_text("*.py filter=spy diff=spy\n")
    for name in ("filter.spy.clean", "filter.spy.process", "diff.spy.command", "diff.spy.textconv", "core.fsmonitor"):
        git("config", name, spy)
    git("config", "core.hooksPath", os.path.abspath("hooks"))
    Path("hooks").mkdir()
    os.symlink(spy, "hooks/post-index-change")
    os.utime("a.py", (1, 1))  # what git would have to read again
    holding(["a.py", "sub/b.py"])
    assert not Path("started").exists()
