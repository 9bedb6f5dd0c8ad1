"""Reports of made-up results, format by format."""

from __future__ import annotations

import io
import json
import re

import pytest

from amp_migrate import reports
from amp_migrate.findings import Cause, FileResult, Finding, Report, Review
from amp_migrate.reports import diff, github, sarif, summary, text
from amp_migrate.reports.style import Style, wants_colour


def done(line: int, code: str = "AMP201", review: str = "as-is", construct: str = "amp.scale_loss") -> Finding:
    return Finding(line, 5, code, construct, "done", review, f"done {line}")  # type: ignore[arg-type]


def manual(line: int, code: str = "AMP202") -> Finding:
    return Finding(line, 5, code, "step", "manual", "review", f"manual {line}")


def note(line: int, review: Review = "look") -> Finding:
    return Finding(line, 5, "AMP112", "amp.initialize", "note", review, f"note {line}")


def changed(path: str, *findings: Finding, before: str = "a\n", after: str | None = "b\n") -> FileResult:
    return FileResult(path, "migrated", list(findings), before, after)


class TestHeadline:
    def test_of_the_contract(self) -> None:
        results = [changed(f"f{i}.py", *(done(n) for n in range(7 if i else 6))) for i in range(6)]
        results.append(FileResult("x.py", "blocked", [manual(1), manual(2), manual(3)]))
        assert (
            text.headline(Report(results, 7), "rewritten") == "41 of 44 Apex sites migrated in 6 files; 3 need a hand"
        )

    def test_why_files_failed_is_told_apart(self) -> None:
        codes = {"a.py": "AMP001", "b.py": "AMP006", "c.py": "AMP007", "d.py": "AMP190"}
        failed = [FileResult(path, "failed", [note(1), manual(1, code)]) for path, code in codes.items()]
        assert text.headline(Report(failed, 4), "rewritten").split("; ")[-3:] == [
            "1 file could not be read",
            "1 file could not be written",
            "2 files left alone by a defect of amp-migrate",
        ]

    @pytest.mark.parametrize(
        ("results", "files", "line"),
        [
            ([], 0, "No Apex found in 0 files"),
            ([], 1, "No Apex found in 1 file"),
            ([FileResult("a", "unchanged", [note(1)])], 1, "Nothing to migrate in 1 file"),
            ([FileResult("a", "failed", [note(1)])], 1, "1 file could not be read"),
            ([FileResult("a", "blocked", [manual(1)])], 3, "0 of 1 Apex sites migrated in 1 file; 1 needs a hand"),
            ([changed("a")], 3, "No Apex calls; 1 file rewritten"),
            ([changed("a", note(1))], 3, "No Apex calls; 1 file rewritten"),
            ([changed("a", done(1, "AMP901"))], 3, "1 of 1 deprecated AMP sites migrated in 1 file"),
            ([changed("a", done(1, "AMP901"), done(2))], 3, "2 of 2 Apex sites migrated in 1 file"),
        ],
    )
    def test_others(self, results: list[FileResult], files: int, line: str) -> None:
        assert text.headline(Report(results, files), "rewritten") == line


def test_text_orders_sites_and_leaves_out_what_can_be_merged_as_is() -> None:
    report = Report([changed("a.py", note(9), done(3, review="look"), done(4), manual(2), done(1, review="review"))], 1)
    assert text.render(report, "rewritten").splitlines()[1:] == [
        "a.py:2:5 AMP202 manual 2",
        "",
        "Worth a look:",
        "a.py:1:5 AMP201 done 1",
        "a.py:3:5 AMP201 done 3",
        "a.py:9:5 AMP112 note 9",
    ]


def test_colour_changes_nothing_but_colour() -> None:
    report = Report([changed("a.py", note(9), manual(2), done(1))], 1)
    plain, painted = text.render(report, "check"), text.render(report, "check", Style(True))
    assert painted != plain
    assert re.sub(r"\x1b\[\d+m", "", painted) == plain
    assert re.sub(r"\x1b\[\d+m", "", diff.render(report, Style(True))) == diff.render(report)


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


class TestExitCode:
    @pytest.mark.parametrize(
        ("result", "written", "dry"),
        [
            (FileResult("a"), 0, 0),
            (changed("a", done(1)), 0, 1),
            (changed("a"), 0, 1),
            (FileResult("a", "unchanged", [note(1)]), 0, 0),
            (FileResult("a", "partial", [manual(1)], "a", "b"), 1, 1),
            (FileResult("a", "blocked", [manual(1)]), 1, 1),
            (FileResult("a", "failed", [note(1)]), 2, 2),
        ],
    )
    def test_each(self, result: FileResult, written: int, dry: int) -> None:
        assert Report([result], 1).exit_code(dry=False) == written
        assert Report([result], 1).exit_code(dry=True) == dry

    def test_the_highest_applies(self) -> None:
        results = [FileResult("a", "failed"), FileResult("b", "blocked", [manual(1)]), changed("c", done(1))]
        assert Report(results, 3).exit_code(dry=False) == 2


