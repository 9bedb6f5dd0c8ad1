"""One odd file is a failure of that file: never a traceback, and the other files are done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.engine import Program
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import MOST_BYTES
from amp_migrate.sources.gitignore import Rules
from amp_migrate.sources.syntax import MAX_DEPTH
from tests.cli_testing import SITE, engine, fake_engine, run, run_json, write_tree
from tests.test_precommit import APEX

links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {f["path"]: f["status"] for f in report["files"]}


def said(report: dict[str, Any], path: str) -> str:
    return " ".join(f["message"] for file in report["files"] if file["path"] == path for f in file["findings"])


@links
@pytest.mark.parametrize("name", ["self.py", "self.json", "self.md", "requirements.txt"])
def test_a_link_to_itself(name: str) -> None:
    write_tree(Path(), {"good.py": APEX})
    os.symlink(name, name)
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report) == {"good.py": "migrated", name: "failed"}
    assert "symbolic link" in said(report, name)
    assert run_json("check", name, "good.py") == (code, report)


@links
def test_a_link_into_a_folder_that_is_closed_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(Path(), {"good.py": APEX, "x.py": APEX})
    os.symlink("x.py", "link.py")
    stat = os.stat

    def closed(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        if isinstance(path, str) and path.endswith("x.py"):
            raise PermissionError(13, "Permission denied")
        return stat(path, *arguments, **named)

    monkeypatch.setattr("os.stat", closed)
    code, report = run_json("check", "x.py", "good.py")
    assert code == 2
    assert said(report, "x.py") == "cannot be read: permission denied"


DEEP = {
    "plus": "x = " + "+".join(["y"] * 2000) + "\n",
    "elif": "if x == 0:\n    pass\n" + "".join(f"elif x == {i}:\n    pass\n" for i in range(2000)),
    "attributes": "x = y" + ".z" * 2000 + "\n",
    "minus": "x = " + "-" * 2000 + "1\n",
    "calls": "x = y" + "(1)" * 2000 + "\n",
    "parentheses": "x = " + "(" * 2000 + ")" * 2000 + "\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_file_that_nests_too_deeply_is_refused_by_name(name: str) -> None:
    write_tree(Path(), {"deep.py": APEX + DEEP[name], "good.py": APEX})
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report) == {"deep.py": "failed", "good.py": "migrated"}
    assert "internal error" not in said(report, "deep.py")
    assert "deeply" not in said(report, "deep.py") or said(report, "deep.py").endswith("Apex stays as it is")


@pytest.mark.parametrize("name", DEEP)
def test_a_neighbour_that_nests_too_deeply_is_no_reason_to_stop(name: str) -> None:
    write_tree(
        Path(), {"pyproject.toml": "", "deep.py": "import torch\n" + DEEP[name], "train.py": "import deep\n" + APEX}
    )
    code, report = run_json("check", "train.py")
    assert code == 1
    assert statuses(report) == {"train.py": "migrated"}


@pytest.mark.parametrize("levels", [9, 80])
def test_patterns_that_nest_too_deeply_are_refused_by_name(levels: int) -> None:
    """A minute at ten levels, for a parser that tries each in several ways."""
    deep = "match x:\n    case " + "{1: " * levels + "y" + "}" * levels + ":\n        pass\n"
    write_tree(Path(), {"deep.py": APEX + deep, "good.py": APEX})
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report) == {"deep.py": "failed", "good.py": "migrated"}
    assert "nested too deeply; the limit is 8 levels of patterns" in said(report, "deep.py")


@pytest.mark.parametrize(
    "deep",
    [
        "x = " + "+".join(["y"] * 300) + "\n",
        "match x:\n    case [{'a': ([y], C(z=[w, *_]))}] | y if y:\n        pass\n",
        "if x == 0:\n    pass\n" + "".join(f"elif x == {i}:\n    pass\n" for i in range(150)),
        "x = y" + ".z(1)" * 40 + "\n",
    ],
)
def test_what_people_write_is_read_and_written(deep: str) -> None:
    write_tree(Path(), {"train.py": "x = y = 0\n" + APEX + deep})
    assert run("rewrite", ".").exit_code == 0
    assert Path("train.py").read_text().endswith(deep)
    assert "scaler.scale(loss).backward()" in Path("train.py").read_text()


def test_the_limit_leaves_recursion_as_it_was() -> None:
    before = sys.getrecursionlimit()
    write_tree(Path(), {"train.py": APEX})
    run("check", ".")
    assert sys.getrecursionlimit() == before
    assert before > MAX_DEPTH


def test_numbers_of_thousands_of_digits() -> None:
    digits = "1" * 5000
    cell = {"cell_type": "code", "source": APEX.splitlines(keepends=True)}
    notebook = json.dumps({"cells": [cell], "metadata": {"n": 0}, "nbformat": 4}).replace('"n": 0', f'"n": {digits}')
    settings = '{"amp": {"enabled": true, "opt_level": "O1"}, "train_batch_size": ' + digits + "}"
    write_tree(Path(), {"nb.ipynb": notebook, "ds.json": settings, "good.py": APEX})
    code, report = run_json("rewrite", ".")
    assert code in (0, 1)
    assert statuses(report)["good.py"] == statuses(report)["nb.ipynb"] == "migrated"
    assert digits in Path("nb.ipynb").read_text()
    assert digits in Path("ds.json").read_text()


def test_json_nested_too_deeply() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    write_tree(
        Path(),
        {
            "ds.json": '{"train_batch_size": 8, "amp": {"enabled": true, "opt_level": "O1"}, "n": ' + deep + "}",
            "nb.ipynb": '{"cells": [], "apex": 1, "n": ' + deep + "}",
            "good.py": APEX,
        },
    )
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report)["good.py"] == "migrated"
    assert statuses(report)["ds.json"] == "failed"
    assert said(report, "ds.json") == "nested too deeply; what it has of Apex stays as it is"
    assert said(report, "nb.ipynb") == "is not a notebook: nested too deeply; what it has of Apex stays as it is"


@pytest.mark.parametrize(
    ("levels", "code"),
    [(90, None), (101, "AMP003"), (1000, "AMP003"), (3000, "AMP005")],  # the last has more bytes than are read
)
def test_yaml_nested_too_deeply(levels: int, code: str | None) -> None:
    deep = "".join(f"{' ' * level}k{level}:\n" for level in range(levels)) + " " * levels
    write_tree(
        Path(),
        {
            "ds.yaml": f"train_batch_size: 8\namp:\n  enabled: true\n  opt_level: O1\n{deep}x: 1\n",
            "end.yaml": f"{deep}amp_backend: apex\n",
            "data.yaml": f"amp: a word\n{deep}x: 1\n",
            "good.py": APEX,
        },
    )
    started = time.process_time()
    code_, report = run_json("rewrite", ".")
    assert time.process_time() - started < 4  # each line of thousands of spaces was searched for each pattern: 15 s
    found = {f["path"]: f["findings"][0]["code"] for f in report["files"]}
    assert found.pop("good.py") == "AMP101"
    if code is None:
        assert (code_, found) == (1, {"ds.yaml": "AMP804", "end.yaml": "AMP801"})
        return
    assert code_ == 2
    # What is no setting that Apex alone has is not looked for in a file of megabytes.
    assert found == {"end.yaml": code} | ({"ds.yaml": code} if levels < 3000 else {})
    assert "Apex stays as it is" in said(report, "end.yaml")


def test_a_crash_over_settings_is_confined_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*arguments: object, **options: object) -> None:
        raise KeyError("boom")

    monkeypatch.setattr("amp_migrate.rules.frameworks.configuration.File.changes", crash)
    write_tree(Path(), {"t.yaml": "trainer:\n  amp_backend: apex\n", "good.py": APEX})
    code, report = run_json("rewrite", ".")
    assert code == 3
    assert statuses(report) == {"good.py": "migrated", "t.yaml": "failed"}
    assert said(report, "t.yaml") == "internal error: KeyError: 'boom'"


@pytest.mark.parametrize("codec", ["rot13", "hex", "nonsense"])
def test_a_codec_that_is_none_of_text(codec: str) -> None:
    write_tree(Path(), {"odd.py": f"# coding: {codec}\n{APEX}", "good.py": APEX})
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report) == {"odd.py": "failed", "good.py": "migrated"}
    assert said(report, "odd.py").startswith("encoding declaration: ")
    assert codec in said(report, "odd.py")


def test_a_file_of_gigabytes_is_not_read() -> None:
    write_tree(Path(), {"big.py": "", "good.py": APEX})
    os.truncate("big.py", MOST_BYTES + 1)  # a hole, on most systems
    code, report = run_json("check", ".")
    assert code == 2
    assert statuses(report) == {"big.py": "failed", "good.py": "migrated"}
    assert said(report, "big.py") == "268 MB is too large to read; the limit is 268 MB"


def test_lines_of_an_ignore_file_that_are_no_patterns_are_passed_over() -> None:
    write_tree(Path(), {".git/HEAD": "", ".gitignore": "!\nold.py\n", "old.py": APEX, "good.py": APEX})
    code, report = run_json("check", ".")
    assert code == 1
    assert statuses(report) == {"good.py": "migrated"}
    refused = run("check", "--exclude", "!", ".")
    assert refused.exit_code == 2
    assert "--exclude: " in refused.stderr


@pytest.mark.parametrize("pattern", ["*a" * 25 + "b", "?*[a]" * 25 + "b", "**/a/" * 25 + "b"])
def test_patterns_that_could_be_tried_in_a_trillion_ways(pattern: str) -> None:
    deep = "a/" * 60 + "a.py"
    write_tree(Path(), {".git/HEAD": "", ".gitignore": f"{pattern}\n", "a" * 200 + ".py": APEX, deep: APEX})
    code, report = run_json("check", ".")
    assert code == 1
    assert statuses(report) == {"a" * 200 + ".py": "migrated", deep: "migrated"}
    assert run("check", "--exclude", pattern, ".").exit_code == (2 if "**" in pattern else 1)


def test_stars_that_keep_to_their_place_find_what_stars_find() -> None:
    found = "a.py x1-2-3.json a-b-c-d aXbXc ab.ab.abc a/b/aXbXc".split()
    for pattern, expected in {
        "*-*-*.json": {"x1-2-3.json"},
        "*-*-*": {"x1-2-3.json", "a-b-c-d"},
        "*a*b*c": {"aXbXc", "ab.ab.abc", "a/b/aXbXc"},
        "*ab*ab*ab*": {"ab.ab.abc"},
        "*[ab].*[!c]c": {"ab.ab.abc"},
        "*?X?*c": {"aXbXc", "a/b/aXbXc"},
    }.items():
        rules = Rules("/top", [pattern])
        assert {path for path in found if rules.verdict(f"/top/{path}", False)} == expected, pattern


@pytest.mark.skipif(os.name == "nt", reason="paths are limited there")
@pytest.mark.parametrize("levels", [1200, 3000])
def test_folders_that_nest_deeper_than_the_stack_or_than_a_path_may_be(levels: int) -> None:
    write_tree(Path(), {"good.py": APEX})
    here = os.open(".", os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a")
        os.chdir("a")
    Path("deep.py").write_text(APEX)
    os.fchdir(here)
    os.close(here)
    code, report = run_json("check", ".")
    assert statuses(report)["good.py"] == "migrated"
    assert code == (1 if levels < 2000 else 2)
    subprocess.run(["rm", "-rf", "a"], check=True)


def test_processes_that_are_not_granted_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ProcessPoolExecutor

    def refused(*arguments: object, **named: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(ProcessPoolExecutor, "map", refused)
    monkeypatch.setattr("amp_migrate.sources.project.PARALLEL_FROM", 1)
    write_tree(Path(), {f"{n}.py": APEX for n in range(8)})
    code, report = run_json("check", "-j", "2", ".")
    assert (code, len(report["files"])) == (1, 8)


@pytest.mark.parametrize("name", ["run.sh", "README.md", "Dockerfile"])
def test_a_line_of_thousands_of_commands(name: str) -> None:
    write_tree(Path(), {name: "pip install " * 30_000 + "apex\npip install apex\n"})
    code, report = run_json("check", ".")
    assert code == 1
    assert {f["line"] for file in report["files"] for f in file["findings"]} == {2}


@pytest.mark.skipif(os.name == "nt", reason="there are no such pipes there")
@pytest.mark.parametrize(
    "name",
    [
        ".gitignore",
        ".git/info/exclude",
        "apex/setup.py",
        "requirements.txt",
        ".amp-migrate.0.journal",
    ],
)
def test_no_pipe_is_waited_for(name: str) -> None:
    write_tree(Path(), {".git/HEAD": "", "good.py": APEX})
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(name)
    started = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "check", "."], capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode in (1, 2), started.stderr
    assert "good.py" in started.stdout


@pytest.mark.skipif(os.name == "nt", reason="a folder that is in use cannot be removed there")
def test_the_folder_that_we_stand_in_was_removed() -> None:
    gone = "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", gone, sys.executable, "-m", "amp_migrate", "check", "."]
    started = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (started.returncode, started.stderr) == (2, "amp-migrate: [Errno 2] No such file or directory\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = " + "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("x" + ".a" * 100_000 + " = 1", "nested too deeply"),
        ("x = " + "1" * 5000, "digits"),
        ('x = """', "string"),
    ],
)
def test_a_pyproject_that_cannot_be_read_is_named(content: str, words: str) -> None:
    write_tree(Path(), {"pyproject.toml": f"[tool.amp-migrate]\n{content}\n", "good.py": APEX})
    result = run("check", ".")
    assert result.exit_code == 2
    assert "pyproject.toml: " in result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr


