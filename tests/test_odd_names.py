"""Odd names of files: done as any other, and no text that names one moves a cursor, ends a line or fails to print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_testing import run, write_tree
from tests.test_precommit import APEX


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode elsewhere")
class TestNamesThatAreNoUnicode:
    NAME = os.fsdecode(b"caf\xe9.py")

    @pytest.mark.parametrize("output", ["text", "json", "sarif", "github"])
    def test_every_format(self, output: str) -> None:
        write_tree(Path(), {self.NAME: APEX})
        result = run("check", "--format", output, ".")
        assert result.exit_code == 1
        assert result.stdout.encode()  # it prints
        if output == "sarif":
            (location,) = {
                r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
                for r in json.loads(result.stdout)["runs"][0]["results"]
            }
            assert location == "caf%E9.py"
        elif output == "text":
            assert '"caf\\351.py":6:' in result.stdout

    def test_summary(self) -> None:
        write_tree(Path(), {self.NAME: APEX})
        assert run("rewrite", "--summary", "pr.md", ".").exit_code == 0
        assert "caf\\351.py" in Path("pr.md").read_text()

    def test_what_git_says_of_one(self) -> None:
        """It names it in bytes that are no Unicode: the run was lost on them."""
        subprocess.run(["git", "init", "-q"], check=True)
        write_tree(Path(), {self.NAME: APEX})
        result = run("rewrite", ".")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "apex" not in Path(self.NAME).read_text()


@pytest.mark.skipif(os.name == "nt", reason="such names do not exist there")
def test_names_that_would_move_the_cursor_or_end_the_line_are_quoted() -> None:
    write_tree(Path(), {"a\x1b[31mred\nx.py": APEX})
    for output in ("text", "github"):
        printed = run("check", "--format", output, ".").stdout
        assert "\x1b" not in printed
        assert "\nx.py" not in printed
    assert '"a\\033[31mred\\nx.py":6:' in run("check", ".").stdout


@pytest.mark.skipif(os.name == "nt", reason="such names do not exist there")
def test_a_diff_of_an_odd_name_applies_with_git(tmp_path: Path) -> None:
    name = "a\t\x1b[31m\nx.py"
    write_tree(Path(), {name: APEX})
    diff = run("rewrite", "--diff", ".").stdout_bytes
    subprocess.run(["git", "init", "-q", "."], check=True, cwd=tmp_path)
    subprocess.run(["git", "apply", "-"], input=diff, check=True, cwd=tmp_path)
    assert "scaler" in Path(name).read_text()


@pytest.mark.skipif(os.name == "nt", reason="names are limited there")
def test_a_name_as_long_as_names_may_be() -> None:
    name = "ü" + "a" * 250 + ".py"
    write_tree(Path(), {name: APEX})
    assert run("rewrite", ".").exit_code == 0
    assert "scaler" in Path(name).read_text()
    assert os.listdir(".") == [name]


def test_a_path_that_begins_as_an_option_does_is_none_where_a_command_is_said() -> None:
    write_tree(Path(), {"-x/--diff.py": APEX + "\nif __name__ == '__main__':\n    train()\n"})
    result = run("rewrite", ".")
    assert result.exit_code == 0
    assert " ./-x/--diff.py -- ARGS\n" in result.stdout


@pytest.mark.skipif(os.name == "nt", reason="such names do not exist there")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "{}"),
        ("check", "--exclude", "!", "{}"),
        ("rewrite", "--summary", "{}/x/y.md", "good.py"),
        ("verify", "--report", "{}/x/y.html", "good.py"),
        ("verify", "--init", "{}/gone"),
        ("{}",),
        ("rewrite", "--{}", "good.py"),
    ],
)
def test_no_message_moves_the_cursor(arguments: tuple[str, ...]) -> None:
    name = "e\x1b]0;title\x07"
    write_tree(Path(), {"good.py": APEX, f"{name}/pyproject.toml": "[tool.amp-migrate]\nbogus = 1\n"})
    result = run(*(argument.replace("{}", name) for argument in arguments))
    assert result.exit_code == 2
    assert not {"\x1b", "\x07"} & set(result.output)
