"""`amp-migrate checkpoint IN OUT`: an Apex checkpoint becomes a native one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amp_migrate.checkpoint.states import DEFAULT_TO_KEY, GROWTH_INTERVAL, CheckpointError, Conversion
from amp_migrate.cli.needs import torch_is_there
from amp_migrate.cli.printing import echo, saying
from amp_migrate.cli.signals import unwinding
from amp_migrate.reports import quoting

if TYPE_CHECKING:
    from amp_migrate.checkpoint.optimizers import StepCounts


@click.command("checkpoint", short_help="Convert an Apex checkpoint to a native one.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--key", help="Convert only the Apex state under this key. Default: wherever there is one.")
@click.option("--to-key", default=DEFAULT_TO_KEY, show_default=True, help="The key of the GradScaler state.")
@click.option("--unsafe-pickle", is_flag=True, help="Load pickles that can run code. Only for files you trust.")
@click.option(
    "--growth-interval",
    type=click.IntRange(min=1),
    default=GROWTH_INTERVAL,
    show_default=True,
    help="Apex's scale_window, which its state does not hold.",
)
@click.option("--static", is_flag=True, help="The loss scale was static: hold it.")
@click.option("--list", "as_list", is_flag=True, help="One list for all loss scalers, for code with a scaler for each.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    source: Path,
    target: Path,
    key: str | None,
    to_key: str,
    unsafe_pickle: bool,
    growth_interval: int,
    static: bool,
    as_list: bool,
    output: str,
) -> None:
    """Turn what Apex saved in the checkpoint IN into what native PyTorch loads, and write OUT.

    Loss scaler states become GradScaler states; the step counts of FusedAdam go to its parameters, where torch's Adam and
    AdamW keep them. Everything else is kept as it is; IN is never written.

    Exit codes: 0 converted; 2 unreadable, refused, or nothing to convert.
    """
    if not torch_is_there("checkpoint"):
        context.exit(2)
    try:
        from amp_migrate.checkpoint.files import convert_file

        with unwinding():
            done, steps = convert_file(
                source,
                target,
                key=key,
                to_key=to_key,
                unsafe_pickle=unsafe_pickle,
                growth_interval=growth_interval,
                static=static,
                as_list=as_list,
            )
    except CheckpointError as error:
        echo(f"amp-migrate checkpoint: {quoting.lines(str(error))}", err=True)
        context.exit(2)
    with saying(f"{quoting.path(str(target))} is written"):
        _print(target, done, steps, output)


def _print(target: Path, done: list[Conversion], steps: list[StepCounts], output: str) -> None:
    if output == "json":
        optimizers = [{"path": s.path, "steps": list(s.steps)} for s in steps]
        found_here = {"scalers": [_as_json(c) for c in done]} | ({"optimizers": optimizers} if optimizers else {})
        echo(json.dumps({"version": 1, "path": str(target), **found_here}))
        return
    found = [_counted(len(done), "loss scaler")] if done else []
    found += [_counted(len(steps), "FusedAdam state")] if steps else []
    echo(f"{' and '.join(found)} converted: {quoting.path(str(target))}")
    for conversion in done:
        echo(f"  {quoting.plain(_describe(conversion))}")  # keys are whatever was saved
    for state in steps:
        counts = ", ".join(str(step) for step in state.steps)
        echo(f"  {quoting.plain(state.path) or 'the file'}: step {counts} kept for each parameter")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def _describe(conversion: Conversion) -> str:
    native = conversion.native
    line = f"{conversion.source} -> {conversion.target}: scale {native['scale']:g}"
    if conversion.static:
        counted = int(conversion.apex.get("unskipped", 0))
        return f"{line}, static ({counted} clean passes counted; factors 1.0 hold it)"
    return f"{line}, growth tracker {native['_growth_tracker']} of {native['growth_interval']}"


def _as_json(conversion: Conversion) -> dict[str, object]:
    return {
        "source": conversion.source,
        "target": conversion.target,
        "static": conversion.static,
        "state": conversion.native,
    }
