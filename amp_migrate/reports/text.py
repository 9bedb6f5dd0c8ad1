"""The report a person reads: one line that says it all, what needs a hand, then what deserves a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from amp_migrate.findings import DEFECTS, LOOSE, FileResult, Finding, Report
from amp_migrate.reports import quoting
from amp_migrate.reports.gathered import gathered, once, unread
from amp_migrate.reports.style import Style

# What was done: files rewritten, files that would be, or a reading that lists every use.
Mode = Literal["rewritten", "dry", "check"]

TEXT = "AMP854"  # what still says Apex, and does nothing
_FAILURES = ("could not be read", "could not be written", "left alone by a defect of amp-migrate")


def render(report: Report, mode: Mode, style: Style | None = None, *, quiet: bool = False) -> str:
    """The report, ending in a newline; empty when `quiet` and nothing needs a hand."""
    style = style or Style()
    lines = [] if quiet else [style.bold(headline(report, mode))]
    if report.repositories:
        return "".join(f"{line}\n" for line in [*lines, *_of_many(report, mode, style)])
    lines += [_site(r, f, style.bad(f.code), f.message) for r, f in unread(gathered(_troubles(report)))]
    if not quiet:
        looks = (_looked(r, f, style) for r, f in once(worth_a_look(report)) if mode != "check" or f.status == "note")
        lines += _section("Worth a look:", looks)
        if mode == "check":
            automatic = (_site(r, f, style.good(f.code), f.message) for r, f in _automatic(report))
            lines += _section("Automatic, with `amp-migrate rewrite`:", automatic)
        elif mode == "dry":
            lines += _section("Would change:", (quoting.path(r.path) for r in report.results if r.changed))
    return "".join(f"{line}\n" for line in lines)


def _of_many(report: Report, mode: Mode, style: Style) -> list[str]:
    """Of many repositories the tables, and what could not be read; the sites of each are a matter of its own report."""
    from amp_migrate.reports import inventory

    failed = unread((r, f) for r, f in gathered(_troubles(report)) if r.status == "failed")
    lost = (_site(r, f, style.bad(f.code), f.message) for r, f in failed)
    return [
        "",
        *inventory.text(report, style, migrated=mode == "rewritten"),
        *_section("Could not be read or written:", lost),
    ]


def headline(report: Report, mode: Mode) -> str:
    """The first line: sites done of all, files, and what is left."""
    total = report.sites_done + report.sites_manual
    failed = report.count("failed")
    parts = []
    if total:
        files = len({result.path for result, _ in report.findings("done" if report.sites_done else "manual")})
        done = {"rewritten": "migrated", "dry": "would be migrated", "check": "can be migrated automatically"}[mode]
        many = sum(path != LOOSE for path in report.repositories)
        where = f" of {many} repositories" if many else ""
        parts.append(f"{report.sites_done} of {total} {_kind(report)} {done} in {_count(files, 'file')}{where}")
    elif changed := sum(r.changed for r in report.results):  # imports and guards that nothing uses, say
        done = {"rewritten": "rewritten", "dry": "would be rewritten", "check": "can be rewritten automatically"}[mode]
        parts.append(f"No Apex calls; {_count(changed, 'file')} {done}")
    elif failed < report.files or not failed:
        found = "No Apex found in" if not any(report.findings("note")) else "Nothing to migrate in"
        parts.append(f"{found} {_count(report.files - failed, 'file')}")
    if report.sites_manual:
        parts.append(f"{report.sites_manual} {'needs' if report.sites_manual == 1 else 'need'} a hand")
    failures = Counter(_failure(result) for result in report.results if result.status == "failed")
    parts += (f"{_count(failures[why], 'file')} {why}" for why in _FAILURES if why in failures)
    return "; ".join(parts)


def worth_a_look(report: Report) -> Iterator[tuple[FileResult, Finding]]:
    """Changes a reviewer should look at, and what behaves differently: what needs a review before what needs a look."""
    found = (
        (result, finding)
        for result, finding in report.findings("done", "note")
        if result.status != "failed" and finding.review != "as-is"
    )
    yield from sorted(found, key=lambda pair: pair[1].review != "review")


def _troubles(report: Report) -> Iterator[tuple[FileResult, Finding]]:
    for result, finding in report.findings():
        if finding.status == "manual" or result.status == "failed":
            yield result, finding


def _automatic(report: Report) -> Iterator[tuple[FileResult, Finding]]:
    """Sites that need no hand, and imports that nothing uses."""
    for result, finding in report.findings("done", "note"):
        if finding.status == "done" or (finding.review == "as-is" and result.changed):
            yield result, finding


def _kind(report: Report) -> str:
    codes = {finding.code for _, finding in report.findings("done", "manual")}
    return "deprecated AMP sites" if all(code.startswith("AMP9") for code in codes) else "Apex sites"


def _failure(result: FileResult) -> str:
    codes = {finding.code for finding in result.findings}
    unread, unwritten, ours = _FAILURES
    return ours if codes & DEFECTS else unwritten if "AMP006" in codes else unread


def _site(result: FileResult, finding: Finding, code: str, message: str) -> str:
    return f"{quoting.path(result.path)}:{finding.line}:{finding.column} {code} {quoting.plain(message)}"


def _looked(result: FileResult, finding: Finding, style: Style) -> str:
    paint = style.warn if finding.review == "review" else style.info
    return _site(result, finding, paint(finding.code), finding.message)


def _section(title: str, lines: Iterator[str]) -> list[str]:
    listed = list(lines)
    return ["", title, *listed] if listed else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
