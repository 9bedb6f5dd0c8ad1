"""What a run says: one module a format, each turning a Report into text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amp_migrate.findings import FileResult, Report
    from amp_migrate.reports.style import Style
    from amp_migrate.reports.text import Mode


def render(
    report: Report,
    output: str,
    mode: Mode,
    style: Style | None = None,
    *,
    quiet: bool = False,
    beside: Sequence[FileResult] = (),
) -> str:
    """The report in one of the formats text, json, sarif, github and html. Colour and `quiet` concern text alone, `beside`
    html: what is still to do in files that are not in the report."""
    if output == "json":
        import json

        found = report.to_json()
        if report.repositories:
            from amp_migrate.reports import inventory

            found["repositories"] = inventory.to_json(report)
        return json.dumps(found, indent=2) + "\n"
    if output == "sarif":
        from amp_migrate.reports import sarif

        return sarif.render(report, mode)
    if output == "github":
        from amp_migrate.reports import github

        return github.render(report, mode)

    from amp_migrate.reports import text

    if output == "html":
        from amp_migrate.reports import inventory

        return inventory.html(report, text.headline(report, mode), migrated=mode == "rewritten", beside=beside)
    return text.render(report, mode, style, quiet=quiet)
