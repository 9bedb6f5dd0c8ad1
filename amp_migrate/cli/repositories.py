"""Many repositories in one run: each is read, decided and written on its own, so that a run can be stopped and started again
and that what goes wrong in one concerns no other."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from amp_migrate.cli.progress import progress
from amp_migrate.cli.settings import Settings, resolve
from amp_migrate.findings import LOOSE, FileResult, Report
from amp_migrate.sources.discover import is_environment, project_root, shown
from amp_migrate.sources.failures import INTERNAL, UNREADABLE, SourceError, failure

_DEPTH = 4  # folders between a named one and the repositories below it


def found(settings: Settings) -> list[str]:
    """The repositories that the paths of a run name or hold, in order; none where they are of one project."""
    if settings.stdin:
        return []
    repositories: list[str] = []
    for path in settings.paths:
        if os.path.isdir(path) and (_is_root(path) or project_root(path) is None):
            _search(path, _DEPTH, repositories)
    distinct = list({os.path.realpath(path): path for path in repositories}.values())
    return sorted(distinct) if len(distinct) > 1 else []


def _is_root(path: str) -> bool:
    return os.path.exists(os.path.join(path, ".git"))


def _search(folder: str, depth: int, repositories: list[str]) -> None:
    """Add the outermost repositories at or below a folder: a submodule belongs to the one around it."""
    if _is_root(folder):
        repositories.append(folder)
        return
    if not depth:
        return
    try:
        with os.scandir(folder) as listing:
            below = sorted(e.path for e in listing if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return  # told by the walk of what lies in no repository
    for path in below:
        if not is_environment(path):
            _search(path, depth - 1, repositories)


def run(
    ctx: click.Context, given: dict[str, Any], settings: Settings, paths: list[str], one: Callable[[Settings], Report]
) -> Report:
    """The reports of all repositories in one, each with the configuration of its own, and then what lies in none."""
    reports: dict[str, Report] = {}
    with progress(settings) as tell:
        for number, path in enumerate(paths, 1):
            within = f"{number} of {len(paths)} repositories: {shown(path)}"
            tell(within)
            try:
                own = resolve(ctx, {**given, "paths": (path,)})
                reports[shown(path)] = one(
                    replace(own, quiet=settings.quiet, output=settings.output, within=f"{within}: ")
                )
            except click.UsageError as error:  # its configuration cannot be read
                problem = failure(shown(os.path.join(path, "pyproject.toml")), SourceError(UNREADABLE, error.message))
                reports[shown(path)] = Report([problem], 1)
            except Exception as error:
                if os.environ.get("AMP_MIGRATE_DEBUG"):
                    traceback.print_exc()
                told = SourceError(INTERNAL, f"internal error: {type(error).__name__}: {error}")
                reports[shown(path)] = Report([failure(shown(path), told)], 1)
            gc.collect()  # what was read of one does not wait for the next
    known = {os.path.realpath(path) for path in paths}
    rest = tuple(path for path in settings.paths if os.path.realpath(path) not in known)
    if rest:
        loose = one(replace(settings, paths=rest, apart=frozenset(known)))
        if loose.files or loose.results:
            reports[LOOSE] = loose
    results: list[FileResult] = [result for report in reports.values() for result in report.results]
    return Report(results, sum(report.files for report in reports.values()), reports)
