from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amp_migrate import config
from amp_migrate.engine import Program
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from tests.cli_testing import HARD, SITE, engine, fake_engine, run, write_tree


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


def configure(text: str, path: str = "pyproject.toml") -> None:
    write_tree(Path(), {path: text})


def test_options_of_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Options] = []

    def record(program: Program, options: Options, tell: object = None) -> list[FileResult]:
        seen.append(options)
        return fake_engine(program, options)

    configure(
        '[tool.amp-migrate]\nselect = ["AMP1", "AMP2"]\nignore = ["AMP201"]\ndtype = "bfloat16"\ndevice = "cpu"\n'
        'eval = "fp32"\npartial = true\ncheckpoint-compat = true\njobs = 1\n'
    )
    write_tree(Path(), {"a.py": SITE})
    with engine(monkeypatch, record):
        run("rewrite", ".")
        run("rewrite", "--dtype", "float16", "--select", "AMP3", ".")
    assert seen[0] == Options("bfloat16", "cpu", "fp32", True, True, ("AMP1", "AMP2"), ("AMP201",))
    assert seen[1] == Options("float16", "cpu", "fp32", True, True, ("AMP3",), ("AMP201",))


def test_exclude_is_relative_to_the_file_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    configure('[tool.amp-migrate]\nexclude = ["src/old/"]\nquiet = true\n')
    write_tree(Path(), {"src/old/a.py": HARD, "src/b.py": HARD})
    monkeypatch.chdir("src")
    assert run("check", ".").stdout == "b.py:1:1 AMP110 cannot: 100%, sorry\n"
    assert run("check", "--exclude", "b.py", ".").stdout == "old/a.py:1:1 AMP110 cannot: 100%, sorry\n"


def test_format(monkeypatch: pytest.MonkeyPatch) -> None:
    configure('[tool.amp-migrate]\nformat = "github"\n')
    write_tree(Path(), {"a.py": HARD})
    assert run("check", "a.py").stdout.startswith("::error file=a.py")
    assert run("check", "--format", "text", "a.py").stdout.startswith("0 of 1 ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[tool.amp-migrate]\nselects = ['AMP1']\n",
            "unknown key 'selects' in [tool.amp-migrate]; did you mean 'select'?",
        ),
        ("[tool.amp-migrate]\ncolour = true\n", "unknown key 'colour'"),
        ("[tool.amp-migrate]\ndtype = 'int8'\n", "dtype in [tool.amp-migrate]: expected one of float16, bfloat16"),
        ("[tool.amp-migrate]\npartial = 'yes'\n", "partial in [tool.amp-migrate]: expected true or false"),
        ("[tool.amp-migrate]\nexclude = [1]\n", "exclude in [tool.amp-migrate]: expected a list of strings"),
        ("[tool.amp-migrate]\njobs = -1\n", "jobs in [tool.amp-migrate]"),
        ("[tool]\namp-migrate = 3\n", "tool.amp-migrate is not a table"),
        ("[tool.amp-migrate\n", "pyproject.toml: "),
    ],
)
def test_mistakes_are_usage_errors_that_name_file_and_key(text: str, words: str) -> None:
    configure(text)
    write_tree(Path(), {"a.py": SITE})
    result = run("rewrite", "a.py")
    assert result.exit_code == 2
    assert "pyproject.toml: " in result.stderr
    assert words in result.stderr
    assert Path("a.py").read_text() == SITE


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _leading_nowhere(path: Path) -> None:
    path.symlink_to("nowhere.toml")


def _leading_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _latin(path: Path) -> None:
    path.write_bytes(b"[tool.amp-migrate]\npartial = true  # na\xefvely\n")


def _utf_16(path: Path) -> None:
    path.write_text("[tool.amp-migrate]\npartial = true\n", encoding="utf-16")


@pytest.mark.skipif(os.name == "nt", reason="pipes and links are others there")
@pytest.mark.parametrize("command", [("check", "."), ("rewrite", "."), ("verify",), ("verify", "--init", ".")])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_folder, "pyproject.toml: cannot be read: it is a folder"),
        (_pipe, "pyproject.toml: cannot be read: not a regular file"),
        (_leading_nowhere, "pyproject.toml: cannot be read: a symbolic link to nothing"),
        (_leading_to_itself, "pyproject.toml: cannot be read: too many levels of symbolic links"),
        (_latin, "pyproject.toml:2:21: TOML is UTF-8, and byte 0xef is not"),
        (_utf_16, "pyproject.toml:1:1: TOML is UTF-8, and byte 0xff is not"),
    ],
)
def test_one_that_cannot_be_read_may_say_what_is_to_be_left_alone(
    make: Callable[[Path], None], words: str, command: tuple[str, ...]
) -> None:
    make(Path("pyproject.toml"))
    write_tree(Path(), {"a.py": SITE})
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert Path("a.py").read_text() == SITE


def test_one_that_is_closed_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    configure("[tool.amp-migrate]\nexclude = ['a.py']\n")
    write_tree(Path(), {"a.py": SITE})
    opened = os.open

    def closed(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("pyproject.toml"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", closed)
    result = run("rewrite", ".")
    assert result.exit_code == 2
    assert "pyproject.toml: cannot be read: permission denied" in result.stderr
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # a folder above that cannot be looked into
    assert "permission denied" not in run("check", "a.py").stderr


def test_broken_toml_of_others_is_not_our_business() -> None:
    configure("[tool.black\n")
    write_tree(Path(), {"a.py": "x = 1\n"})
    assert run("check", "a.py").exit_code == 0


def test_nearest_file_with_the_section_up_to_the_repository(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "pyproject.toml": "[tool.amp-migrate]\npartial = true\n",
            "repo/.git/HEAD": "",
            "repo/pkg/pyproject.toml": "[project]\nname = 'amp-migrate-user'\n",
            "repo/pkg/a.py": "",
            "mono/pyproject.toml": "[tool.amp-migrate]\ndevice = 'cpu'\n",
            "mono/pkg/pyproject.toml": "[project]\nname = 'x'\n",
            "mono/pkg/a.py": "",
        },
    )
    assert config.load(["repo/pkg/a.py"]).values == {}
    found = config.load(["mono/pkg/a.py"])
    assert found.values == {"device": "cpu"}
    assert found.folder == str((tmp_path / "mono").resolve())
    assert config.load(["mono/pkg", "repo/pkg"]).values == {"partial": True}


def test_verify_cases() -> None:
    configure('[[tool.amp-migrate.verify]]\nscript = "a.py"\n[[tool.amp-migrate.verify]]\nscript = "b.py"\n')
    assert [case["script"] for case in config.load().verify] == ["a.py", "b.py"]
    configure("[tool.amp-migrate]\nverify = 1\n")
    with pytest.raises(config.ConfigError, match="verify"):
        config.load()


def test_without_a_file() -> None:
    assert config.load().values == {}
    assert config.load().verify == []
