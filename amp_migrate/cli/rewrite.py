"""`amp-migrate rewrite PATH...`: migrate in place, or show what would change."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import click

from amp_migrate import config
from amp_migrate.cli import interrupted, outside, printing, repositories, session
from amp_migrate.cli.needs import torch_is_there
from amp_migrate.cli.settings import Settings, resolve, shared_options
from amp_migrate.cli.signals import unwinding
from amp_migrate.configuration import is_configuration
from amp_migrate.findings import FileResult, Report
from amp_migrate.reports import quoting, steps
from amp_migrate.sources import outputs
from amp_migrate.sources.discover import Found
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
@click.option(
    "--verify",
    is_flag=True,
    help="Run the original and the migrated program before anything is written, as `amp-migrate verify` does, and write "
    "nothing when they disagree. Runs the cases of pyproject.toml (`amp-migrate verify --init`), or what --run names.",
)
@click.option("--run", multiple=True, metavar='"SCRIPT ARGS"', help="What --verify runs. May be repeated.")
@click.option(
    "--summary",
    metavar="FILE.md",
    help="Also write a Markdown summary, for a pull request.",
)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Migrate the Python files and notebooks at PATH... from NVIDIA Apex to plain PyTorch, in place.

    So are settings of training frameworks in JSON and YAML files (DeepSpeed, Lightning, Transformers).

    The whole project around a path (up to the nearest .git or pyproject.toml) is read to understand the code; only
    files below the paths are written. '-' reads a program from standard input and writes it to standard output.
    Files that .gitignore names, virtual environments and copies of Apex or torch are skipped unless they are named.

    Of a folder that holds several repositories each is migrated on its own, with its own configuration, and written before
    the next is read; a run that was stopped goes on where it was when it is started again.

    A comment `# amp-migrate: ignore[CODE]` keeps the site on its line as it is, and with it all that shares its loss
    scaler. [tool.amp-migrate] in pyproject.toml takes the same names as the options.

    The report goes to standard output. With --diff the diff does, and the text report to standard error; a json,
    sarif, github or html report stays on standard output, and the diff goes to standard error. With '-', standard output
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
      0  nothing left to do in the code; what is told under "Next" may remain, in texts and requirements
      1  something needs a hand; with --check or --diff, something would change; with --verify, the programs disagree
      2  usage error, or a file or report that could not be read, parsed or written; with --verify, a case that was not judged
      3  a defect of amp-migrate itself; the other files are done
    """
    settings = resolve(ctx, given)
    if given["run"] and not given["verify"]:
        raise click.UsageError("--run names what --verify runs.", ctx)
    if given["verify"] and (settings.dry or settings.stdin):
        raise click.UsageError(
            "--verify judges what is about to be written: it does not go with --check, --diff or -.", ctx
        )
    if given["verify"] and not torch_is_there("rewrite --verify"):
        ctx.exit(2)
    if settings.summary is not None:
        if settings.dry:
            raise click.UsageError("--summary tells what was written: it does not go with --check or --diff.", ctx)
        if (problem := outputs.problem(settings.summary)) is not None:
            raise click.UsageError(f"--summary: {quoting.path(settings.summary)} {problem}.", ctx)
    if many := repositories.found(settings):
        _of_many(ctx, given, settings, many)
    done = rewritten(settings, given["run"] if given["verify"] else None)
    code = max(done.report.exit_code(dry=settings.dry), done.verdict)
    try:
        with printing.saying(_kept(done.report, settings)):
            _print(done, settings)
    finally:  # what cannot be printed may still be written
        if settings.summary is not None and not _summarized(done, settings):
            code = max(code, 2)
    ctx.exit(code)


def _of_many(ctx: click.Context, given: dict[str, Any], settings: Settings, paths: list[str]) -> NoReturn:
    """Rewrite repository by repository, each written before the next is read: a run that was stopped is started again."""
    if settings.summary is not None:
        raise click.UsageError("--summary is for one repository; --format html tells of many.", ctx)
    if given["verify"]:
        raise click.UsageError("--verify is for one repository.", ctx)
    found = repositories.run(ctx, given, settings, paths, lambda own: rewritten(own).report)
    with printing.saying(_kept(found, settings)):
        _print(Done(found, Project()), settings, many=True)
    ctx.exit(found.exit_code(dry=settings.dry))


@dataclass(frozen=True)
class Done:
    """What a rewrite found and did. `leftovers` are files, most outside Python, with what is still to do in them, `revision` is the
    commit that holds what was changed."""

    report: Report
    project: Project
    leftovers: tuple[FileResult, ...] = ()
    revision: str | None = None
    verdict: int = 0  # of `--verify`: 0 agrees or not asked, 1 disagrees, so that nothing was written, 2 not judged
    proved: bool = False  # `--verify` was asked for, and all cases agree


