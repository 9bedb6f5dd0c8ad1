"""`amp-migrate run SCRIPT [ARGS]`: an Apex program on current PyTorch, unmigrated."""

from __future__ import annotations

from typing import Any, get_args

import click

from amp_migrate.cli.needs import torch_is_there
from amp_migrate.shim import ApexChoice, DeviceChoice, launch


@click.command(
    "run",
    short_help="Run a program that needs Apex, as it is.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--apex",
    type=click.Choice(get_args(ApexChoice)),
    default="auto",
    show_default=True,
    help="Which Apex: an installed one, the shim, or the installed one where it is complete; untouched leaves imports to "
    "Python, for migrated programs.",
)
@click.option(
    "--device",
    type=click.Choice(get_args(DeviceChoice)),
    default="auto",
    show_default=True,
    help="cpu runs CUDA programs on the CPU; auto does so where there is no GPU.",
)
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N ranks with torchrun's environment; {local_rank} in ARGS becomes the number of each.",
)
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE [ARGS]...")
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **choices: Any) -> None:
    """Run SCRIPT (or MODULE, as python -m does), a program written for NVIDIA Apex, on current PyTorch.

    Nothing is rewritten or installed: `import apex` finds a pure-PyTorch stand-in, and without a GPU what the program
    does with CUDA happens on the CPU. Options come before SCRIPT; everything after it belongs to the program.

    \b
    Examples:
      amp-migrate run train.py --epochs 1
      amp-migrate run --device cpu train.py --opt-level O2
      amp-migrate run --nproc 2 -m package.train
      amp-migrate run --nproc 2 train.py --local_rank={local_rank}

    The exit code is the program's; 2 if nothing was given to run, or torch is missing.
    """
    # -m is no option of this command: what follows the module is the program's, also where it looks like one of ours.
    if arguments[0].startswith("-") and arguments[0] != "-m":
        raise click.NoSuchOption(arguments[0], ctx=ctx)
    if arguments == ("-m",):
        raise click.UsageError("-m needs a module", ctx)
    if not torch_is_there("run"):
        ctx.exit(2)
    ctx.exit(launch.run(arguments, **choices))
