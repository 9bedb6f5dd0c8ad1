"""SARIF output against a schema of the parts used, written from the specification and stricter than it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli_testing import HARD, NOTE, SITE, fake_engine, run, write_tree

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0-subset.json").read_text())


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


def sarif(*arguments: str) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(run(*arguments, "--format", "sarif").stdout)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    return log


def test_the_schema_can_fail() -> None:
    write_tree(Path(), {"a.py": SITE})
    log = sarif("check", ".")
    for broken in (
        log | {"version": "2.0.0"},
        log | {"runs": [log["runs"][0] | {"extra": 1}]},
        log | {"runs": [log["runs"][0] | {"results": [{"level": "error"}]}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft7Validator(SCHEMA).validate(broken)


def test_levels_rules_and_places() -> None:
    write_tree(Path(), {"a b/ü.py": SITE + HARD + NOTE, "bad.py": "apex = (\n"})
    (run_,) = sarif("check", ".")["runs"]
    rules = run_["tool"]["driver"]["rules"]
    found = [(r["ruleId"], r["level"], rules[r["ruleIndex"]]["id"]) for r in run_["results"]]
    assert found == [
        ("AMP201", "warning", "AMP201"),
        ("AMP110", "error", "AMP110"),
        ("AMP112", "note", "AMP112"),
        ("AMP003", "error", "AMP003"),
    ]
    place = run_["results"][1]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "a%20b/%C3%BC.py"},
        "region": {"startLine": 2, "startColumn": 1},
    }
    assert run_["invocations"] == [{"executionSuccessful": False}]
    assert run_["results"][1]["properties"] == {"construct": "amp.initialize", "status": "manual", "review": "review"}


def test_rules_explain_themselves() -> None:
    write_tree(Path(), {"requirements.txt": "apex\n"})
    (rule,) = sarif("check", ".")["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"] == "A requirement on Apex"
    assert rule["helpUri"].startswith("https://")


def test_after_a_rewrite_what_is_done_is_a_note() -> None:
    write_tree(Path(), {"a.py": SITE})
    assert sarif("rewrite", ".")["runs"][0]["results"][0]["level"] == "note"


def test_nothing_found_is_a_valid_log_too() -> None:
    write_tree(Path(), {"a.py": "x = 1\n"})
    (run_,) = sarif("check", ".")["runs"]
    assert run_["results"] == []
    assert run_["invocations"] == [{"executionSuccessful": True}]
