"""One run of `rewrite` or `check`: read, migrate, write, report."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from amp_migrate import reports
from amp_migrate.cli.printing import emit
from amp_migrate.cli.progress import progress
from amp_migrate.cli.settings import Settings
from amp_migrate.cli.signals import unwinding
from amp_migrate.deep import with_room
from amp_migrate.findings import Cause, FileResult, FileStatus, Finding, Report
from amp_migrate.reports.style import Style, wants_colour
from amp_migrate.sources import project as sources
from amp_migrate.sources.discover import PYTHON_SUFFIXES, Discovery, Found, discover, walked
from amp_migrate.sources.failures import INTERNAL, OTHER_NAMES, UNKNOWN_CODE, SourceError, failure
from amp_migrate.sources.ignores import ignored_lines, is_ignored, unknown_codes

if TYPE_CHECKING:
    from amp_migrate.sources.files import SourceFile


def discovered(settings: Settings, wanted: Callable[[str], bool]) -> Discovery:
    """The files of the run that are Python or `wanted`."""
    find = walked if settings.force_exclude else partial(discover, apart=settings.apart)
    with progress(settings) as tell:
        tell("looking for files")
        return find(settings.paths, settings.exclude, lambda path: path.endswith(PYTHON_SUFFIXES) or wanted(path))


def load(settings: Settings, discovery: Discovery | None = None) -> sources.Project:
    """The sources of the run; `discovery` where the caller has walked the paths already."""
    if settings.stdin:
        if sys.stdin is None:
            raise click.UsageError("standard input is closed")
        return sources.from_stdin(sys.stdin.buffer.read())
    with progress(settings) as tell:
        found = discovery or discovered(settings, lambda path: False)
        return sources.load(found, settings.jobs, tell)


def migrate(project: sources.Project, settings: Settings) -> list[FileResult]:
    """What becomes of each target, in order. A crash or an output that does not parse is a failure, never written."""
    if not project.targets:
        return []

    from amp_migrate.engine import whole_units

    with progress(settings, ticking=True) as tell:
        tell("looking for files that can have to do with Apex")
        targets, context = project.relevant()
        tell(f"reading {len(targets) + len(context)} files that can have to do with Apex")
        results = with_room(lambda: _decided(targets, context, project, settings, tell))
    results = _without_unwanted_changes(targets, results, settings)
    results = [_with_unknown_codes(source, result) for source, result in zip(targets, results, strict=True)]
    settled = [_settled(s, r, settings) for s, r in zip(targets, results, strict=True)]
    settled = _in_cells([*targets, *context], settled)
    return whole_units([replace(new, units=old.units) for new, old in zip(settled, results, strict=True)])


def _with_unknown_codes(source: SourceFile, result: FileResult, *, python: bool = True) -> FileResult:
    """The result, with a remark on each ignore comment that names a code which does not exist."""
    if "amp-migrate:" not in source.text:
        return result

    from amp_migrate.registry import all_codes

    remarks = [
        Finding(
            line, column, UNKNOWN_CODE, "comment", "note", "look", f"{code} is no finding code: this ignores nothing"
        )
        for line, column, code in unknown_codes(source.text, all_codes(), python=python)
    ]
    return replace(result, findings=sorted([*result.findings, *remarks])) if remarks else result


def _decided(
    targets: list[SourceFile],
    context: list[SourceFile],
    project: sources.Project,
    settings: Settings,
    tell: sources.Progress,
) -> list[FileResult]:
    """What the engine decides, in the order of the targets. Where it crashes, what imports tie together is tried apart from
    the rest: only the files that it crashes on are failures."""
    from amp_migrate.engine import Program
    from amp_migrate.engine import migrate as run_engine
    from amp_migrate.sources import related

    try:
        return run_engine(Program(targets, context, project.root, unparsed=project.unparsed), settings.options, tell)
    except Exception as error:
        if os.environ.get("AMP_MIGRATE_DEBUG"):
            traceback.print_exc()
        groups = related.tied([*targets, *context])
        if len(groups) < 2:
            return [_crashed(source, error) for source in targets]
    by_path: dict[str, FileResult] = {}
    for number, group in enumerate(groups):
        mine, others = ([s for s in part if str(s.path) in group] for part in (targets, context))
        if not mine:
            continue
        try:
            results = run_engine(Program(mine, others, project.root, unparsed=project.unparsed), settings.options)
        except Exception as error:
            results = [_crashed(source, error) for source in mine]
        for result in results:  # units are numbered anew in each group
            by_path[result.path] = replace(result, units=frozenset(n * len(groups) + number for n in result.units))
    return [by_path[source.display] for source in targets]


def _crashed(source: SourceFile, error: Exception) -> FileResult:
    """The result of a file that the engine crashed on, if there can be anything to migrate in it."""
    if not sources.mentions(source.text.encode(errors="surrogatepass")):
        return FileResult(path=source.display, before=source.text)
    reason = "nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
    return failure(source.display, SourceError(INTERNAL, f"internal error: {reason}"))


def configurations(
    files: Sequence[Found], project: sources.Project, settings: Settings
) -> tuple[list[SourceFile], list[FileResult]]:
    """Settings files that choose Apex, and what becomes of each; files that could not be read follow."""
    from amp_migrate import configuration

    found, failures = configuration.load(files)
    named = configuration.names_in(project.targets, project.unparsed)
    only_written = configuration.only_written_in(project.targets)
    found = [source for source in found if not only_written(source.path.name)]

    def decided(source: SourceFile) -> FileResult:
        try:
            return configuration.migrate(source, settings.options, named)
        except Exception as error:
            if os.environ.get("AMP_MIGRATE_DEBUG"):
                traceback.print_exc()
            return failure(source.display, SourceError(INTERNAL, f"internal error: {type(error).__name__}: {error}"))

    results = [_with_unknown_codes(source, decided(source), python=False) for source in found]
    return found, [*results, *failures]


def split(discovery: Discovery, wanted: Callable[[str], bool]) -> tuple[Discovery, list[Found]]:
    """The Python files, and others that are `wanted`; a file can be both, and one that is neither was named."""
    others = [found for found in discovery.files if wanted(found.path)]
    python = [f for f in discovery.files if f.path.endswith(PYTHON_SUFFIXES) or not wanted(f.path)]
    return replace(discovery, files=python), others


def merged(results: list[FileResult], more: list[FileResult]) -> list[FileResult]:
    """One result a file: what else was found in a file joins what its code shows."""
    by_path = {result.path: result for result in results}
    for result in more:
        known = by_path.setdefault(result.path, result)
        if known is result or known.status == "failed":
            continue
        if result.status == "failed":
            by_path[result.path] = result
            continue
        changed = next((r for r in (known, result) if r.changed), known)
        findings = sorted({*known.findings, *result.findings})
        status: FileStatus = changed.status
        if any(f.status == "manual" for f in findings):
            status = "partial" if changed.changed else "blocked"
        by_path[result.path] = replace(changed, findings=findings, status=status)
    return list(by_path.values())


def _settled(source: SourceFile, result: FileResult, settings: Settings) -> FileResult:
    """A result with what the user asked not to hear left out, in terms of the file on disk."""
    if result.changed and (problem := _does_not_parse(source, result)) is not None:
        return problem
    result = wanted(result, settings, ignored_lines(source.text))
    if source.old is not None:
        from amp_migrate.sources.syntax import parse_error, renamed

        as_written = replace(source, text=source.old, old=None)
        if not result.changed and (error := parse_error(as_written)) is not None:
            return FileResult(path=source.display, status="failed", findings=[error])
        return replace(result, findings=sorted([*result.findings, *renamed(source)]), before=source.old)
    if source.notebook is None:
        return result
    try:
        after = source.notebook.with_program(result.after) if result.after is not None else None
    except SourceError as error:
        return failure(source.display, error)
    findings = [source.notebook.place(f) for f in result.findings]
    return replace(result, findings=findings, before=source.notebook.text, after=after)


def _in_cells(files: Sequence[SourceFile], results: list[FileResult]) -> list[FileResult]:
    """The lines of notebooks that findings name, in terms of the files on disk."""
    notebooks = {s.display: s.notebook for s in files if s.notebook is not None}
    if not notebooks:
        return results
    named = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, sorted(notebooks, reverse=True)))}):(\d+)")

    def placed(finding: Finding) -> Finding:
        message = named.sub(lambda m: f"{m[1]}:{notebooks[m[1]].file_line(int(m[2]))}", finding.message)
        cause = finding.cause
        if cause is not None and cause.path in notebooks:
            cause = replace(cause, line=notebooks[cause.path].file_line(cause.line))
        return replace(finding, message=message, cause=cause)

    return [replace(r, findings=[placed(f) for f in r.findings]) for r in results]


def wanted(result: FileResult, settings: Settings, lines: dict[int, set[str] | None] | None = None) -> FileResult:
    """A result less the findings that --select, --ignore or a comment on their line silence.

    A change that was made is always told. Nor does anything silence a file that could not be read.
    """
    if result.status == "failed":
        return result
    kept = [
        f
        for f in result.findings
        if f.status == "done" or (settings.options.wants(f.code) and not is_ignored(lines or {}, f.line, f.code))
    ]
    status = result.status
    silenced = len(kept) < len(result.findings) and not any(f.status == "manual" for f in kept)
    if silenced and status in ("partial", "blocked"):
        status = "migrated" if result.changed else "unchanged"
    return replace(result, findings=kept, status=status)


def _does_not_parse(source: SourceFile, result: FileResult) -> FileResult | None:
    from amp_migrate.sources.syntax import parse_error_after

    problem = parse_error_after(source, result.after or "")
    if problem is None:
        return None
    return failure(source.display, SourceError(INTERNAL, f"internal error: the result {problem.message}; not written"))


def _without_unwanted_changes(
    targets: Sequence[SourceFile], results: Sequence[FileResult], settings: Settings
) -> list[FileResult]:
    """Nothing is changed against --select, --ignore or a comment; nor is what belongs together with such a site."""
    unwanted: dict[str, Finding] = {}
    for source, result in zip(targets, results, strict=True):
        lines = ignored_lines(source.text)
        for finding in result.findings:
            silenced = not settings.options.wants(finding.code) or is_ignored(lines, finding.line, finding.code)
            if finding.status == "done" and silenced:
                unwanted.setdefault(result.path, finding)
    if not unwanted:
        return list(results)
    held: dict[str, tuple[str, Finding]] = {}
    for group in together(targets, [r for r in results if r.changed]):
        for path in (r.path for r in group if r.path in unwanted):
            held |= {r.path: (path, unwanted[path]) for r in group}
    return [_held_back(r, *held[r.path]) if r.path in held else r for r in results]


def _held_back(result: FileResult, path: str, cause: Finding) -> FileResult:
    waits = f"left alone with {path}:{cause.line}, where {cause.code} is ignored: they are migrated together"
    told = Cause(path, cause.line, cause.code)
    waiting = [replace(f, status="manual", message=waits, cause=told) for f in result.findings if f.status == "done"]
    # Notes tell what a change brings; there is none.
    findings = [*waiting, *(f for f in result.findings if f.status == "manual")]
    return replace(result, status="blocked", findings=findings, after=None)


def with_other_names(targets: Sequence[SourceFile], results: list[FileResult], settings: Settings) -> list[FileResult]:
    """The results, with a remark on each file that is about to be replaced under one of its names (hard links)."""
    if not any(result.changed for result in results):
        return results

    from amp_migrate.sources.replace import other_names

    paths = {source.display: source.path for source in targets}
    return [
        replace(r, findings=sorted([*r.findings, _other_names(n)]))
        if r.changed and r.path in paths and settings.options.wants(OTHER_NAMES) and (n := other_names(paths[r.path]))
        else r
        for r in results
    ]


def _other_names(number: int) -> Finding:
    others = (
        "another name (a hard link), which keeps" if number == 1 else f"{number} other names (hard links), which keep"
    )
    message = f"the file has {others} the text from before unless migrated as well: they are no longer one file"
    return Finding(1, 1, OTHER_NAMES, "file", "note", "look", message)


def write(targets: Sequence[SourceFile], results: list[FileResult], settings: Settings) -> list[FileResult]:
    """Write what changed, unit by unit; the results, those that could not be written among them."""
    changed = [result for result in results if result.changed]
    if not changed:
        return results

    from amp_migrate.sources.replace import Change, WriteError, replace_together

    by_display = {source.display: source for source in targets}
    position = {id(result): i for i, result in enumerate(results)}
    with progress(settings, ticking=True) as tell, unwinding(patient=True) as stop_if_asked:
        tell(f"writing {len(changed)} files")
        for group in together(targets, changed):
            stop_if_asked()
            try:
                replace_together([Change(by_display[r.path], r.after or "") for r in group], stop_if_asked)
            except WriteError as error:
                for result in group:
                    own = error.error
                    if result.path != error.display:
                        own = SourceError(own.code, f"not written, because {error.display} could not be")
                    results[position[id(result)]] = _unwritten(result, own)
    return results


def _unwritten(result: FileResult, error: SourceError) -> FileResult:
    """The sites of a file that was to be migrated and was not are still to be migrated; there is no change to note."""
    told = Cause(result.path, error.line, error.code)
    remaining = [
        replace(f, status="manual", message=f"not written; {f.message}", cause=told) if f.status == "done" else f
        for f in result.findings
        if f.status != "note"
    ]
    return replace(result, status="failed", findings=[error.finding(), *remaining], after=None)


def together(targets: Sequence[SourceFile], results: Sequence[FileResult]) -> list[list[FileResult]]:
    """Changed files grouped so that those which share a unit, or import one another, are in one group."""
    from amp_migrate.sources.related import imported_files

    changed = {result.path for result in results}
    sources = {str(source.path): source for source in targets if source.display in changed}
    imports = {sources[path].display: others for path, others in imported_files(list(sources.values())).items()}
    groups: list[tuple[set[object], list[FileResult]]] = []
    for result in results:
        # Whatever ties two files stands in both their sets: a unit's number, the name of a file.
        ties: set[object] = {*result.units, result.path, *(sources[path].display for path in imports[result.path])}
        members, apart = [result], []
        for group in groups:
            if group[0] & ties:
                ties |= group[0]
                members = group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (ties, members)]
    return [members for _, members in groups]


def report(project: sources.Project, results: list[FileResult]) -> Report:
    """Everything that was found, in the order of paths."""
    return Report(sorted([*project.failures, *results], key=lambda r: r.path), project.files)


def style_for(*, err: bool) -> Style:
    return Style(wants_colour(sys.stderr if err else sys.stdout))


def show(
    found: Report,
    settings: Settings,
    mode: Any,
    *,
    err: bool,
    steps: Sequence[str] = (),
    beside: Sequence[FileResult] = (),
) -> None:
    """The report in the format asked for; for a person with what to do next, and a hint on a terminal. `beside` is what is
    still to do in files outside Python, which a page of tables has as well."""
    style = style_for(err=err)
    emit(reports.render(found, settings.output, mode, style, quiet=settings.quiet, beside=beside), err=err)
    if steps and settings.output == "text" and not settings.quiet:
        emit("\n" + "".join(f"{line}\n" for line in steps), err=err)
    stream = sys.stderr if err else sys.stdout
    if settings.output == "text" and not settings.quiet and stream.isatty():
        code = next((f.code for _, f in found.findings("manual", "note", "done")), None)
        if code:
            emit("\n" + style.faint(f"`amp-migrate explain {code}` says more about a code.") + "\n", err=err)
