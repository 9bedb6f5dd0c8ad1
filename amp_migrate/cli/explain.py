"""`amp-migrate explain [CODE]`: what a finding means."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator

import click

from amp_migrate import registry
from amp_migrate.cli.completion import codes
from amp_migrate.cli.printing import emit
from amp_migrate.cli.session import style_for
from amp_migrate.findings import Code
from amp_migrate.reports.style import Style


@click.command("explain", short_help="Explain a finding: what Apex does, what native does, why.")
@click.argument("code", required=False, shell_complete=codes)
@click.pass_context
def command(ctx: click.Context, code: str | None) -> None:
    """Explain the finding CODE: what Apex does, what native PyTorch does, why, and where that is documented.

    A prefix explains every code that starts with it. Without CODE, all codes are listed.

    \b
    Examples:
      amp-migrate explain
      amp-migrate explain AMP201
      amp-migrate explain 3
    """
    style = style_for(err=False)
    if code is None:
        emit("\n".join(_listing(style)) + "\n")
        return
    found = registry.matching(code)
    if not found:
        near = difflib.get_close_matches(registry.normal(code), registry.all_codes(), n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else " `amp-migrate explain` lists all codes."
        raise click.UsageError(f"no finding code {code!r}.{hint}", ctx)
    emit("\n".join("\n".join(_explained(entry, style)) for entry in found))


def _listing(style: Style) -> Iterator[str]:
    band = ""
    for name, code in registry.all_codes().items():
        if name[3] != band:
            if band:
                yield ""
            band = name[3]
            yield style.bold(registry.BANDS[band])
        yield f"  {style.info(name)}  {code.title}"


def _explained(code: Code, style: Style) -> Iterator[str]:
    yield f"{style.info(code.code)} {style.bold(code.title)}"
    yield f"  {code.construct}"
    for label, text in (("Apex", code.apex), ("Native", code.native), ("Why", code.why)):
        yield ""
        yield style.bold(label)
        yield textwrap.indent(_filled(text), "  ")
    for example in code.examples:
        yield ""
        yield style.bold("Before")
        yield textwrap.indent(example.before.strip("\n"), "    ")
        yield style.bold("After")
        yield textwrap.indent(example.after.strip("\n") or "(nothing: it goes)", "    ")
    if code.links:
        yield ""
        yield from (f"  {link}" for link in code.links)
    yield ""


def _filled(text: str) -> str:
    """Paragraphs filled to a readable width; indented lines, such as code, as they stand."""
    blocks = textwrap.dedent(text).strip("\n").split("\n\n")
    return "\n\n".join(b if b.startswith((" ", "\t")) or "\n " in b else textwrap.fill(b, 96) for b in blocks)
