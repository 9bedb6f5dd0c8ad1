from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from amp_migrate.engine import Program
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.replace import WriteError
from tests.cli_testing import HARD, NOTE, SITE, engine, fake_engine, git, run, run_json, write_tree

MAIN = "if __name__ == '__main__':\n    main()\n"


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


def test_writes_in_place_and_says_so() -> None:
    write_tree(Path(), {"a.py": SITE, "b/c.py": SITE + SITE, "d.py": "x = 1\n"})
    result = run("rewrite", ".")
    assert result.exit_code == 0
    assert result.stdout.startswith("3 of 3 Apex sites migrated in 2 files\n\nNext: prove that")
    assert result.stderr == ""
    assert Path("a.py").read_text() == SITE.replace("OLD", "NEW")
    assert Path("d.py").read_text() == "x = 1\n"


def test_text_report_first_line_then_hand_then_look() -> None:
    write_tree(Path(), {"a.py": SITE + HARD + NOTE, "b.py": SITE + MAIN})
    result = run("rewrite", ".")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "2 of 3 Apex sites migrated in 2 files; 1 needs a hand",
        "a.py:2:1 AMP110 cannot: 100%, sorry",
        "",
        "Worth a look:",
        "a.py:3:1 AMP112 O2 differs",
        "",
        "Next: prove that the training did not change:",
        "  amp-migrate verify --original-rev REV b.py -- ARGS",
        "REV is a commit that holds these files as they were.",
        "What is written needs torch>=2.4.",
    ]


def test_quiet_prints_only_what_needs_a_hand() -> None:
    write_tree(Path(), {"a.py": SITE + HARD + NOTE, "b.py": SITE})
    assert run("rewrite", "--quiet", "a.py").stdout == "a.py:2:1 AMP110 cannot: 100%, sorry\n"
    assert run("rewrite", "--quiet", "b.py").stdout == ""


def test_json_fields_are_those_of_the_contract() -> None:
    write_tree(Path(), {"a.py": SITE + HARD + NOTE, "b.py": HARD, "c.py": SITE, "d.py": "", "bad.py": "apex = (\n"})
    code, report = run_json("rewrite", ".")
    assert code == 2
    assert report["version"] == 1
    assert [(f["path"], f["status"]) for f in report["files"]] == [
        ("a.py", "partial"),
        ("b.py", "blocked"),
        ("bad.py", "failed"),
        ("c.py", "migrated"),
    ]
    assert report["files"][0]["findings"][0] == {
        "code": "AMP201",
        "line": 1,
        "column": 1,
        "construct": "amp.scale_loss",
        "status": "done",
        "review": "as-is",
        "message": "scaled backward",
    }
    assert report["summary"] == {
        "files": 5,
        "apex_files": 3,
        "migrated": 1,
        "partial": 1,
        "blocked": 1,
        "failed": 1,
        "sites": 4,
        "sites_done": 2,
        "sites_manual": 2,
    }


def test_json_is_printed_where_there_is_nothing_to_do() -> None:
    write_tree(Path(), {"a.py": "x = 1\n"})
    code, report = run_json("rewrite", ".")
    assert code == 0
    assert report["files"] == []
    assert report["summary"]["files"] == 1


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_check_and_diff_write_nothing_and_exit_1(option: str) -> None:
    write_tree(Path(), {"a.py": SITE, "b.py": "x = 1\n"})
    result = run("rewrite", option, ".")
    assert result.exit_code == 1
    assert Path("a.py").read_text() == SITE
    assert run("rewrite", option, "b.py").exit_code == 0


def test_check_lists_what_would_change() -> None:
    write_tree(Path(), {"a.py": SITE, "b.py": HARD})
    result = run("rewrite", "--check", ".")
    assert "1 of 2 Apex sites would be migrated in 1 file; 1 needs a hand" in result.stdout
    assert "Would change:\na.py\n\nNext: `amp-migrate rewrite .` writes this." in result.stdout


