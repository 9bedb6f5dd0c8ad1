"""A folder of checkouts: each read, decided and written on its own, and told in tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from amp_migrate.engine import Program
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from tests.cli_testing import HARD, SITE, fake_engine, run, run_json, write_tree


@pytest.fixture(autouse=True)
def _checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)
    write_tree(
        Path(),
        {
            "alpha/.git/HEAD": "",
            "alpha/train.py": SITE,
            "alpha/requirements.txt": "apex\n",
            "team/beta/.git/HEAD": "",
            "team/beta/train.py": SITE + HARD,
            "team/beta/sub/.git": "gitdir: elsewhere",
            "team/beta/sub/more.py": SITE,
            "clean/.git/HEAD": "",
            "clean/a.py": "x = 1\n",
            "loose.py": SITE,
        },
    )


def states(report: dict[str, object]) -> dict[str, str]:
    repositories = report["repositories"]
    assert isinstance(repositories, list)
    return {r["path"]: r["state"] for r in repositories}


def test_check_is_an_inventory() -> None:
    code, report = run_json("check", ".")
    assert code == 1
    assert states(report) == {
        "alpha": "partly",
        "clean": "clean",
        "team/beta": "partly",
        "(in no repository)": "automatic",
    }
    assert report["repositories"][2]["codes"] == {"AMP110": {"manual": 1}, "AMP201": {"done": 2}}
    assert report["summary"]["sites"] == 6
    assert [f["path"] for f in report["files"]] == [
        *("alpha/requirements.txt", "alpha/train.py"),
        *("team/beta/sub/more.py", "team/beta/train.py", "loose.py"),
    ]


def test_the_tables() -> None:
    lines = run("check", ".").stdout.splitlines()
    assert lines[0] == "4 of 6 Apex sites can be migrated automatically in 4 files of 3 repositories; 2 need a hand"
    assert "team/beta               2      3          2        1  partly" in lines
    assert any(re.fullmatch(r"AMP201 +4 +0  amp.scale_loss becomes scaler.scale", line) for line in lines)
    assert lines[-1] == "Next: `amp-migrate check alpha` says more of one; --format html of all."


def test_the_page() -> None:
    page = run("check", "--format", "html", ".").stdout
    assert page.startswith("<!doctype html>")
    assert '<td><code>team/beta</code></td><td>2</td><td>3</td><td>2</td><td>1</td><td class="partly">' in page
    assert "<details><summary><code>team/beta</code>" in page
    assert "http" not in page  # it needs no network


def test_the_page_of_one_project() -> None:
    page = run("rewrite", "--format", "html", "team/beta").stdout
    assert "<th>migrated</th>" in page
    assert "<code>team/beta/train.py:2</code> <code>AMP110</code> cannot: 100%, sorry" in page


def test_rewrite_tells_each_and_a_second_run_has_nothing_to_do() -> None:
    code, report = run_json("rewrite", ".")
    assert code == 1
    assert states(report)["alpha"] == "automatic"
    assert "NEW" in Path("alpha/train.py").read_text()
    assert "NEW" in Path("team/beta/train.py").read_text()
    assert "NEW" in Path("loose.py").read_text()
    _, again = run_json("rewrite", ".")
    assert states(again)["alpha"] == "clean"


def test_what_follows_once_they_are_written() -> None:
    """What was migrated has no more to say: what needs a hand has, and the commands that prove it."""
    dry = run("rewrite", "--diff", ".")
    assert "Next: `amp-migrate rewrite --diff alpha` says more of one; --format html of all." in dry.stderr
    lines = run("rewrite", ".").stdout.splitlines()
    assert lines[-4:] == [
        "Next: `amp-migrate check team/beta` says what needs a hand in one.",
        "Then prove in each repository that the training did not change:",
        "  amp-migrate verify --init --original-rev REV  # finds the cases; `amp-migrate verify` runs them",
        "REV is a commit that holds its files as they were.",
    ]
    assert run("rewrite", ".").stdout.splitlines()[-1] == lines[-4]


def test_a_run_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(program: Program, options: Options, tell: object = None) -> list[FileResult]:
        if any("beta" in str(s.path) for s in program.targets):
            raise KeyboardInterrupt
        return fake_engine(program, options)

    with monkeypatch.context() as patch:
        patch.setattr("amp_migrate.engine.migrate", stopped)
        assert run("rewrite", ".").exit_code == 130
    assert "NEW" in Path("alpha/train.py").read_text()
    assert "NEW" not in Path("team/beta/train.py").read_text()
    run("rewrite", ".")
    assert "NEW" in Path("team/beta/train.py").read_text()


def test_what_goes_wrong_in_one_concerns_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(Path(), {"alpha/pyproject.toml": "[tool.amp-migrate]\nbogus = 1\n"})

    from amp_migrate.cli import session

    load = session.load

    def loading(settings: session.Settings, *rest: object) -> object:
        if settings.paths == ("./clean",):
            raise KeyError("boom")
        return load(settings, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "load", loading)
    code, report = run_json("rewrite", ".")
    assert code == 3
    assert states(report)["alpha"] == states(report)["clean"] == "failed"
    assert "NEW" in Path("team/beta/train.py").read_text()
    assert "NEW" not in Path("alpha/train.py").read_text()


def test_each_has_its_own_configuration() -> None:
    write_tree(Path(), {"alpha/pyproject.toml": '[tool.amp-migrate]\nexclude = ["train.py"]\n'})
    run("rewrite", ".")
    assert Path("alpha/train.py").read_text() == SITE
    assert "NEW" in Path("team/beta/train.py").read_text()


@pytest.mark.parametrize(
    "paths", [("alpha",), ("alpha/train.py",), ("team",), ("alpha/train.py", "team/beta/train.py")]
)
def test_one_repository_or_files_by_name_are_one_run(paths: tuple[str, ...]) -> None:
    _, report = run_json("check", *paths)
    assert "repositories" not in report


def test_repositories_by_name() -> None:
    _, report = run_json("check", "alpha", "team/beta")
    assert set(states(report)) == {"alpha", "team/beta"}


def test_no_summary_of_many() -> None:
    assert run("rewrite", "--summary", "out.md", ".").exit_code == 2
    assert Path("alpha/train.py").read_text() == SITE


def test_json_fields_of_one_project_stay() -> None:
    assert set(json.loads(run("check", "--format", "json", "alpha").stdout)) == {"version", "files", "summary"}