def rewritten(settings: Settings, cases: Sequence[str] | None = None) -> Done:
    """Migrate the files at the paths of a run, and write them unless it is dry, or disagrees when `cases` are run (with
    none, those of pyproject.toml)."""
    discovery = None
    others: list[Found] = []
    interruptions: list[FileResult] = []
    if not settings.stdin:
        everything = session.discovered(settings, outside.wanted)
        discovery, others = session.split(everything, outside.wanted)
        interruptions = interrupted.settle(everything, settings.paths, write=not settings.dry)
    project = session.load(settings, discovery)
    configured, more = session.configurations([f for f in others if is_configuration(f.path)], project, settings)
    migrated = session.migrate(project, settings)
    results = session.merged(migrated, [r for r in more if r.listed])
    results = session.merged(results, interruptions)
    if not settings.stdin:
        results = session.with_other_names([*project.targets, *configured], results, settings)
    revision, verdict, proved = None, 0, False
    leftovers: list[FileResult] = []
    read = 0  # files that are no Python
    if not settings.dry and not settings.stdin:
        # Only a person, or the summary for one, is told what to do next.
        told = settings.output in ("text", "html") or settings.summary is not None
        revision = _revision(results) if told else None
        if told and any(r.listed for r in results):
            from amp_migrate.stale_comments import stale_comments

            read = outside.count(others)
            found = [*outside.leftovers(others, project, migrated, settings), *stale_comments(results)]
            leftovers = [session.wanted(r, settings) for r in found]
        if cases is not None and any(result.changed for result in results):
            from amp_migrate.cli import verified

            verdict = verified.judged(results, [*project.targets, *configured], cases, quiet=settings.quiet)
            proved = verdict == 0
            if verdict == 1:
                results = verified.held_back(results)
        results = session.write([*project.targets, *configured], results, settings)
    project.files += read or sum(r.listed for r in more)
    return Done(session.report(project, results), project, _to_do(leftovers), revision, verdict, proved)


def _to_do(leftovers: list[FileResult]) -> tuple[FileResult, ...]:
    from amp_migrate.leftovers import to_do

    left = (replace(r, findings=[f for f in r.findings if to_do(f)]) for r in leftovers)
    return tuple(r for r in left if r.findings)


def _print(done: Done, settings: Settings, *, many: bool = False) -> None:
    machine = settings.output != "text"
    found = done.report
    several = steps.of_many("rewrite --diff" if settings.dry else "rewrite", found) if many else None
    if settings.diff:
        from amp_migrate.reports import diff

        diff_to_stderr = machine and not settings.stdin
        printing.emit(diff.render(found, session.style_for(err=diff_to_stderr)), err=diff_to_stderr)
        session.show(
            found, settings, "dry", err=not diff_to_stderr, steps=several or steps.after_dry(found, settings.paths)
        )
    elif settings.check:
        session.show(found, settings, "dry", err=False, steps=several or steps.after_dry(found, settings.paths))
    else:
        if settings.stdin:
            _pass_on(found, done.project)
        following = several or steps.after_rewrite(
            found, done.leftovers, settings.paths, done.revision, proved=done.proved
        )
        session.show(found, settings, "rewritten", err=settings.stdin, steps=following, beside=done.leftovers)


def _pass_on(found: Report, project: Project) -> None:
    """The program to standard output: migrated, or byte for byte as it came."""
    out = sys.stdout.buffer
    after = next((r.after for r in found.results if r.changed), None)
    with printing.stream():
        out.write(project.stdin if after is None else project.targets[0].encode_file(after))
        out.flush()


def _revision(results: list[FileResult]) -> str | None:
    """The commit that holds what is about to be changed."""
    from amp_migrate.sources.git import holding

    return holding([result.path for result in results if result.changed])


def _kept(found: Report, settings: Settings) -> str:
    """What a run has done, whether or not it can be printed."""
    if settings.stdin:
        return ""
    written = 0 if settings.dry else sum(result.changed for result in found.results)
    return f"{written} {'file is' if written == 1 else 'files are'} migrated all the same" if written else ""


def _summarized(done: Done, settings: Settings) -> bool:
    """Whether the summary could be written; why not is told."""
    from amp_migrate.reports import summary

    path = str(settings.summary)
    earlier = os.path.isfile(path)
    text = summary.render(
        done.report, "rewritten", dtype=settings.options.dtype, revision=done.revision, beside=done.leftovers
    )
    with unwinding():
        problem = outputs.write(path, text)
    if problem is None:
        return True
    kept = ["the summary that was there is as it was"] if earlier else []
    kept += [told] if (told := _kept(done.report, settings)) else []
    printing.emit(f"amp-migrate: --summary {quoting.path(path)}: {'; '.join([problem, *kept])}\n", err=True)
    return False
