"""`amp-migrate verify [SCRIPT] [-- ARGS]`: does the migrated program train as the original did?"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from amp_migrate.cli.needs import matplotlib_is_there, torch_is_there
from amp_migrate.cli.printing import echo
from amp_migrate.cli.signals import unwinding
from amp_migrate.reports import quoting
from amp_migrate.sources import outputs


class _Verify(click.Command):
    """Says what is missing where the script's own arguments follow it without `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            script = next((i for i, a in enumerate(given) if a.endswith((".py", ".ipynb"))), None)
            if script is None or "--" in given:
                raise
            words = [*given[: script + 1], "--", *given[script + 1 :]]
            raise click.UsageError(
                f"{error.message} Arguments of the script follow after --:\n  amp-migrate verify {shlex.join(words)}",
                ctx,
            ) from None


@click.command("verify", cls=_Verify, short_help="Prove that the migrated program trains as the original did.")
@click.argument("script", required=False, type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--init",
    is_flag=True,
    help="Run nothing; find the cases that together reach what the migration changes, and write them to pyproject.toml. "
    "SCRIPT may be the folder of the project.",
)
@click.option("--migrated", type=click.Path(path_type=Path), help="The migrated script or tree. Default: rewritten.")
@click.option("--original-rev", metavar="REV", help="The working tree is migrated; the original is this git revision.")
@click.option("--steps", type=click.IntRange(min=2), help="Optimizer steps to run.  [default: 50]")
@click.option("--resume-at", type=click.IntRange(min=1), metavar="K", help="The step of the checkpoint round trip.")
@click.option(
    "--resume-args",
    metavar="TEMPLATE",
    help='How the script resumes: "--resume {checkpoint}". Without it the tool saves and loads.',
)
@click.option(
    "--drills",
    metavar="none|all|NAME,...",
    help="What training rarely meets, forced on both sides (an overflow, growth, ...).  [default: all that cost seconds]",
)
@click.option("--off-args", metavar="ARGS", help="Drilled without mixed precision: these in place of the arguments.")
@click.option("--eval-args", metavar="ARGS", help='Drilled evaluating alone: these ("--evaluate --load {checkpoint}").')
@click.option("--nproc", type=click.IntRange(min=1), help="Processes under torchrun.  [default: 1]")
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    help="Where both run; auto is a GPU, or the CPU under CUDA's rules where there is none. [default: auto]",
)
@click.option(
    "--apex",
    type=click.Choice(["auto", "installed", "shim"]),
    help="What the original imports; auto is an installed one that has amp.initialize, else the stand-in. [default: auto]",
)
@click.option(
    "--dtype",
    type=click.Choice(["float16", "bfloat16"]),
    help="The half format that is wanted. Another one than the original's is a disagreement unless it is named here.",
)
@click.option("--seed", type=int, help="Of both programs. [default: 0]")
@click.option(
    "--step-timeout", type=float, default=120.0, show_default=True, help="Seconds without a step or a forward."
)
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds for one run.")
@click.option(
    "--require-coverage",
    type=click.FloatRange(0, 100),
    metavar="N",
    help="Fail when less than N percent of what the migration changed ran, over all cases.",
)
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a self-contained HTML page.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the records of all runs here.")
@click.option("--no-cache", is_flag=True, help="Run everything, also what earlier verifications have a record of.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--verbose", "-v", is_flag=True, help="Without SCRIPT: the full screen also of cases that agree.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.pass_context
def command(
    context: click.Context,
    /,
    script: Path | None,
    args: tuple[str, ...],
    init: bool,
    migrated: Path | None,
    original_rev: str | None,
    step_timeout: float,
    timeout: float,
    require_coverage: float | None,
    report: Path | None,
    keep: Path | None,
    no_cache: bool,
    output: str,
    verbose: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Run the original (on Apex or its stand-in) and the migrated program, and judge whether they train alike.

    Both run unmodified, in child processes, in copies of the project. SCRIPT may be a notebook. Without SCRIPT the cases of
    [[tool.amp-migrate.verify]] in pyproject.toml are run. Arguments of the script follow after --.

    Exit codes: 0 they agree; 1 they disagree, or less ran than --require-coverage; 2 usage error, a run that could not be
    judged, or a report or records that could not be written; 3 a defect of amp-migrate itself.
    """
    if migrated is not None and original_rev is not None:
        raise click.UsageError("--migrated and --original-rev exclude each other.", context)
    if init:
        from amp_migrate.cli.init import write

        if migrated is not None or args:
            raise click.UsageError("--init takes a folder, --original-rev and --dtype.", context)
        with unwinding():
            context.exit(write(script or Path.cwd(), original_rev=original_rev, dtype=options.get("dtype")))
    if report is not None and (problem := outputs.problem(report)) is not None:
        raise click.UsageError(f"--report: {quoting.path(str(report))} {problem}.", context)
    if not torch_is_there("verify") or (report is not None and not matplotlib_is_there("verify --report")):
        context.exit(2)
    from amp_migrate.verify import session
    from amp_migrate.verify.case import VerifyError
    from amp_migrate.verify.coverage import tally
    from amp_migrate.verify.launch import Limits
    from amp_migrate.verify.report import text

    request = session.Request(
        script=script,
        argv=args,
        migrated=migrated,
        original_rev=original_rev,
        options=tuple(options.items()),
        limits=Limits(step=step_timeout, total=timeout),
        keep=keep,
        cache=not no_cache,
    )
    show_progress = not quiet and output == "text" and sys.stderr.isatty()
    outcomes = []
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    try:
        with unwinding():
            for outcome in session.run(request, _progress if show_progress else lambda message: None):
                if show_progress:
                    _progress("")
                outcomes.append(outcome)
                if output == "json":
                    continue
                if script is None and not verbose:
                    echo(quoting.lines(text.line(outcome, colour=colour), colour=colour))
                else:
                    screen = text.render(outcome, colour=colour, alone=script is not None)
                    echo(quoting.lines(screen, colour=colour))
    except VerifyError as error:
        echo(f"amp-migrate verify: {quoting.lines(str(error))}", err=True)
        context.exit(2)
    finally:
        if show_progress:
            _progress("")
    code = 3 if any(o.defect for o in outcomes) else max((o.exit_code for o in outcomes), default=2)
    covered = tally.union((o.coverage, o.exit_code != 2) for o in outcomes)
    missed = require_coverage is not None and covered.percent < require_coverage
    if missed:
        code = max(code, 1)
    if output == "json":
        cases = [_finite(o.to_json()) for o in outcomes]
        total = covered.to_json()
        echo(json.dumps({"version": 1, "exit_code": code, "cases": cases, "coverage": total}, allow_nan=False))
    elif outcomes and script is None:
        agreeing = sum(o.exit_code == 0 for o in outcomes)
        shown = len(outcomes) == 1 and (
            verbose or outcomes[0].exit_code
        )  # the line itself is on the screen of the case
        for told in text.coverage(covered, colour=colour)[1 if shown else 0 :]:
            echo(quoting.lines(told, colour=colour))
        echo(f"{agreeing} of {len(outcomes)} case{'s' if len(outcomes) > 1 else ''} agree{'s' * (len(outcomes) == 1)}")
    if missed and output == "text":
        echo(f"coverage is {covered.percent:.1f}%, less than the {require_coverage:g}% required")
    if (unkept := next((o.unkept for o in outcomes if o.unkept), None)) is not None:
        echo(f"amp-migrate verify: --keep {quoting.path(str(keep))}: {unkept}; not all records are there", err=True)
        code = max(code, 2)
    if report is not None and not _written(report, outcomes):
        code = max(code, 2)
    context.exit(code)


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _written(report: Path, outcomes: list[Any]) -> bool:
    """Whether the page could be written; why not is told."""
    from amp_migrate.verify.report import html

    earlier = report.is_file()
    with unwinding():
        problem = outputs.write(report, html.render(outcomes))
    if problem is not None:
        kept = "; the report that was there is as it was" if earlier else ""
        echo(f"amp-migrate verify: --report {quoting.path(str(report))}: {problem}{kept}", err=True)
    return problem is None


def _progress(message: str) -> None:
    """One line on the terminal, overwritten by the next."""
    echo(f"\r\x1b[2K{quoting.plain(message)[:100]}", nl=False, err=True)
