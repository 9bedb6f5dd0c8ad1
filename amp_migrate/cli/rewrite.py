"""`amp-migrate rewrite PATH...`: migrate in place, or show what would change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from amp_migrate import config
from amp_migrate.cli import session
from amp_migrate.cli.settings import Settings, resolve, shared_options
from amp_migrate.configuration import is_configuration
from amp_migrate.findings import FileResult, Report
from amp_migrate.sources.discover import PYTHON_SUFFIXES, Found, discover
from amp_migrate.sources.project import Project


@click.command("rewrite", short_help="Migrate files and folders in place.")
@shared_options
@click.option("--diff", is_flag=True, help="Write nothing; print a unified diff.")
@click.option("--check", is_flag=True, help="Write nothing; list what would change.")
@click.option(
    "--dtype",
    type=click.Choice(config.DTYPES),
    default="float16",
    show_default=True,
    help="Type of the autocast regions. bfloat16 needs no gradient scaler, so none is emitted.",
)
@click.option("--device", default="cuda", show_default=True, metavar="TYPE", help="Device type of autocast and scaler.")
@click.option(
    "--eval",
    "eval_mode",
    type=click.Choice(config.EVALS),
    default="autocast",
    show_default=True,
    help="Precision of evaluation. Apex ran it in mixed precision too.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Migrate what can be of units that cannot be migrated whole, and mark the rest with comments. The result does "
    "not run before the marked places are finished.",
)
@click.option("--checkpoint-compat", is_flag=True, help="Emit loading code that also accepts Apex checkpoints.")
@click.option("--summary", metavar="FILE.md", help="Also write a Markdown summary, for a pull request.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Migrate the Python files and notebooks at PATH... from NVIDIA Apex to plain PyTorch, in place.

    So are settings of training frameworks in JSON and YAML files (DeepSpeed, Lightning, Transformers).

    The whole project around a path (up to the nearest .git or pyproject.toml) is read to understand the code; only
    files below the paths are written. '-' reads a program from standard input and writes it to standard output.
    Files that .gitignore names, virtual environments and copies of Apex are skipped unless they are named.

    A comment `# amp-migrate: ignore[CODE]` keeps the site on its line as it is, and with it all that shares its loss
    scaler. [tool.amp-migrate] in pyproject.toml takes the same names as the options.

    The report goes to standard output. With --diff the diff does, and the text report to standard error; a json,
    sarif or github report stays on standard output, and the diff goes to standard error. With '-', standard output
    belongs to the program (or its diff), and the report goes to standard error.

    \b
    Examples:
      amp-migrate rewrite .
      amp-migrate rewrite --diff train.py
      amp-migrate rewrite --check --format github src/
      amp-migrate rewrite --dtype bfloat16 --summary migration.md .
      amp-migrate rewrite - < old.py > new.py

    \b
    Exit codes:
      0  nothing left to do
      1  something needs a hand; with --check or --diff, something would change
      2  usage error, or a file that could not be read, parsed or written
    """
    settings = resolve(ctx, given)
    discovery = None
    files: list[Found] = []
    if not settings.stdin:
        everything = discover(
            settings.paths, settings.exclude, lambda p: p.endswith(PYTHON_SUFFIXES) or is_configuration(p)
        )
        discovery, files = session.split(everything, is_configuration)
    project = session.load(settings, discovery)
    configured, more = session.configurations(files, project, settings)
    results = session.merged(session.migrate(project, settings), [r for r in more if r.listed])
    dry = settings.check or settings.diff
    revision = _revision(results) if settings.summary and not dry else None
    if not dry and not settings.stdin:
        results = session.write([*project.targets, *configured], results)
    project.files += sum(r.listed for r in more)
    found = session.report(project, results)
    _print(found, project, settings)
    if settings.summary:
        _summarize(ctx, found, settings, dry, revision)
    ctx.exit(found.exit_code(dry=dry))


def _print(found: Report, project: Project, settings: Settings) -> None:
    machine = settings.output != "text"
    if settings.diff:
        from amp_migrate.reports import diff

        diff_to_stderr = machine and not settings.stdin
        session.emit(diff.render(found, session.style_for(err=diff_to_stderr)), err=diff_to_stderr)
        session.show(found, settings, "dry", err=not diff_to_stderr)
    elif settings.check:
        session.show(found, settings, "dry", err=False)
    else:
        if settings.stdin:
            _pass_on(found, project)
        session.show(found, settings, "rewritten", err=settings.stdin)


def _pass_on(found: Report, project: Project) -> None:
    """The program to standard output: migrated, or byte for byte as it came."""
    out = sys.stdout.buffer
    after = next((r.after for r in found.results if r.changed), None)
    if after is not None:
        out.write(project.targets[0].encode_file(after))
    else:
        out.write(project.stdin)
    out.flush()


def _revision(results: list[FileResult]) -> str | None:
    """The commit that holds what is about to be changed."""
    from amp_migrate.sources.revision import holding

    return holding([result.path for result in results if result.changed])


def _summarize(ctx: click.Context, found: Report, settings: Settings, dry: bool, revision: str | None) -> None:
    from amp_migrate.reports import summary

    text = summary.render(found, "dry" if dry else "rewritten", dtype=settings.options.dtype, revision=revision)
    try:
        Path(str(settings.summary)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(
            f"--summary: {settings.summary}: {(error.strerror or str(error)).lower()}", ctx
        ) from None
