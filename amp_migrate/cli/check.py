"""`amp-migrate check PATH...`: what is there, and how much of it is automatic. Writes nothing."""

from __future__ import annotations

from typing import Any

import click

from amp_migrate.cli import interrupted, outside, repositories, session
from amp_migrate.cli.outside import wanted
from amp_migrate.cli.settings import Settings, resolve, shared_options
from amp_migrate.configuration import is_configuration
from amp_migrate.findings import FileResult, Report
from amp_migrate.reports import steps
from amp_migrate.sources.discover import Found


@click.command("check", short_help="List every use of Apex, and what is left of it.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """List every use of NVIDIA Apex and of deprecated torch.cuda.amp names at PATH..., and change nothing.

    Each use is listed with its code and whether `amp-migrate rewrite` migrates it. So are leftovers outside Python:
    requirements, setup files, Dockerfiles, shell scripts, CI files and READMEs that install or mention Apex,
    requirements, commands and images that hold torch below 2.4 beside code that would be migrated (AMP856), and
    settings of training frameworks in JSON and YAML files that choose it.

    Of a folder that holds several repositories each is read on its own, with its own configuration; the report is a table
    by repository and by code.

    \b
    Examples:
      amp-migrate check .
      amp-migrate check --format sarif . > apex.sarif
      amp-migrate check --select AMP1,AMP2 src/
      amp-migrate check --ignore AMP85 .
      amp-migrate check --format html checkouts/ > inventory.html

    \b
    Exit codes:
      0  no Apex left
      1  something would be migrated, or needs a hand
      2  usage error, or a file that could not be read or parsed, or a report that could not be written
      3  a defect of amp-migrate itself; the other files are done
    """
    settings = resolve(ctx, given)
    many = repositories.found(settings)
    found = repositories.run(ctx, given, settings, many, checked) if many else checked(settings)
    following = steps.of_many("check", found) if many else steps.after_check(found, settings.paths)
    session.show(found, settings, "check", err=False, steps=following)
    ctx.exit(found.exit_code(dry=True))


def checked(settings: Settings) -> Report:
    """Everything found at the paths of a run, and what `rewrite` would do."""
    others: list[Found] = []
    discovery = None
    interruptions: list[FileResult] = []
    if not settings.stdin:
        everything = session.discovered(settings, wanted)
        discovery, others = session.split(everything, wanted)
        interruptions = interrupted.settle(everything, settings.paths, write=False)
    project = session.load(settings, discovery)
    _, configured = session.configurations([f for f in others if is_configuration(f.path)], project, settings)
    migrated = session.migrate(project, settings)
    leftovers = outside.leftovers(others, project, migrated, settings)
    results = session.merged(migrated, configured)
    results = session.merged(results, [session.wanted(result, settings) for result in leftovers])
    results = session.merged(results, interruptions)
    project.files += outside.count(others)
    return Report(session.report(project, results).results, project.files)
