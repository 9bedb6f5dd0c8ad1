"""`amp-migrate rewrite --verify`: the migration is run and judged before it is written; one that disagrees is not."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from amp_migrate.cli.printing import echo
from amp_migrate.cli.signals import unwinding
from amp_migrate.findings import FileResult

NOT_WRITTEN = "not written, because the migrated program does not train as the original does"


def judged(results: list[FileResult], sources: Sequence[Any], cases: Sequence[str], *, quiet: bool) -> int:
    """Verify what `results` would write, with these `cases` (a script and its arguments each) or those of pyproject.toml.

    0 when all agree, 1 when one disagrees, 2 when one could not be judged and none disagrees. The screens go to standard
    error: standard output belongs to the report. Nothing of the project is written. Raises UsageError without a case.
    """
    from amp_migrate.verify import configuration, programs, session, trees
    from amp_migrate.verify.case import VerifyError
    from amp_migrate.verify.report import text

    scripts = [shlex.split(case) for case in cases]
    try:
        if not scripts:
            configuration.load(Path.cwd())
    except VerifyError as error:
        raise click.UsageError(
            f"--verify: {error}; name one with --run, or have cases written by `amp-migrate verify --init`"
        ) from None
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    codes = []
    with (
        tempfile.TemporaryDirectory(prefix="amp-migrate-rewrite-", ignore_cleanup_errors=True) as temporary,
        unwinding(),
    ):
        root = programs.project_root((Path(scripts[0][0]) if scripts else Path.cwd() / "any").resolve())
        tree = trees.lay_out(root, Path(temporary) / "rewritten")
        _apply(results, sources, root, tree)
        requests = [session.Request(Path(words[0]), tuple(words[1:]), rewritten=tree) for words in scripts]
        for request in requests or [session.Request(rewritten=tree)]:
            try:
                for outcome in session.run(request, (lambda message: None) if quiet else _progress):
                    _progress("")
                    echo((text.line if outcome.exit_code == 0 else text.render)(outcome, colour=colour), err=True)
                    codes.append(outcome.exit_code)
            except VerifyError as error:
                echo(f"amp-migrate rewrite --verify: {error}", err=True)
                codes.append(2)
    return 1 if 1 in codes else max(codes, default=2)


def held_back(results: list[FileResult]) -> list[FileResult]:
    """The results of a migration that is not written: every site is still there."""
    held = []
    for result in results:
        if result.changed:
            kept = [f for f in result.findings if f.status != "note"]
            sites = [
                replace(f, status="manual", message=f"{NOT_WRITTEN}: {f.message}") if f.status == "done" else f
                for f in kept
            ]
            result = replace(result, status="blocked", findings=sites, after=None)
        held.append(result)
    return held


def _apply(results: list[FileResult], sources: Sequence[Any], root: Path, tree: Path) -> None:
    """Write the migration into a copy of the project."""
    by_display = {source.display: source for source in sources}
    for result in results:
        if result.changed:
            source = by_display[result.path]
            place = Path(os.path.realpath(source.path))
            if root in place.parents:
                (tree / place.relative_to(root)).write_bytes(source.encode_file(result.after))


def _progress(message: str) -> None:
    if sys.stderr.isatty():
        echo(f"\r\x1b[2K{message[:100]}", nl=False, err=True)