def test_diff_on_stdout_report_on_stderr() -> None:
    write_tree(Path(), {"pkg/a.py": "import x\n" + SITE})
    result = run("rewrite", "--diff", "pkg")
    assert result.stdout == "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1,2 +1,2 @@\n import x\n-OLD = 'apex'\n+NEW = 'apex'\n"
    assert result.stderr.startswith("1 of 1 Apex sites would be migrated in 1 file\n")


@pytest.mark.parametrize("output", ["json", "sarif"])
def test_with_diff_a_machine_format_keeps_stdout(output: str) -> None:
    write_tree(Path(), {"a.py": SITE})
    result = run("rewrite", "--diff", "--format", output, ".")
    assert json.loads(result.stdout)["version"] in (1, "2.1.0")
    assert "+NEW" in result.stderr
    assert result.exit_code == 1


def test_diff_applies_with_git(tmp_path: Path) -> None:
    import subprocess

    write_tree(Path(), {"a.py": "x\r\n" + SITE.replace("\n", "\r\n") + "OLD = 'apex'"})
    diff = run("rewrite", "--diff", ".").stdout_bytes
    subprocess.run(["git", "init", "-q", "."], check=True, cwd=tmp_path)
    subprocess.run(["git", "apply", "-"], input=diff, check=True, cwd=tmp_path)
    assert Path("a.py").read_bytes() == b"x\r\nNEW = 'apex'\r\nNEW = 'apex'"


class TestStandardInput:
    def test_program_on_stdout_report_on_stderr(self) -> None:
        result = run("rewrite", "-", stdin="# é\r\n" + SITE)
        assert result.stdout_bytes == "# é\r\nNEW = 'apex'\n".encode()
        assert result.stderr == "1 of 1 Apex sites migrated in 1 file\n"
        assert result.exit_code == 0

    def test_unreadable_input_passes_through_with_2(self) -> None:
        result = run("rewrite", "-", stdin=b"apex = (\n\xff")
        assert result.stdout_bytes == b"apex = (\n\xff"
        assert result.exit_code == 2
        assert "<stdin>:2:1 AMP002" in result.stderr

    def test_other_encoding_comes_back_in_it(self) -> None:
        program = b"# -*- coding: latin-1 -*-\n# \xe9\nOLD = 'apex'\n"
        assert run("rewrite", "-", stdin=program).stdout_bytes == program.replace(b"OLD", b"NEW")

    def test_diff_and_check(self) -> None:
        result = run("rewrite", "--diff", "-", stdin=SITE)
        assert result.exit_code == 1
        assert result.stdout.startswith("--- <stdin>\n+++ <stdin>\n")
        result = run("rewrite", "--check", "-", stdin=SITE)
        assert result.stdout.startswith("1 of 1 Apex sites would be migrated")

    def test_goes_with_no_other_path(self) -> None:
        result = run("rewrite", "-", "a.py")
        assert result.exit_code == 2
        assert "standard input" in result.stderr


