"""The HTML report: one file, no network, readable on a phone and in the dark."""

from __future__ import annotations

from html import escape
from typing import Any

from amp_migrate.verify.judge import Outcome
from amp_migrate.verify.report import plots
from amp_migrate.verify.report.text import size_text, time_text
from amp_migrate.verify.thresholds import CURVE_FACTOR
from amp_migrate.verify.verdicts.verdict import Verdict

STYLE = """
:root { color-scheme: light dark; --ink: #1c2127; --page: #fff; --soft: #5d6670; --line: #d8dce1; --card: #f6f7f9;
  --agrees: #1a7f37; --disagrees: #c62828; --unjudged: #9a6700; --skipped: #5d6670; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --page: #14171b; --soft: #9aa4ae; --line: #333a42;
  --card: #1d2126; --agrees: #4cc46a; --disagrees: #ff7b72; --unjudged: #e3b341; --skipped: #9aa4ae; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
.badge { display: inline-block; min-width: 6.2rem; padding: .1rem .6rem; border-radius: 1rem; color: var(--page);
  text-align: center; font-size: .85rem; font-weight: 600; }
.agrees { background: var(--agrees); } .disagrees { background: var(--disagrees); }
.unjudged { background: var(--unjudged); } .skipped { background: var(--skipped); }
.verdict { border: 1px solid var(--line); background: var(--card); border-radius: .5rem; padding: .7rem 1rem;
  margin: .6rem 0; }
.verdict p { margin: .3rem 0; } .verdict ul { margin: .3rem 0; padding-left: 1.2rem; }
.soft { color: var(--soft); } svg { width: 100%; height: auto; display: block; }
@media (max-width: 40rem) { .wide svg { min-width: 34rem; } }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
details { margin: .6rem 0; } summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem;
  font-size: .82rem; line-height: 1.4; overflow-wrap: normal; }
.add { color: var(--agrees); } .del { color: var(--disagrees); } .at { color: var(--soft); }
"""
RESULTS = ("agrees", "disagrees", "unjudged")


def render(outcomes: list[Outcome]) -> str:
    """The page for all cases. Raises ImportError without matplotlib."""
    body = "".join(_case(outcome) for outcome in outcomes)
    agreeing = sum(o.exit_code == 0 for o in outcomes)
    title = f"{agreeing} of {len(outcomes)} migrations train as before" if len(outcomes) != 1 else _title(outcomes[0])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _title(outcome: Outcome) -> str:
    told = {
        "agrees": "trains as before",
        "disagrees": "does not train as before",
        "unjudged": "could not be judged",
    }
    return f"{outcome.case.name} {told[RESULTS[outcome.exit_code]]}"


def _case(outcome: Outcome) -> str:
    parts = [f"<section><h2>{escape(outcome.case.name)} {_badge(RESULTS[outcome.exit_code])}</h2>"]
    if outcome.trouble:
        parts.append(f"<p>{escape(outcome.trouble)}</p>")
    parts += [_verdict(v) for v in outcome.verdicts]
    parts += [f'<p class="soft">{escape(note)}</p>' for note in outcome.notes]
    parts += [f'<p class="soft">Left to a person: {escape(note)}</p>' for note in outcome.case.notes]
    parts += _plots(outcome)
    if outcome.cost:
        parts.append(_cost(outcome.cost))
    for name, diff in outcome.diffs.items():
        parts.append(f"<details><summary>{escape(name)}</summary>{_diff(diff)}</details>")
    environment = ", ".join(f"{k} {v}" for k, v in outcome.environment.items() if v)
    command = " ".join([outcome.case.original.script.name, *outcome.case.argv])
    run = f"{command}, {outcome.case.steps} steps, seed {outcome.case.seed}. {environment}."
    parts.append(f'<p class="soft">{escape(run)}</p>')
    return "".join(parts) + "</section>"


def _badge(status: str) -> str:
    return f'<span class="badge {status}">{status}</span>'


def _verdict(verdict: Verdict) -> str:
    parts = [
        f'<div class="verdict">{_badge(verdict.status)} <b>{escape(verdict.name)}</b><p>{escape(verdict.summary)}</p>'
    ]
    more = [e for e in verdict.evidence if e != verdict.summary]
    parts.append(_list("", more[:12]))
    parts.append(_list("Likely:", list(dict.fromkeys(verdict.causes))))
    parts.append(_list("Known difference:", list(dict.fromkeys(verdict.announced))))
    return "".join(parts) + "</div>"


def _list(title: str, items: list[str]) -> str:
    if not items:
        return ""
    head = f'<p class="soft">{title}</p>' if title else ""
    return head + "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _plots(outcome: Outcome) -> list[str]:
    data = {v.name: v.data for v in outcome.verdicts}
    parts = []
    for name, curves in data.get("loss curve", {}).get("series", {}).items():
        parts.append(_plot(f"Loss, optimizer {escape(name.split()[-1])}", plots.losses(name, curves, CURVE_FACTOR)))
    if outcome.norms:
        parts.append(_plot("Gradient norm, as the optimizers saw it", plots.norms(outcome.norms)))
    steps = [s for s in data.get("lockstep", {}).get("steps", []) if s["median_error"] is not None]
    if steps:
        parts.append(_plot("Lockstep: error of the gradient from equal states", plots.lockstep(steps)))
    scale = data.get("scale")
    if scale and any(s is not None for s in scale["original"]["scale"]):
        parts.append(_plot("Loss scale", plots.scales(scale)))
    return parts


def _plot(title: str, svg: str) -> str:
    return f'<h3>{title}</h3><div class="wide">{svg}</div>'


def _cost(rows: list[dict[str, Any]]) -> str:
    cells = "".join(
        f"<tr><td>{escape(row['run'])}</td><td>{time_text(row['seconds_per_step'])}</td>"
        f"<td>{'-' if row['speed_up'] is None else format(row['speed_up'], '.2f') + 'x'}</td>"
        f"<td>{size_text(row['peak_bytes'])}</td>"
        f"<td>{'-' if row['final_loss'] is None else format(row['final_loss'], '.5g')}</td>"
        f"<td>{escape(row['accuracy'] or '-')}</td></tr>"
        for row in rows
    )
    return (
        '<h3>Cost</h3><div class="wide"><table><tr><th></th><th>time/step</th><th>speed-up</th><th>peak memory</th>'
        f"<th>last loss</th><th>accuracy</th></tr>{cells}</table></div>"
    )


def _diff(text: str) -> str:
    classes = {"+": "add", "-": "del", "@": "at"}
    lines = "\n".join(
        f'<span class="{classes[line[0]]}">{escape(line)}</span>' if line[:1] in classes else escape(line)
        for line in text.splitlines()
    )
    return f"<pre>{lines}</pre>"
