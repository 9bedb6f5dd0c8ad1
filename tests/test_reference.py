"""The generated reference, the JSON schema, and what a shell offers to complete."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from click.shell_completion import BashComplete

from amp_migrate import config, reference
from amp_migrate.cli import main
from amp_migrate.reports.schema import SCHEMA
from tests.cli_testing import run_json, write_tree
from tests.test_precommit import APEX

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_command_option_and_key_is_there() -> None:
    text = reference.page()
    assert text == (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for command in ("rewrite", "check", "verify", "checkpoint", "run", "explain"):
        assert f"## amp-migrate {command}\n" in text
    for option in ("--original-rev", "--force-exclude", "--unsafe-pickle", "--summary", "--nproc"):
        assert f"`{option}`" in text
    for key in config.KEYS:
        assert f"| `{key}` |" in text


@pytest.mark.parametrize("command", [("check", "."), ("rewrite", "--check", "."), ("rewrite", "."), ("check", "gone")])
def test_reports_are_what_the_schema_says(command: tuple[str, ...]) -> None:
    write_tree(Path(), {"train.py": APEX, "bad.py": "apex = (\n", "requirements.txt": "apex\n"})
    _, report = run_json(*command)
    jsonschema.validate(report, SCHEMA)
    assert "repositories" not in report


def test_the_report_of_many_repositories_too() -> None:
    write_tree(Path(), {"a/.git/x": "", "a/train.py": APEX, "b/.git/x": "", "b/train.py": APEX})
    _, report = run_json("check", ".")
    jsonschema.validate(report, SCHEMA)
    assert len(report["repositories"]) == 2


def offered(*words: str, incomplete: str) -> dict[str, str | None]:
    complete = BashComplete(main, {}, "amp-migrate", "_AMP_MIGRATE_COMPLETE")
    return {item.value: item.help for item in complete.get_completions(list(words), incomplete)}


def test_codes_are_completed() -> None:
    assert offered("explain", incomplete="AMP85").keys() == {f"AMP85{n}" for n in range(1, 7)}
    assert offered("explain", incomplete="20")["AMP201"] == "amp.scale_loss becomes scaler.scale"
    assert "AMP301,AMP851" in offered("check", "--ignore", incomplete="AMP301,AMP85")
    assert offered("rewrite", incomplete="--sum").keys() == {"--summary"}
    assert "verify" in offered(incomplete="ver")


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 100


def test_every_page_is_on_the_site() -> None:
    navigation = (ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f" {page.name}\n" in navigation, page.name