class TestDefects:
    """A crash of ours: exit code 3, one line, and the files that have nothing to do with it are done."""

    def test_only_what_it_crashes_on_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(program: Program, options: Options, tell: object = None) -> list[FileResult]:
            if any("odd" in s.display for s in program.targets):
                raise KeyError("boom")
            return fake_engine(program, options)

        write_tree(Path(), {"a.py": SITE, "odd.py": "import b\n" + SITE, "b.py": SITE, "c/d.py": SITE})
        with engine(monkeypatch, crash):
            code, report = run_json("rewrite", ".")
        assert code == 3
        assert statuses(report) == {"a.py": "migrated", "b.py": "failed", "c/d.py": "migrated", "odd.py": "failed"}
        assert said(report, "odd.py").startswith("internal error: KeyError: 'boom'")
        assert "NEW" in Path("a.py").read_text()
        assert "NEW" not in Path("b.py").read_text()

    def test_a_crash_elsewhere_is_one_line_and_3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(*arguments: object, **named: object) -> None:
            raise KeyError("bo\x1bom")

        monkeypatch.setattr("amp_migrate.reports.render", crash)
        write_tree(Path(), {"a.py": APEX})
        result = run("check", ".")
        assert result.exit_code == 3
        assert result.stderr.startswith("amp-migrate: internal error: KeyError: 'bo\\x1bom'\nPlease report this")

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_full_disk_under_our_output_is_none(self, unbuffered: str) -> None:
        write_tree(Path(), {"a.py": APEX})
        if not os.path.exists("/dev/full"):
            pytest.skip("no such device here")
        import subprocess

        for arguments in (["check", "."], ["--version"], ["--help"]):
            with open("/dev/full", "w") as full:
                command = [sys.executable, "-m", "amp_migrate", *arguments]
                env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env)
            assert done.returncode == 2
            assert "no space left on device" in done.stderr
            assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("closed", "arguments", "code", "said"),
        [
            (">&-", "rewrite a.py", 0, ""),
            ("2>&-", "rewrite a.py", 0, "migrated"),
            ("<&-", "rewrite -", 2, "standard input is closed"),
        ],
    )
    def test_what_whoever_started_us_has_closed(self, closed: str, arguments: str, code: int, said: str) -> None:
        import subprocess

        write_tree(Path(), {"a.py": APEX})
        command = f'exec "$0" -m amp_migrate {arguments} {closed}'
        done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert said in done.stdout + done.stderr
        assert ("apex" in Path("a.py").read_text()) == (code != 0)


@pytest.mark.parametrize(("broken", "read"), [("args.growth", False), ("args.other", True)])
def test_what_a_file_that_does_not_parse_may_read_is_not_said_to_be_read_nowhere(broken: str, read: bool) -> None:
    train = APEX.replace('opt_level="O1"', 'opt_level="O1", keep_batchnorm_fp32=args.growth')
    options = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--growth')\nargs = parser.parse_args()\n"
    write_tree(Path(), {"train.py": options + train, "old.py": f"print {broken}\n"})
    report = run_json("rewrite", "--check", ".")[1]
    assert ("nothing reads it any more" in said(report, "train.py")) is read
    assert ("of the files that parse, none reads it any more" in said(report, "train.py")) is not read
