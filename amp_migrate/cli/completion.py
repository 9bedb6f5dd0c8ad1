"""What a shell offers when Tab is pressed: finding codes, with what they stand for."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The codes that begin as the word does; of several separated by commas, as the last one does."""
    from amp_migrate.registry import all_codes, normal

    done, comma, last = incomplete.rpartition(",")
    wanted = normal(last) if last else ""
    return [
        CompletionItem(f"{done}{comma}{name}", help=code.title)
        for name, code in all_codes().items()
        if name.startswith(wanted)
    ]
