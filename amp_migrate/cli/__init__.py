"""The command line. Each command is a module here with a click `command`, imported when it is called."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from amp_migrate import __version__
from amp_migrate.cli import printing

# In the order of a migration; those whose module is not there are not shown.
_COMMANDS = ("rewrite", "check", "verify", "checkpoint", "run", "explain")


class _Commands(click.Group):
    """Imports a command when it is needed: start-up costs no more than click."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        here = Path(__file__).parent
        return [name for name in _COMMANDS if (here / f"{name}.py").exists()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"amp_migrate.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        for name in ("stdout", "stderr"):  # closed by whoever started us: what they would have said goes nowhere
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        atexit.register(gc.freeze)  # what goes with the process is not looked through for garbage first
        try:
            return super().main(*args, **options)
        except OSError as error:  # of our own output: the user's files are looked after where they are read and written
            with contextlib.suppress(OSError):
                click.echo(f"amp-migrate: {printing.told(error)}", err=True)
            printing.silence()
            sys.exit(2)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("amp-migrate: interrupted", err=True)
            ctx.exit(130)
        except click.ClickException as error:
            from amp_migrate.reports.quoting import lines

            error.message = lines(error.message)  # type: ignore[misc]  # it can name a file
            raise
        except (click.exceptions.Exit, click.Abort, OSError):
            raise
        except Exception as error:
            if os.environ.get("AMP_MIGRATE_DEBUG"):
                raise
            click.echo(
                f"amp-migrate: internal error: {type(error).__name__}: {printing.one_line(error)}\n"
                "Please report this; AMP_MIGRATE_DEBUG=1 prints the traceback.",
                err=True,
            )
            ctx.exit(3)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="amp-migrate")
def main() -> None:
    """Turn NVIDIA Apex mixed precision training code into plain PyTorch, and prove that the numbers did not move.

    \b
    amp-migrate check .                   what is there, and how much of it is automatic
    amp-migrate rewrite --diff train.py   show the migration
    amp-migrate rewrite .                 write it
    amp-migrate explain AMP201            what a finding means

    Exit codes: 0 nothing left to do; 1 something remains; 2 usage error, or a file that could not be read; 3 a defect of
    amp-migrate itself.
    """
