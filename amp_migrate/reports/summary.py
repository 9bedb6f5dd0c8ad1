"""A Markdown summary fit for the description of a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from amp_migrate.findings import FileResult, Finding, Report, Review
from amp_migrate.reports.gathered import gathered, once, unread
from amp_migrate.reports.quoting import plain, shell
from amp_migrate.reports.steps import is_code, programs
from amp_migrate.reports.text import TEXT, Mode, headline
from amp_migrate.sources.outputs import MARK

_REVIEWS: tuple[tuple[Review, str], ...] = (("review", "review"), ("look", "quick look"), ("as-is", "merge as is"))


def render(
    report: Report,
    mode: Mode,
    *,
    dtype: str = "float16",
    revision: str | None = None,
    beside: Sequence[FileResult] = (),
) -> str:
    """Per file what was migrated and how closely to review it; what needs a hand, what differs, how to verify.

    `revision` is the commit that holds the files as they were before, `beside` what is still to do in other files.
    """
    # The first line is not shown where Markdown is; `check` knows by it that this is no text of the project.
    lines = [
        f"<!-- {MARK} -->",
        "# Migrate from NVIDIA Apex to native PyTorch AMP",
        "",
        f"{headline(report, mode)}.",
        "",
    ]
    lines += _files(report)
    lines += _list("Needs a hand", gathered(report.findings("manual")), checkbox=True)
    notes = [(r, f) for r, f in report.findings("note") if r.status != "failed" and f.review != "as-is"]
    also = [(r, f) for r, f in notes if f.code == TEXT] + [(r, f) for r in beside for f in r.findings]
    lines += _list("Also to do", once(also), checkbox=True)
    lines += _failures(report)
    lines += _list("Behaves differently", once((r, f) for r, f in notes if f.code != TEXT))
    for title, level in (("Please review", "review"), ("A quick look", "look")):
        lines += _list(title, once((r, f) for r, f in report.findings("done") if f.review == level))
    lines += _verify(report, mode, dtype, revision)
    return "\n".join(lines).rstrip("\n") + "\n"


def _files(report: Report) -> list[str]:
    rows = []
    for result in report.listed:
        done = [f for f in result.findings if f.status == "done"]
        if not done and result.changed:  # no Apex in it, but a part of what was migrated: a region, a parameter
            done = [f for f in result.findings if f.status == "note"]
        if not done:
            continue
        constructs = Counter(f.construct for f in done)
        named = ", ".join(f"`{_code(name)}`" + (f" ×{n}" if n > 1 else "") for name, n in constructs.items())
        levels = Counter(f.review for f in done)
        review = ", ".join(f"{levels[key]} {label}" for key, label in _REVIEWS if levels[key])
        rows.append(f"| `{_code(result.path)}` | {result.status} | {named} | {review} |")
    if not rows:
        return []
    return ["## Migrated", "", "| file | status | constructs | review |", "|-|-|-|-|", *rows, ""]


def _list(title: str, found: Iterable[tuple[FileResult, Finding]], *, checkbox: bool = False) -> list[str]:
    box = "[ ] " if checkbox else ""
    items = [f"- {box}`{_code(r.path)}:{f.line}` {f.code}: {_prose(f.message)}" for r, f in found]
    return [f"## {title}", "", *items, ""] if items else []


def _failures(report: Report) -> list[str]:
    failed = [(r, f) for r in report.results if r.status == "failed" for f in r.findings if f.code.startswith("AMP0")]
    return _list("Could not be read or written", unread(failed))


def _verify(report: Report, mode: Mode, dtype: str, revision: str | None) -> list[str]:
    scripts = programs(report)
    if not any(map(is_code, report.results)):
        return []
    original = f" --original-rev {revision or 'REV'}" if mode == "rewritten" else ""
    commands = [f"amp-migrate verify{original} {shell(path)} -- ARGS" for path in scripts]
    if not scripts:  # what programs import
        commands = [
            f"amp-migrate verify --init{original}  # finds the programs that lead to these files",
            "amp-migrate verify",
        ]
    unknown = " REV is a commit that holds these files as they were: no commit did when they were rewritten."
    scaler = "" if dtype == "float16" else f" The migrated program computes in {dtype}, the original in float16."
    return [
        "## Verify",
        "",
        "Each command runs the original and the migrated program and compares loss curves, gradients, loss scale and "
        f"checkpoints.{scaler} ARGS are the script's own arguments."
        + (unknown if original and revision is None else ""),
        "",
        "```sh",
        *commands,
        "```",
        "",
    ]


def _code(text: str) -> str:
    """Text inside backticks in a table."""
    return plain(text).replace("`", "'").replace("|", "\\|")


def _prose(text: str) -> str:
    """A message outside backticks: Markdown's marks escaped, except in the code it quotes."""
    text = plain(text)
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)
    return "`".join(p if i % 2 else re.sub(r"([\\*_<>\[\]])", r"\\\1", p) for i, p in enumerate(parts))