def test_github_escapes_and_leaves_out_what_is_done() -> None:
    odd = Finding(1, 2, "AMP202", "step", "manual", "review", "50%\r\nof: a, b")
    report = Report([changed("a:b,c%.py", odd, done(2), done(3, review="look"))], 1)
    assert github.render(report, "rewritten").splitlines() == [
        "::error file=a%3Ab%2Cc%25.py,line=1,col=2,title=AMP202::50%25%0D%0Aof: a, b",
        "::notice file=a%3Ab%2Cc%25.py,line=3,col=5,title=AMP201::done 3",
    ]


class TestDiff:
    def test_no_newline_at_the_end(self) -> None:
        shown = diff.render(Report([changed("a.py", before="x\ny", after="x\nz")], 1))
        assert shown.endswith("-y\n\\ No newline at end of file\n+z\n\\ No newline at end of file\n")

    def test_only_newlines_end_lines(self) -> None:
        shown = diff.render(Report([changed("a.py", before="a\x0cb\r\nc\x85d\n", after="a\x0cb\r\nX\n")], 1))
        assert "\n a\x0cb\r\n-c\x85d\n+X\n" in shown

    def test_unchanged_files_have_none(self) -> None:
        assert diff.render(Report([FileResult("a.py", before="x", after="x"), FileResult("b.py")], 2)) == ""

    def test_paths_outside_have_no_prefix(self) -> None:
        assert diff.render(Report([changed("../a.py")], 1)).startswith("--- ../a.py\n+++ ../a.py\n")


class TestSummary:
    def test_everything_in_its_section(self) -> None:
        script = changed(
            "train.py",
            done(1),
            done(2),
            done(3, review="review"),
            note(4),
            note(5, "as-is"),
            done(6, review="look"),
            Finding(7, 1, "AMP854", "add_argument", "note", "look", "the help says Apex"),
            before="if __name__ == 'x':\n",
        )
        library = changed("lib|x.py", done(1, construct="amp.init|ialize"))
        blocked = FileResult("hard.py", "blocked", [manual(7)])
        failed = FileResult("bad.py", "failed", [Finding(3, 1, "AMP003", "file", "note", "review", "does *not* parse")])
        shown = summary.render(
            Report([script, library, blocked, failed], 4), "rewritten", dtype="bfloat16", revision="abc1234"
        )
        assert shown.startswith(
            "<!-- amp-migrate: report -->\n# Migrate from NVIDIA Apex to native PyTorch AMP\n\n"
            "5 of 6 Apex sites migrated in 2 files; 1 needs"
        )
        assert "| `train.py` | migrated | `amp.scale_loss` ×4 | 1 review, 1 quick look, 2 merge as is |" in shown
        assert r"| `lib\|x.py` | migrated | `amp.init\|ialize` | 1 merge as is |" in shown
        assert "## Needs a hand\n\n- [ ] `hard.py:7` AMP202: manual 7\n" in shown
        assert "## Could not be read or written\n\n- `bad.py:3` AMP003: does \\*not\\* parse\n" in shown
        assert "## Behaves differently\n\n- `train.py:4` AMP112: note 4\n" in shown
        assert "note 5" not in shown
        assert "## Please review\n\n- `train.py:3` AMP201: done 3\n" in shown
        assert "## A quick look\n\n- `train.py:6` AMP201: done 6\n" in shown
        assert "## Also to do\n\n- [ ] `train.py:7` AMP854: the help says Apex\n" in shown
        assert "computes in bfloat16" in shown
        assert "```sh\namp-migrate verify --original-rev abc1234 train.py -- ARGS\n```" in shown
        assert "lib|x.py --" not in shown

    def test_nothing_done_has_nothing_to_verify(self) -> None:
        shown = summary.render(Report([FileResult("hard.py", "blocked", [manual(7)])], 1), "rewritten")
        assert "Verify" not in shown
        assert "## Migrated" not in shown

    def test_a_file_that_only_takes_part_is_listed_too(self) -> None:
        """It has no Apex in it, but a region or a parameter that the others need."""
        region = note(2, review="as-is")
        shown = summary.render(Report([changed("a.py", done(1)), changed("eval.py", region)], 2), "rewritten")
        assert "| `eval.py` | migrated | `amp.initialize` | 1 merge as is |" in shown
        untouched = summary.render(Report([FileResult("conf.yaml", findings=[region])], 1), "rewritten")
        assert "## Migrated" not in untouched

    def test_a_dry_run_verifies_the_working_tree(self) -> None:
        shown = summary.render(Report([changed("my train.py", done(1), before="for i in x:\n    pass\n")], 1), "dry")
        assert "amp-migrate verify 'my train.py' -- ARGS" in shown

    def test_files_that_nobody_starts(self) -> None:
        shown = summary.render(Report([changed("utils.py", done(1))], 1), "rewritten", revision="abc")
        assert "```sh\namp-migrate verify --init --original-rev abc  # finds the programs" in shown


