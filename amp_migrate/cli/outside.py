"""What of Apex is left beside the Python code, as `check` lists it and `rewrite` reminds of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from amp_migrate.cli.progress import progress
from amp_migrate.cli.settings import Settings
from amp_migrate.configuration import is_configuration, names_in
from amp_migrate.findings import FileResult
from amp_migrate.sources.discover import PYTHON_SUFFIXES, Found
from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.project import Project

_APART = frozenset(
    "requirements reqs docker ci circleci github conda env envs environment environments install".split()
)
_DOCUMENTATION = frozenset("doc docs documentation".split())


def wanted(path: str) -> bool:
    """Whether a file that is no Python can hold leftovers or settings, by its name."""
    from amp_migrate.texts import kind_of

    return kind_of(path) is not None or is_configuration(path)


def leftovers(
    files: Sequence[Found], project: Project, migrated: Sequence[FileResult], settings: Settings
) -> list[FileResult]:
    """The leftovers in files and in cells of notebooks, as they read beside what was decided of the code."""
    from amp_migrate.recipes import outdated
    from amp_migrate.stale_comments import left_texts, migrated_before

    changed = [result.path for result in migrated if result.after is not None]
    free = _is_free(migrated)
    before = migrated_before(project.targets) if free and not changed else []
    with progress(settings, ticking=True) as tell:
        tell(f"looking for Apex in {len(files)} files that are no Python")
        found = [*_in_notebooks(project.targets), *_outside(files, project, changed or before, free=free)]
        found += left_texts(project.targets) if before else []
        recipes = outdated(files, migrated)
    return _beside_kept(_merged([*found, *recipes]) if recipes else found, migrated)


def _merged(results: Sequence[FileResult]) -> list[FileResult]:
    """One result for each file, with all that was found in it."""
    found: dict[str, FileResult] = {}
    for result in results:
        known = found.get(result.path)
        both = (result,) if known is None else (known, result)
        findings = sorted({f for each in both for f in each.findings})
        status = "blocked" if any(each.status == "blocked" for each in both) else both[0].status
        found[result.path] = replace(result, findings=findings, status=status)
    return list(found.values())


def _beside_kept(found: list[FileResult], migrated: Sequence[FileResult]) -> list[FileResult]:
    """The leftovers, as they read where the program keeps a part of Apex that works beside native AMP."""
    from amp_migrate.leftovers import beside_kept

    for result in migrated:
        for finding in result.findings:
            if finding.keeps_apex:
                kept = f"{finding.construct.rpartition('.')[2]} ({result.path}:{finding.line})"
                return [beside_kept(leftover, kept) for leftover in found]
    return found


def _is_free(migrated: Sequence[FileResult]) -> bool:
    """Whether nothing of the code needs Apex once what is decided stands."""
    return not any(f.needs_apex for result in migrated for f in result.findings)


def _outside(files: Sequence[Found], project: Project, changed: Sequence[str], *, free: bool) -> list[FileResult]:
    from amp_migrate.leftovers import scan

    # Without code in sight every option may be the program's own.
    named = names_in(project.targets, project.unparsed) if project.targets else lambda option: True
    code = _folders(source.display for source in project.targets)
    results = (
        scan(
            found,
            named,
            migrated=_is_about(found.display, changed),
            free=free and _speaks_of(found.display, changed, code),
        )
        for found in files
    )
    return [result for result in results if result is not None]


def _is_about(path: str, changed: Sequence[str]) -> bool:
    """Whether a file of requirements is about code that changes: what lies below its folder, or beside a folder that holds
    nothing but such files."""
    folder = os.path.dirname(path)
    if os.path.basename(folder).lstrip(".") in _APART:
        folder = os.path.dirname(folder)
    return any(not folder or other.startswith(f"{folder}/") for other in changed)


def _folders(paths: Iterable[str]) -> set[str]:
    """The folders around files, and those around them."""
    folders = set()
    for path in paths:
        while path and (path := os.path.dirname(path)) not in folders:
            folders.add(path)
    return folders


def _speaks_of(path: str, changed: Sequence[str], code: Collection[str]) -> bool:
    """Whether a text is about code that changes: what lies below the nearest folder around it with code that is no
    documentation's own."""
    folder = os.path.dirname(path)
    while folder.strip(os.sep) and (folder not in code or os.path.basename(folder) in _DOCUMENTATION):
        folder = os.path.dirname(folder)
    return any(not folder or other.startswith(f"{folder.rstrip(os.sep)}/") for other in changed)


def _in_notebooks(targets: Sequence[SourceFile]) -> list[FileResult]:
    from amp_migrate.leftovers import in_notebook

    found = ((source, in_notebook(source.notebook)) for source in targets if source.notebook is not None)
    return [FileResult(source.display, "blocked", findings) for source, findings in found if findings]


def count(files: Sequence[Found]) -> int:
    """The files among these that are no Python."""
    return sum(not found.path.endswith(PYTHON_SUFFIXES) for found in files)
