"""SARIF 2.1.0, for code scanning services (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html)."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from amp_migrate import __version__
from amp_migrate.findings import Code, FileResult, Finding, Report
from amp_migrate.registry import all_codes
from amp_migrate.reports.gathered import gathered
from amp_migrate.reports.text import Mode

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"manual": "error", "note": "note", "done": "note"}


def render(report: Report, mode: Mode) -> str:
    """One run with every finding as a result, a unit that stays as one of them, and the rules they refer to."""
    codes = all_codes()
    used = sorted({finding.code for _, finding in gathered(report.findings())})
    index = {code: position for position, code in enumerate(used)}
    run = {
        "tool": {
            "driver": {
                "name": "amp-migrate",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(name, codes.get(name)) for name in used],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not report.count("failed")}],
        "results": [_result(r, f, mode, index) for r, f in gathered(report.findings())],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str, code: Code | None) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": name}
    if code is None:
        return rule
    rule["shortDescription"] = {"text": code.title}
    rule["fullDescription"] = {"text": code.why}
    rule["help"] = {"text": f"Apex: {code.apex}\nNative: {code.native}\nWhy: {code.why}"}
    if code.links:
        rule["helpUri"] = code.links[0]
    return rule


def _result(result: FileResult, finding: Finding, mode: Mode, index: dict[str, int]) -> dict[str, Any]:
    level = "error" if result.status == "failed" else _LEVELS[finding.status]
    if finding.status == "done" and mode != "rewritten":
        level = "warning"
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": level,
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(os.fsencode(result.path))},
                    "region": {"startLine": finding.line, "startColumn": finding.column},
                }
            }
        ],
        "properties": {"construct": finding.construct, "status": finding.status, "review": finding.review},
    }
