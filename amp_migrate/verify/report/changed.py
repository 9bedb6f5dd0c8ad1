"""The part of the HTML report about the migration itself: how much of it ran, and the diff, line by line."""

from __future__ import annotations

import re
from html import escape

from amp_migrate.verify.coverage.diff import FileDiff, Row
from amp_migrate.verify.coverage.tally import Coverage

MARKS = {True: "●", False: "○", None: " "}


def prose(text: str) -> str:
    """HTML of a sentence: what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def coverage(counted: Coverage | None, *, listed: bool = True) -> str:
    """The share that ran as a bar; `listed`: what did not run, and what would reach it."""
    if counted is None or not counted.places:
        return ""
    parts = [
        f"<p>{escape(counted.summary)}</p>",
        f'<div class="bar" role="img" aria-label="{counted.percent:.0f}% ran"><div style="width: {counted.percent:.1f}%">'
        "</div></div>",
    ]
    if listed and (missing := counted.missing()):
        items = []
        for group in missing:
            reach = f'<br><span class="soft">reach it: {prose("; ".join(group.reason.reach))}</span>'
            items.append(
                f"<li><code>{escape(group.where)}</code>: {prose(group.reason.why)}{reach if group.reason.reach else ''}</li>"
            )
        parts.append(f'<p class="soft">Did not run:</p><ul class="plain">{"".join(items)}</ul>')
    return "".join(parts)


def diffs(files: list[FileDiff]) -> str:
    """All changed files, each of them folded unless there is only one."""
    if not files:
        return ""
    shown = " open" if len(files) == 1 else ""
    legend = (
        '<ul class="legend"><li>● ran in some run</li><li>○ did not run</li>'
        "<li>unmarked: comments, blank lines, declarations, what moved from there</li></ul>"
    )
    return f"<h3>What the migration changed</h3>{legend}" + "".join(
        f"<details{shown}><summary><code>{escape(file.name)}</code> {_count(file)}</summary>{_file(file)}</details>"
        for file in files
    )


def _count(file: FileDiff) -> str:
    asked = [row.ran for row in file.rows if row.ran is not None]
    return f'<span class="soft">{sum(asked)} of {len(asked)} changed lines ran</span>' if asked else ""


def _file(file: FileDiff) -> str:
    width = max((len(str(n)) for row in file.rows for n in (row.before, row.after) if n is not None), default=1)
    return f'<div class="diff"><div>{"".join(_row(row, width) for row in file.rows)}</div></div>'


def _row(row: Row, width: int) -> str:
    if row.sign == "@":
        return f'<div class="row at">@@ -{row.before} +{row.after} @@</div>'
    classes = {"+": "row add", "-": "row del", " ": "row"}[row.sign] + {True: " ran", False: " not", None: ""}[row.ran]
    numbers = " ".join(f"{'' if n is None else n:>{width}}" for n in (row.before, row.after))
    title = {True: "", False: ' title="did not run"', None: ""}[row.ran]
    text = f"<u>{escape(row.sign + row.text)}</u>"
    return f'<div class="{classes}"{title}><b><span class="nr">{numbers} </span>{MARKS[row.ran]} </b>{text}</div>'
