"""`amp-migrate check PATH...`: what is there, and how much of it is automatic. Writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amp_migrate.cli import session
from amp_migrate.cli.settings import resolve, shared_options
from amp_migrate.configuration import is_configuration
from amp_migrate.findings import FileResult, Report
from amp_migrate.sources.discover import PYTHON_SUFFIXES, Found, discover

if TYPE_CHECKING:
    from amp_migrate.sources.files import SourceFile


@click.command("check", short_help="List every use of Apex, and what is left of it.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """List every use of NVIDIA Apex and of deprecated torch.cuda.amp names at PATH..., and change nothing.

    Each use is listed with its code and whether `amp-migrate rewrite` migrates it. So are leftovers outside Python:
    requirements, setup files, Dockerfiles, shell scripts, CI files and READMEs that install or mention Apex, and
    settings of training frameworks in JSON and YAML files that choose it.

    \b
    Examples:
      amp-migrate check .
      amp-migrate check --format sarif . > apex.sarif
      amp-migrate check --select AMP1,AMP2 src/
      amp-migrate check --ignore AMP85 .

    \b
    Exit codes:
      0  no Apex left
      1  something would be migrated, or needs a hand
      2  usage error, or a file that could not be read or parsed
    """
    settings = resolve(ctx, given)
    outside: list[Found] = []
    discovery = None
    if not settings.stdin:
        everything = discover(settings.paths, settings.exclude, lambda p: p.endswith(PYTHON_SUFFIXES) or _wanted(p))
        discovery, outside = session.split(everything, _wanted)
    project = session.load(settings, discovery)
    leftovers = [*_in_notebooks(project.targets), *_outside(outside, project.targets)]
    _, configured = session.configurations([f for f in outside if is_configuration(f.path)], project, settings)
    migrated = session.migrate(project, settings)
    results = session.merged(migrated, configured)
    leftovers = _beside_kept(leftovers, migrated)
    results = session.merged(results, [session.wanted(result, settings) for result in leftovers])
    project.files += sum(not found.path.endswith(PYTHON_SUFFIXES) for found in outside)
    found = Report(session.report(project, results).results, project.files)
    session.show(found, settings, "check", err=False)
    ctx.exit(found.exit_code(dry=True))


def _wanted(path: str) -> bool:
    from amp_migrate.leftovers import kind_of

    return kind_of(path) is not None or is_configuration(path)


def _beside_kept(leftovers: list[FileResult], migrated: list[FileResult]) -> list[FileResult]:
    """The leftovers, as they read where the program keeps a part of Apex that works beside native AMP."""
    from amp_migrate.leftovers import beside_kept

    for result in migrated:
        for finding in result.findings:
            if finding.code == "AMP641" and finding.status == "note":
                kept = f"{finding.construct.rpartition('.')[2]} ({result.path}:{finding.line})"
                return [beside_kept(leftover, kept) for leftover in leftovers]
    return leftovers


def _outside(files: list[Found], sources: list[SourceFile]) -> list[FileResult]:
    from amp_migrate.configuration import names_in
    from amp_migrate.leftovers import scan

    # Without code in sight every option may be the program's own.
    named = names_in(sources) if sources else lambda option: True
    return [result for found in files if (result := scan(found, named)) is not None]


def _in_notebooks(targets: list[SourceFile]) -> list[FileResult]:
    from amp_migrate.leftovers import in_notebook

    found = ((source, in_notebook(source.notebook)) for source in targets if source.notebook is not None)
    return [FileResult(source.display, "blocked", findings) for source, findings in found if findings]
