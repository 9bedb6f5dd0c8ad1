"""Unified diffs that `git apply` and `patch -p1` take."""

from __future__ import annotations

import difflib
import re

from amp_migrate.findings import FileResult, Report
from amp_migrate.reports import quoting
from amp_migrate.reports.style import Style


def render(report: Report, style: Style | None = None) -> str:
    """The diff of every file that would change, in the order of the report."""
    return "".join(_one(result, style or Style()) for result in report.results if result.changed)


def _one(result: FileResult, style: Style) -> str:
    # Only \n ends a line in a diff; \r, form feeds and the like are content.
    before = re.findall(r"[^\n]*\n|[^\n]+", result.before)
    after = re.findall(r"[^\n]*\n|[^\n]+", result.after or "")
    old, new = (quoting.path(result.path),) * 2 if result.path.startswith(("<", "/", "../")) else _sides(result.path)
    lines = []
    for line in difflib.unified_diff(before, after, old, new):
        whole = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        lines.append(_painted(whole, style))
    return "".join(lines)


def _sides(path: str) -> tuple[str, str]:
    return quoting.path(f"a/{path}"), quoting.path(f"b/{path}")


def _painted(line: str, style: Style) -> str:
    if not style.colour:
        return line
    body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
    if line.startswith(("---", "+++")):
        return style.bold(body) + end
    paint = {"+": style.good, "-": style.bad, "@": style.info}.get(line[:1])
    return (paint(body) if paint else body) + end
