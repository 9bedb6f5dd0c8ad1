"""What to do next, as commands to copy: the last lines of a report that a person reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from amp_migrate.findings import LOOSE, FileResult, Report
from amp_migrate.reports import quoting

_PROGRAMS = 3  # commands of this kind that are printed


def programs(report: Report) -> list[str]:
    """The changed files that are run as programs; all changed ones where none says that it is."""
    changed = [r for r in report.results if r.changed and PurePosixPath(r.path).suffix == ".py"]
    scripts = [r.path for r in changed if re.search(r"^if __name__\s*==", r.before, re.M)]
    return scripts or [r.path for r in changed]


def after_check(report: Report, paths: Sequence[str]) -> list[str]:
    """What follows a reading."""
    if tuple(paths) == ("-",) or not any(r.changed for r in report.results):
        return []
    where = _where(paths)
    return [f"Next: `amp-migrate rewrite --diff {where}` shows the changes, `amp-migrate rewrite {where}` writes them."]


def after_dry(report: Report, paths: Sequence[str]) -> list[str]:
    """What follows a rewrite that wrote nothing."""
    if tuple(paths) == ("-",) or not any(r.changed for r in report.results):
        return []
    lines = [f"Next: `amp-migrate rewrite {_where(paths)}` writes this. Whether it trains alike is tried in a copy:"]
    return [*lines, *_verify(report, "")]


def after_rewrite(
    report: Report, leftovers: Sequence[FileResult], paths: Sequence[str], revision: str | None
) -> list[str]:
    """What follows a rewrite; `leftovers` are files outside Python that still need a hand, `revision` is the commit that
    holds the original."""
    lines: list[str] = []
    if tuple(paths) == ("-",):
        return lines
    if leftovers:
        named = [quoting.path(result.path) for result in leftovers]
        rest = f" and {len(named) - _PROGRAMS} more" if len(named) > _PROGRAMS else ""
        told = "still names" if len(named) == 1 else "still name"
        lines.append(
            f"{', '.join(named[:_PROGRAMS])}{rest} {told} Apex: `amp-migrate check {_where(paths)}` lists where."
        )
    if commands := _verify(report, f" --original-rev {revision or 'REV'}"):
        first = "Then prove" if lines else "prove"
        lines += [f"{first} that the training did not change:", *commands]
        if revision is None:
            lines.append("REV is a commit that holds these files as they were.")
    return lines and [f"Next: {lines[0]}", *lines[1:]]


def of_many(command: str, report: Report) -> list[str]:
    """What follows a run over many repositories: the one with most to do."""
    left = {path: one.sites_manual or one.sites_done for path, one in report.repositories.items() if path != LOOSE}
    first = max(left, key=lambda path: left[path], default=None)
    if first is None or not left[first]:
        return []
    return [f"Next: `amp-migrate {command.split()[0]} {_where([first])}` says more of one; --format html of all."]


def _verify(report: Report, option: str) -> list[str]:
    found = programs(report)
    lines = [f"  amp-migrate verify{option} {quoting.shell(path)} -- ARGS" for path in found[:_PROGRAMS]]
    return lines + ([f"  ... and {len(found) - _PROGRAMS} more programs"] if len(found) > _PROGRAMS else [])


def _where(paths: Sequence[str]) -> str:
    return " ".join(map(quoting.shell, paths)) if len(paths) <= _PROGRAMS else "PATH..."
