"""What is where: tables by repository and by code, as text and as a page, for whoever plans many migrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from amp_migrate.findings import FileResult, Report
from amp_migrate.reports import quoting
from amp_migrate.reports.gathered import Found, gathered, once
from amp_migrate.reports.style import Style
from amp_migrate.reports.text import TEXT, worth_a_look
from amp_migrate.sources.outputs import MARK

STATES = {
    "clean": "nothing of Apex",
    "automatic": "all of it automatic",
    "partly": "some of it by hand",
    "by hand": "all of it by hand",
    "failed": "not all files could be read or written",
}


@dataclass(frozen=True)
class Row:
    """One repository: how many of its sites are (or would be) done, how many are left, and what that comes to."""

    path: str
    files: int
    done: int
    manual: int
    failed: int

    @property
    def state(self) -> str:
        if self.failed:
            return "failed"
        if not self.done + self.manual:
            return "clean"
        if not self.manual:
            return "automatic"
        return "partly" if self.done else "by hand"


def rows(report: Report) -> list[Row]:
    """The repositories of a run, in its order; one row where it was of one project."""
    reports = report.repositories or {".": report}
    return [Row(p, r.files, r.sites_done, r.sites_manual, r.count("failed")) for p, r in reports.items()]


def codes(report: Report) -> dict[str, Counter[str]]:
    """Sites by code, each `done` or `manual`."""
    counted: dict[str, Counter[str]] = {}
    for _, finding in report.findings("done", "manual"):
        counted.setdefault(finding.code, Counter())[finding.status] += 1
    return dict(sorted(counted.items()))


def to_json(report: Report) -> list[dict[str, Any]]:
    """The repositories as a JSON report lists them."""
    return [
        {"path": row.path, "state": row.state, "summary": one.to_json()["summary"], "codes": codes(one)}
        for row, one in zip(rows(report), report.repositories.values(), strict=True)
    ]


def text(report: Report, style: Style, *, migrated: bool = False) -> list[str]:
    """Both tables as lines; `migrated` when what is automatic has been written."""
    done = "migrated" if migrated else "automatic"
    listed = [[quoting.path(r.path), r.files, r.done + r.manual, r.done, r.manual, r.state] for r in rows(report)]
    lines = _table(("repository", "files", "sites", done, "by hand", ""), listed, style)
    titles = _titles()
    counted = [[code, n["done"], n["manual"], titles.get(code, "")] for code, n in codes(report).items()]
    return [*lines, "", *_table(("code", done, "by hand", ""), counted, style)] if counted else lines


def _table(head: Sequence[str], body: Iterable[Sequence[object]], style: Style) -> list[str]:
    cells = [list(head), *([str(cell) for cell in row] for row in body)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numbers = range(1, len(head) - 1)
    lines = [
        "  ".join(c.rjust(w) if i in numbers else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return [style.bold(lines[0].rstrip()), *(line.rstrip() for line in lines[1:])]


def _titles() -> dict[str, str]:
    from amp_migrate.registry import all_codes

    return {name: code.title for name, code in all_codes().items()}


STYLE = """
:root { color-scheme: light dark; --ink: #1c2127; --page: #fff; --soft: #5d6670; --line: #d8dce1; --card: #f6f7f9;
  --good: #1a7f37; --bad: #c62828; --some: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --page: #14171b; --soft: #9aa4ae; --line: #333a42;
  --card: #1d2126; --good: #4cc46a; --bad: #ff7b72; --some: #e3b341; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 68rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; overflow-wrap: normal; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:last-child { white-space: normal; min-width: 9rem; }
.automatic, .clean { color: var(--good); } .failed { color: var(--bad); }
.partly, .by-hand { color: var(--some); }
details { border: 1px solid var(--line); background: var(--card); border-radius: .5rem; padding: .5rem 1rem; margin: .5rem 0; }
summary { cursor: pointer; } li { margin: .3rem 0; } code { font-size: .9em; } .soft { color: var(--soft); }
"""


def html(report: Report, headline: str, *, migrated: bool = False, beside: Sequence[FileResult] = ()) -> str:
    """A page of its own: both tables, and below them what needs a hand in each repository, what is still to do `beside` the
    code, and what deserves a look in each file."""
    titles = _titles()
    done = "migrated" if migrated else "automatic"
    listed = "".join(
        f"<tr><td>{_code(r.path)}</td><td>{r.files}</td><td>{r.done + r.manual}</td><td>{r.done}</td><td>{r.manual}</td>"
        f'<td class="{r.state.replace(" ", "-")}">{STATES[r.state]}</td></tr>'
        for r in rows(report)
    )
    counted = "".join(
        f"<tr><td>{_code(code)}</td><td>{n['done']}</td><td>{n['manual']}</td><td>{escape(titles.get(code, ''))}</td></tr>"
        for code, n in codes(report).items()
    )
    body = [
        f"<h1>{escape(headline)}</h1><h2>By repository</h2>",
        _html_table(("repository", "files", "sites", done, "by hand", ""), listed),
    ]
    if counted:
        body += ["<h2>By code</h2>", _html_table(("code", done, "by hand", ""), counted)]
    each = [(path, _troubles(one)) for path, one in (report.repositories or {".": report}).items()]
    body += _section("What needs a hand", each)
    looks = list(worth_a_look(report))
    texts = once((r, f) for r, f in looks if f.code == TEXT)
    body += _section("Also to do", _by_file([*texts, *((r, f) for r in beside for f in r.findings)]))
    body += _section("Worth a look", _by_file(once((r, f) for r, f in looks if f.code != TEXT)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{MARK}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(headline)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _html_table(head: Sequence[str], body: str) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _troubles(report: Report) -> list[Found]:
    return [(r, f) for r, f in gathered(report.findings()) if f.status == "manual" or r.status == "failed"]


def _by_file(found: Iterable[Found]) -> list[tuple[str, list[Found]]]:
    files: dict[str, list[Found]] = {}
    for result, finding in found:
        files.setdefault(result.path, []).append((result, finding))
    return sorted(files.items())


def _section(title: str, listed: Iterable[tuple[str, list[Found]]]) -> list[str]:
    """What was found in each of some places, folded; nothing where nothing was."""
    details = [_details(place, found) for place, found in listed if found]
    return [f"<h2>{title}</h2>", *details] if details else []


def _details(place: str, found: list[Found]) -> str:
    items = "".join(
        f"<li>{_code(f'{quoting.path(r.path)}:{f.line}')} {_code(f.code)} {escape(quoting.plain(f.message))}</li>"
        for r, f in found
    )
    return (
        f"<details><summary>{_code(place)} <span class='soft'>({len(found)})</span></summary><ul>{items}</ul></details>"
    )


def _code(text_: str) -> str:
    return f"<code>{escape(quoting.plain(text_))}</code>"
