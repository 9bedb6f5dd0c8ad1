"""GitHub Actions annotations: one workflow command a finding, shown on the lines of a pull request.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from amp_migrate.findings import FileResult, Finding, Report
from amp_migrate.reports.gathered import gathered
from amp_migrate.reports.quoting import plain
from amp_migrate.reports.text import Mode


def render(report: Report, mode: Mode) -> str:
    """One annotation a line. What was migrated and needs no look is left out; what would be migrated is a warning."""
    lines = []
    for result, finding in gathered(report.findings()):
        level = level_of(result, finding, mode)
        if level is None:
            continue
        place = f"file={_property(result.path)},line={finding.line},col={finding.column}"
        lines.append(f"::{level} {place},title={_property(finding.code)}::{_data(finding.message)}\n")
    return "".join(lines)


def level_of(result: FileResult, finding: Finding, mode: Mode) -> str | None:
    """The annotation's level, or None for what is done and needs no eyes."""
    if finding.status == "manual" or result.status == "failed":
        return "error"
    if finding.status == "done" and mode != "rewritten":
        return "warning"
    return None if finding.review == "as-is" else "notice"


def _data(text: str) -> str:
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
