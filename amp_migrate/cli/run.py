"""`amp-migrate run SCRIPT [ARGS]`: an Apex program on current PyTorch, unmigrated."""

from __future__ import annotations

from typing import Any, get_args

import click

from amp_migrate.shim import ApexChoice, DeviceChoice, launch


@click.command(
    "run",
    short_help="Run a program that needs Apex, as it is.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does; all arguments are its own.")
@click.option(
    "--apex",
    type=click.Choice(get_args(ApexChoice)),
    default="auto",
    show_default=True,
    help="Which Apex: an installed one, the shim, or the installed one where it is complete.",
)
@click.option(
    "--device",
    type=click.Choice(get_args(DeviceChoice)),
    default="auto",
    show_default=True,
    help="cpu runs CUDA programs on the CPU; auto does so where there is no GPU.",
)
@click.option("--nproc", type=click.IntRange(min=1), metavar="N", help="Start N ranks with torchrun's environment.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
@click.pass_context
def command(ctx: click.Context, module: str | None, arguments: tuple[str, ...], **choices: Any) -> None:
    """Run SCRIPT, a program written for NVIDIA Apex, on current PyTorch.

    Nothing is rewritten or installed: `import apex` finds a pure-PyTorch stand-in, and without a GPU what the program
    does with CUDA happens on the CPU. Options come before SCRIPT; everything after it belongs to the program.

    \b
    Examples:
      amp-migrate run train.py --epochs 1
      amp-migrate run --device cpu train.py --opt-level O2
      amp-migrate run --nproc 2 -m package.train

    The exit code is the program's; 2 if nothing was given to run.
    """
    if module is not None:
        arguments = ("-m", module, *arguments)
    elif not arguments:
        raise click.UsageError("give a script, or a module with -m", ctx)
    ctx.exit(launch.run(arguments, **choices))
