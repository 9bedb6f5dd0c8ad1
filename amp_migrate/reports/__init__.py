"""What a run says: one module a format, each turning a Report into text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amp_migrate.findings import Report
    from amp_migrate.reports.style import Style
    from amp_migrate.reports.text import Mode


def render(report: Report, output: str, mode: Mode, style: Style | None = None, *, quiet: bool = False) -> str:
    """The report in one of the formats text, json, sarif and github. Colour and `quiet` concern text alone."""
    if output == "json":
        import json

        return json.dumps(report.to_json(), indent=2) + "\n"
    if output == "sarif":
        from amp_migrate.reports import sarif

        return sarif.render(report, mode)
    if output == "github":
        from amp_migrate.reports import github

        return github.render(report, mode)

    from amp_migrate.reports import text

    return text.render(report, mode, style, quiet=quiet)