class TestExitCode2:
    def test_missing_path(self) -> None:
        write_tree(Path(), {"a.py": SITE})
        result = run("rewrite", "a.py", "gone.py")
        assert result.exit_code == 2
        assert "gone.py:1:1 AMP001 cannot be read: no such file or folder" in result.stdout
        assert "NEW" in Path("a.py").read_text()

    def test_no_path(self) -> None:
        assert run("rewrite").exit_code == 2

    def test_unknown_option(self) -> None:
        assert run("rewrite", "--frobnicate", ".").exit_code == 2

    @pytest.mark.parametrize(
        ("content", "code", "line", "words"),
        [
            (b"import apex\nx = (\n", "AMP003", 2, "does not parse"),
            (b"import apex\nprint 'x'\n", "AMP004", 2, "Python 2 syntax: print statement, line 2"),
            (b"import apex\ntry:\n    f()\nexcept E, e:\n    pass\n", "AMP004", 4, "except clause"),
            (b"import apex\n# \xe9\n", "AMP002", 2, "byte 0xe9 is not valid utf-8, line 2"),
            (b"import apex\nx = 'a\0b'\n", "AMP002", 2, "NUL"),
            (b"# coding: klingon\nimport apex\n", "AMP003", 1, "encoding"),
            (b"import apex\n" + b"x = 1\n" * 900_000, "AMP005", 1, "too large"),
        ],
    )
    def test_unreadable_file_is_reported_and_others_done(
        self, content: bytes, code: str, line: int, words: str
    ) -> None:
        write_tree(Path(), {"bad.py": content, "good.py": SITE})
        exit_code, report = run_json("rewrite", ".")
        assert exit_code == 2
        bad = report["files"][0]
        assert (bad["path"], bad["status"]) == ("bad.py", "failed")
        assert (bad["findings"][0]["code"], bad["findings"][0]["line"]) == (code, line)
        assert words in bad["findings"][0]["message"]
        assert Path("bad.py").read_bytes() == content
        assert Path("good.py").read_text() == "NEW = 'apex'\n"

    @pytest.mark.parametrize(
        ("content", "level"),
        [
            (b"x = (\n", "look"),
            (b"print 'x'\n", "as-is"),
            (b"# from the base to the apex\ny = 1  # Apex\nprint 'x'\n", "as-is"),
        ],
    )
    def test_a_broken_file_without_apex_is_told_as_such(self, content: bytes, level: str) -> None:
        write_tree(Path(), {"bad.py": content, "good.py": SITE})
        exit_code, report = run_json("rewrite", ".")
        assert exit_code == 2
        bad = report["files"][0]
        assert bad["status"] == "failed"
        assert bad["findings"][0]["review"] == level
        assert "it names nothing of Apex" in bad["findings"][0]["message"]

    @pytest.mark.parametrize(
        ("content", "wanted"),
        [
            (b"from apex import amp\nx = (\n", "; what it has of Apex stays as it is"),
            (b"from torch.cuda.amp import autocast\nx = (\n", ", line 2"),
            (b"# apex\nimport apex  # of NVIDIA\nprint 'x'\n", "; what it has of Apex stays as it is"),
            (b"x = '#', load('apex')\nprint 'x'\n", "; what it has of Apex stays as it is"),
        ],
    )
    def test_a_broken_file_with_apex_keeps_it(self, content: bytes, wanted: str) -> None:
        write_tree(Path(), {"bad.py": content, "good.py": SITE})
        _, report = run_json("rewrite", ".")
        (finding,) = report["files"][0]["findings"]
        assert finding["review"] == "review"
        assert finding["message"].endswith(wanted)

    def test_a_broken_notebook_is_weighed_by_its_code(self) -> None:
        """The letters turn up in the pictures."""
        picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORapex"}}
        cell = {"cell_type": "code", "source": ["x = ("], "outputs": [picture], "metadata": {}, "execution_count": 1}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        write_tree(Path(), {"show.ipynb": json.dumps(notebook), "good.py": SITE})
        _, report = run_json("rewrite", ".")
        (finding,) = next(x for x in report["files"] if x["path"] == "show.ipynb")["findings"]
        assert finding["message"].endswith("it names nothing of Apex")

    @pytest.mark.parametrize(("source", "expected"), [("import torch", 0), ("import apex", 2)])
    def test_a_large_notebook_is_read_by_its_code(self, source: str, expected: int) -> None:
        """The letters turn up in the pictures."""
        picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORApexAPEX" * 200_000}}
        cell = {"cell_type": "code", "source": [source], "outputs": [picture], "metadata": {}, "execution_count": 1}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        write_tree(Path(), {"show.ipynb": json.dumps(notebook), "good.py": SITE})
        exit_code, report = run_json("rewrite", ".")
        assert exit_code == expected
        assert [f["code"] for x in report["files"] if x["path"] == "show.ipynb" for f in x["findings"]] == (
            ["AMP005"] if expected else []
        )

    @pytest.mark.parametrize(
        "script", [b"import apex\nprint(args.opt_level 1)\n", b"import apex\n# \xe9\nargs.opt_level\n"]
    )
    def test_what_cannot_be_read_may_read_a_setting(self, script: bytes) -> None:
        write_tree(Path(), {"train.py": script, "config.yaml": "fp16:\n  opt_level: O1\n"})
        _, report = run_json("rewrite", ".")
        assert [f["code"] for x in report["files"] if x["path"] == "config.yaml" for f in x["findings"]] == ["AMP853"]
        Path("train.py").write_bytes(script.replace(b"opt_level", b"level"))
        _, report = run_json("rewrite", ".")
        assert [f["code"] for x in report["files"] if x["path"] == "config.yaml" for f in x["findings"]] == ["AMP809"]

    def test_broken_symlink(self) -> None:
        write_tree(Path(), {"good.py": SITE})
        os.symlink("nowhere.py", "link.py")
        code, report = run_json("rewrite", ".")
        assert code == 2
        assert report["files"][1] | {"findings": []} == {"path": "link.py", "status": "failed", "findings": []}

    def test_folder_without_permission(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write_tree(Path(), {"locked/x.py": SITE, "good.py": SITE})
        scandir = os.scandir

        def deny(path: str) -> object:
            if str(path).endswith("locked"):
                raise PermissionError(13, "Permission denied")
            return scandir(path)

        monkeypatch.setattr("os.scandir", deny)
        code, report = run_json("rewrite", ".")
        assert code == 2
        assert report["files"][1]["path"] == "locked"
        assert report["files"][1]["findings"][0]["message"] == "cannot be read: permission denied"
        assert "NEW" in Path("good.py").read_text()

    def test_broken_file_without_apex_in_a_project_with_apex_is_not_clean(self) -> None:
        # It might call what is migrated.
        write_tree(Path(), {"helper.py": "def f(:\n", "train.py": SITE})
        code, report = run_json("rewrite", ".")
        assert code == 2
        assert report["files"][0]["path"] == "helper.py"

    def test_broken_file_named_itself_is_never_clean(self) -> None:
        write_tree(Path(), {"helper.py": "def f(:\n"})
        assert run("rewrite", "helper.py").exit_code == 2
        assert run("check", "helper.py").exit_code == 2

    def test_headline_counts_failures(self) -> None:
        write_tree(Path(), {"bad.py": "def f(:\n", "a.py": SITE})
        lines = run("rewrite", ".").stdout.splitlines()
        assert lines[0] == "1 of 1 Apex sites migrated in 1 file; 1 file could not be read"
        assert lines[1].startswith("bad.py:1:7 AMP003 does not parse with Python 3.")


def refuse_to_write(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file = os.replace

    def refuse(source: str, target: str) -> None:
        if str(target).endswith(name):
            raise PermissionError(13, "Permission denied")
        replace_file(source, target)

    monkeypatch.setattr("os.replace", refuse)


class TestWriting:
    def test_a_unit_that_cannot_be_written_stays_whole_and_others_are_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unit = "UNIT = 'apex'\n" + SITE
        write_tree(Path(), {"a.py": unit, "b.py": unit, "c.py": SITE})
        refuse_to_write("b.py", monkeypatch)
        code, report = run_json("rewrite", ".")
        assert code == 2
        assert Path("a.py").read_text() == unit
        assert Path("b.py").read_text() == unit
        assert "NEW" in Path("c.py").read_text()
        assert [f["status"] for f in report["files"]] == ["failed", "failed", "migrated"]
        assert report["files"][0]["findings"][0]["message"] == "not written, because b.py could not be"
        assert report["files"][1]["findings"][0]["message"] == "cannot be written: permission denied"
        assert report["summary"]["sites_done"] == 1
        assert report["summary"]["sites_manual"] == 2
        assert sorted(os.listdir()) == ["a.py", "b.py", "c.py"]

    def test_files_that_import_one_another_are_written_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write_tree(Path(), {"a.py": "import b\n" + SITE, "b.py": SITE, "c.py": SITE})
        refuse_to_write("b.py", monkeypatch)
        assert run("rewrite", ".").exit_code == 2
        assert ["NEW" in Path(f"{name}.py").read_text() for name in "abc"] == [False, False, True]

    def test_a_polite_kill_puts_a_half_written_unit_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        unit = "UNIT = 'apex'\n" + SITE
        write_tree(Path(), {"a.py": unit, "b.py": unit})
        replace_file = os.replace

        def killed(source: str, target: str) -> None:
            replace_file(source, target)
            if str(target).endswith("b.py") and "NEW" in Path(target).read_text():
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr("os.replace", killed)
        before = signal.getsignal(signal.SIGTERM)
        assert run("rewrite", ".").exit_code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is before
        assert [Path(name).read_text() for name in ("a.py", "b.py")] == [unit, unit]
        assert sorted(os.listdir()) == ["a.py", "b.py"]

    def test_headline_says_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write_tree(Path(), {"a.py": SITE})

        def refuse(changes: object, stop_if_asked: object) -> None:
            raise WriteError("a.py", SourceError("AMP006", "cannot be written: no space left on device"))

        monkeypatch.setattr("amp_migrate.sources.replace.replace_together", refuse)
        assert "1 file could not be written" in run("rewrite", ".").stdout

    def test_bytes_mode_and_links_are_kept(self) -> None:
        content = b"\xef\xbb\xbf# \xc3\xa9\r\nOLD = 'apex'\t\r\n\x0cx = 1"
        write_tree(Path(), {"real/a.py": content})
        os.chmod("real/a.py", 0o755)
        Path("links").mkdir()
        os.symlink("../real/a.py", "links/b.py")
        assert run("rewrite", "links/b.py").exit_code == 0
        assert Path("real/a.py").read_bytes() == content.replace(b"OLD", b"NEW")
        assert Path("real/a.py").stat().st_mode & 0o777 == 0o755
        assert os.path.islink("links/b.py")

    def test_second_run_changes_nothing(self) -> None:
        write_tree(Path(), {"a.py": SITE})
        run("rewrite", ".")
        before = Path("a.py").stat().st_mtime_ns
        assert run("rewrite", ".").exit_code == 0
        assert Path("a.py").stat().st_mtime_ns == before


class TestEngineFaults:
    def test_a_crash_is_a_failure_of_the_files_with_apex(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(program: Program, options: Options, tell: object = None) -> list[FileResult]:
            raise KeyError("boom")

        write_tree(Path(), {"a.py": SITE, "b.py": "x = 1\n"})
        with engine(monkeypatch, crash):
            code, report = run_json("rewrite", ".")
        assert code == 3
        assert [f["path"] for f in report["files"]] == ["a.py"]
        assert report["files"][0]["findings"][0]["message"] == "internal error: KeyError: 'boom'"

    def test_output_that_does_not_parse_is_never_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(program: Program, options: Options, tell: object = None) -> list[FileResult]:
            return [FileResult(s.display, "migrated", [], s.text, "x = (\n") for s in program.targets]

        write_tree(Path(), {"a.py": SITE})
        with engine(monkeypatch, broken):
            code, report = run_json("rewrite", ".")
        assert code == 3
        assert report["files"][0]["findings"][0]["code"] == "AMP007"
        assert Path("a.py").read_text() == SITE


def _deaf_engine(program: Program, options: Options, tell: object = None) -> list[FileResult]:
    """Migrates every OLD, whatever was asked."""
    text = "amp-migrate: ignore"
    heard = [replace(source, text=source.text.replace(text, "-" * len(text))) for source in program.targets]
    results = fake_engine(Program(heard), Options())
    for source, result in zip(program.targets, results, strict=True):
        result.before, result.after = source.text, source.text.replace("OLD", "NEW")
    return results


class TestOptions:
    def test_options_reach_the_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Options] = []

        def record(program: Program, options: Options, tell: object = None) -> list[FileResult]:
            seen.append(options)
            return fake_engine(program, options)

        write_tree(Path(), {"a.py": SITE})
        with engine(monkeypatch, record):
            run("rewrite", "--check", ".")
            run(
                *("rewrite", "--check", ".", "--dtype", "bfloat16", "--device", "xpu", "--eval", "fp32", "--partial"),
                *("--checkpoint-compat", "--select", "AMP2,amp110", "--select", "4", "--ignore", "AMP201"),
            )
        assert seen[0] == Options()
        assert seen[1] == Options("bfloat16", "xpu", "fp32", True, True, ("AMP2", "AMP110", "AMP4"), ("AMP201",))

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--dtype", "int8"),
            ("--eval", "half"),
            ("--format", "xml"),
            ("--device", "cuda:0"),
            ("--select", "AMP2O1"),
            ("--ignore", "nope"),
            ("-j", "-1"),
        ],
    )
    def test_values_out_of_range_are_usage_errors(self, arguments: tuple[str, str]) -> None:
        write_tree(Path(), {"a.py": SITE})
        assert run("rewrite", *arguments, ".").exit_code == 2
        assert Path("a.py").read_text() == SITE

    def test_ignored_codes_neither_report_nor_count(self) -> None:
        write_tree(Path(), {"a.py": HARD})
        assert run("rewrite", ".").exit_code == 1
        assert run("rewrite", "--ignore", "AMP1", ".").exit_code == 0
        assert run("rewrite", "--select", "AMP2", ".").exit_code == 0

    def test_line_comment_silences(self) -> None:
        write_tree(Path(), {"a.py": "HARD = 'apex'  # amp-migrate: ignore[AMP110]\n"})
        assert run("rewrite", ".").exit_code == 0
        write_tree(Path(), {"a.py": "HARD = 'apex'  # amp-migrate: ignore[AMP3]\n"})
        assert run("rewrite", ".").exit_code == 1

    def test_nothing_is_changed_against_a_comment_or_an_option(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = "OLD = 'apex'  # amp-migrate: ignored below\nOLD2 = 1\n"
        marked = "OLD = 'apex'\nX = OLD(  # amp-migrate: ignore[AMP2]\n)\n"
        write_tree(Path(), {"a.py": "import b\n" + SITE, "b.py": marked, "c.py": SITE, "d.py": kept})
        with engine(monkeypatch, _deaf_engine):
            code, report = run_json("rewrite", ".")
            assert code == 1
            assert Path("b.py").read_text() == marked
            assert Path("a.py").read_text() == "import b\n" + SITE
            assert "NEW" in Path("c.py").read_text()
            assert [f["status"] for f in report["files"]] == ["blocked", "blocked", "migrated", "migrated"]
            assert "left alone with b.py:2, where AMP201 is ignored" in report["files"][0]["findings"][0]["message"]
            write_tree(Path(), {"c.py": SITE})
            assert run("rewrite", "--ignore", "AMP201", "c.py").exit_code == 0
            assert run("rewrite", "--select", "AMP9", "c.py").exit_code == 0
            assert Path("c.py").read_text() == SITE

    def test_exclude(self) -> None:
        write_tree(Path(), {"a.py": SITE, "old/b.py": SITE, "c_gen.py": SITE})
        assert run("rewrite", ".", "--exclude", "old/", "--exclude", "*_gen.py").exit_code == 0
        assert "NEW" in Path("a.py").read_text()
        assert Path("old/b.py").read_text() == SITE
        assert Path("c_gen.py").read_text() == SITE
        assert run("rewrite", "old/b.py", "--exclude", "old").exit_code == 0
        assert Path("old/b.py").read_text() == SITE

    def test_workers_give_the_same_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("amp_migrate.sources.project.PARALLEL_FROM", 0)
        write_tree(Path(), {f"m{i}.py": SITE for i in range(20)} | {"bad.py": "x = (\n"})
        alone = run_json("rewrite", "--check", "-j", "1", ".")
        assert run_json("rewrite", "--check", "-j", "2", ".") == alone
        assert alone[1]["summary"]["sites_done"] == 20
        assert alone[1]["summary"]["failed"] == 1

    def test_summary(self) -> None:
        write_tree(Path(), {"train.py": SITE + HARD + NOTE + "if __name__ == '__main__':\n    pass\n"})
        assert run("rewrite", "--summary", "out.md", ".").exit_code == 1
        text = Path("out.md").read_text()
        assert "| `train.py` | partial | `amp.scale_loss` | 1 merge as is |" in text
        assert "- [ ] `train.py:2` AMP110: cannot: 100%, sorry" in text
        assert "amp-migrate verify --original-rev REV train.py -- ARGS" in text
        assert "REV is a commit that holds these files as they were" in text
        assert run("rewrite", "--summary", "no/such/folder.md", ".").exit_code == 2

    def test_the_summary_names_the_commit_before_the_migration(self) -> None:
        write_tree(Path(), {"train.py": SITE + MAIN, "other.py": "x = 1\n"})
        git("init")
        git("add", ".")
        git("commit", "-m", "apex")
        before = git("rev-parse", "--short", "HEAD").strip()
        Path("other.py").write_text("x = 2\n")  # takes no part
        run("rewrite", "--summary", "out.md", "train.py")
        git("commit", "-am", "migrated")
        assert f"amp-migrate verify --original-rev {before} train.py -- ARGS" in Path("out.md").read_text()
        assert git("show", f"{before}:train.py") == SITE + MAIN
        Path("train.py").write_text(SITE + SITE)
        run("rewrite", "--summary", "out.md", "train.py")
        assert "--original-rev REV" in Path("out.md").read_text()


def test_no_colour_on_a_pipe_nor_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(Path(), {"a.py": SITE + HARD})
    assert "\x1b" not in run("rewrite", "--diff", ".").output
    monkeypatch.setattr("amp_migrate.cli.session.wants_colour", lambda stream: True)
    assert "\x1b[31m" in run("rewrite", "--diff", ".").stdout


def test_context_is_the_project_around_the_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Program] = []

    def record(program: Program, options: Options, tell: object = None) -> list[FileResult]:
        seen.append(program)
        return fake_engine(program, options)

    write_tree(
        Path(),
        {
            "pyproject.toml": "",
            "src/a.py": SITE,
            "src/helper.py": "x = 1\n",
            "lib/b.py": "import torch\nfrom src import a\n",
            "lib/unrelated.py": "import torch\n",
            "bin/c.py": "apex = 1\n",
        },
    )
    with engine(monkeypatch, record):
        run("rewrite", "src")
        run("rewrite", "src/a.py")
    for program in seen:
        assert [s.display for s in program.targets] == ["src/a.py"]
        assert sorted(s.display for s in program.context) == ["bin/c.py", "lib/b.py"]
        assert program.root == Path.cwd()


def test_a_requirement_that_holds_torch_back_is_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)
    pinned = {"requirements.txt": "torch==1.5.1\napex\n", "other/requirements.txt": "torch==1.5.1\n"}
    write_tree(Path(), {"a.py": SITE, "other/b.py": "x = 1\n", **pinned})
    lines = run("rewrite", ".").stdout.splitlines()
    held = "requirements.txt:1: requirement 'torch==1.5.1' holds torch at 1.5.1: the migrated program needs torch>=2.4"
    assert f"Next: {held}: raise it." in lines
    assert not any("other/requirements.txt" in line for line in lines)  # no code beside it changes
    assert "requirements.txt still names Apex: `amp-migrate check .` lists where." in lines
    assert "holds torch" not in run("check", ".").stdout  # nothing is migrated any more: the program is its owner's