def test_render_dispatches() -> None:
    report = Report([changed("a.py", done(1))], 1)
    assert reports.render(report, "json", "check").startswith('{\n  "version": 1,')
    assert '"2.1.0"' in reports.render(report, "sarif", "check")
    assert reports.render(report, "github", "check").startswith("::warning")
    assert reports.render(report, "text", "check").startswith("1 of 1 Apex")


class TestWaiting:
    """A unit that stays as it is takes one line of the report, and keeps all of its sites in the counts."""

    def report(self) -> Report:
        cause = Cause("a.py", 7, "AMP213")
        root = Finding(7, 1, "AMP213", "step", "manual", "review", "the scaler cannot be handed over")
        waiting = [
            Finding(n, 1, "AMP201", "amp.scale_loss", "manual", "review", cause.awaited, cause) for n in (3, 9, 12)
        ]
        other = Finding(5, 1, "AMP102", "apex", "manual", "review", "has no rule")
        return Report(
            [FileResult("a.py", "blocked", [*waiting[:2], root, other]), FileResult("b.py", "blocked", [waiting[2]])], 2
        )

    def test_one_line_names_the_others(self) -> None:
        assert text.render(self.report(), "rewritten").splitlines() == [
            "0 of 5 Apex sites migrated in 2 files; 5 need a hand",
            "a.py:5:1 AMP102 has no rule",
            "a.py:7:1 AMP213 the scaler cannot be handed over (and 3 more sites of this unit: lines 3, 9; b.py:12)",
        ]

    def test_annotations_and_summary_too(self) -> None:
        report = self.report()
        assert len(github.render(report, "rewritten").splitlines()) == 2
        assert summary.render(report, "rewritten").count("- [ ]") == 2
        assert [r["ruleId"] for r in json.loads(sarif.render(report, "check"))["runs"][0]["results"]] == [
            "AMP102",
            "AMP213",
        ]

    def test_json_lists_every_site(self) -> None:
        assert self.report().to_json()["summary"]["sites_manual"] == 5
        assert sum(len(f["findings"]) for f in self.report().to_json()["files"]) == 5

    def test_the_first_stands_for_the_others_where_the_cause_is_silenced(self) -> None:
        report = self.report()
        report.results[0].findings = [f for f in report.results[0].findings if f.code == "AMP201"]
        assert text.render(report, "rewritten").splitlines()[1:] == [
            "a.py:3:1 AMP201 waits for a.py:7 (AMP213) (and 2 more sites of this unit: line 9; b.py:12)"
        ]

    def test_many_are_counted_and_the_first_named(self) -> None:
        report = self.report()
        cause = Cause("a.py", 7, "AMP213")
        more = [Finding(n, 1, "AMP201", "x", "manual", "review", cause.awaited, cause) for n in range(20, 40)]
        report.results[0].findings += more
        assert "(and 23 more sites of this unit: lines 3, 9, 20, 21, 22, 23, 24, 25, ...)" in text.render(
            report, "rewritten"
        )


def test_files_that_cannot_be_read_and_have_nothing_of_apex_take_one_line() -> None:
    def failed(path: str, review: Review, code: str = "AMP003") -> FileResult:
        return FileResult(path, "failed", [Finding(3, 1, code, "file", "note", review, f"{path} is broken")])

    idle = [failed("a.ipynb", "look"), failed("b.py", "as-is", "AMP004"), failed("c.ipynb", "look")]
    report = Report([failed("train.py", "review"), *idle, failed("model.py", "review")], 5)
    told = ["train.py is broken", "a.ipynb is broken (and 2 more like it: b.py, c.ipynb)", "model.py is broken"]
    assert [line.split(" ", 2)[2] for line in text.render(report, "rewritten").splitlines()[1:]] == told
    assert [
        line.split(": ", 1)[1] for line in summary.render(report, "rewritten").splitlines() if "AMP00" in line
    ] == told
    assert len(report.to_json()["files"]) == 5
    assert "more like it" not in text.render(Report([idle[0]], 1), "rewritten")


def test_what_needs_a_review_stands_before_what_deserves_a_look() -> None:
    report = Report([changed("a.py", note(1), note(2, "review")), changed("b.py", note(3, "review"))], 2)
    shown = text.render(report, "rewritten").splitlines()
    assert shown[shown.index("Worth a look:") + 1 :] == [
        "a.py:2:5 AMP112 note 2",
        "b.py:3:5 AMP112 note 3",
        "a.py:1:5 AMP112 note 1",
    ]
