"""The HTML report: one file, no network, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from amp_migrate.sources.outputs import MARK
from amp_migrate.verify.coverage import tally
from amp_migrate.verify.drills.verdicts import PREFIX as DRILL
from amp_migrate.verify.judge import Outcome
from amp_migrate.verify.report import changed, plots
from amp_migrate.verify.report.changed import prose
from amp_migrate.verify.report.findings import likely, not_seen, on_cpu
from amp_migrate.verify.report.style import STYLE
from amp_migrate.verify.report.text import size_text, time_text
from amp_migrate.verify.thresholds import CURVE_FACTOR
from amp_migrate.verify.verdicts.verdict import Verdict

RESULTS = ("agrees", "disagrees", "unjudged")
EVIDENCE = 12  # symptoms of a verdict that are listed


def render(outcomes: list[Outcome]) -> str:
    """The page for all cases. Raises ImportError without matplotlib."""
    agreeing = sum(o.exit_code == 0 for o in outcomes)
    several = len(outcomes) != 1
    title = f"{agreeing} of {len(outcomes)} migrations train as before" if several else _title(outcomes[0])
    caveat = f'<p class="caveat">{prose(" ".join(_caveats(outcomes)))}</p>'
    body = (_index(outcomes) if several else "") + "".join(
        _case(outcome, number, alone=not several) for number, outcome in enumerate(outcomes)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{MARK}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{caveat}{body}"
        "</body></html>\n"
    )


def _caveats(outcomes: list[Outcome]) -> Iterator[str]:
    """What stands beside the title: where it was judged, and how much of the migration it stands for."""
    if any(on_cpu(outcome) for outcome in outcomes):
        yield "Judged on a CPU, to which CUDA's rules were applied: a GPU has the last word."
    total = tally.union((o.coverage, o.exit_code != 2) for o in outcomes)
    if any(o.exit_code != 2 for o in outcomes) and len(total.ran) < len(total.places):
        yield f"It stands for {len(total.ran)} of {len(total.places)} changed places; the others did not run."


def _title(outcome: Outcome) -> str:
    told = {
        "agrees": "trains as before",
        "disagrees": "does not train as before",
        "unjudged": "could not be judged",
    }
    return f"{outcome.case.name} {told[RESULTS[outcome.exit_code]]}"


def _index(outcomes: list[Outcome]) -> str:
    """A line a case, and what ran in all of them together."""
    rows = "".join(
        f'<tr><td><a href="#case{number}">{escape(outcome.case.name)}</a></td>'
        f"<td>{_badge(RESULTS[outcome.exit_code])}</td><td>{_share(outcome)}</td><td>{prose(_gist(outcome))}</td></tr>"
        for number, outcome in enumerate(outcomes)
    )
    total = tally.union((o.coverage, o.exit_code != 2) for o in outcomes)
    covered = f"<h3>Coverage, all cases together</h3>{changed.coverage(total)}" if total.places else ""
    return (
        f'<table class="index"><tr><th>case</th><th>verdict</th><th>coverage</th><th></th></tr>{rows}</table>{covered}'
    )


def _share(outcome: Outcome) -> str:
    counted = outcome.coverage
    return f"{len(counted.ran)} of {len(counted.places)} places" if counted is not None and counted.places else ""


def _gist(outcome: Outcome) -> str:
    if outcome.exit_code == 0:
        return ""
    wrong = [v for v in outcome.verdicts if v.status == "disagrees"]
    return likely(outcome) or outcome.trouble or (wrong[0].summary if wrong else "")


def _case(outcome: Outcome, number: int, *, alone: bool) -> str:
    parts = [f'<section id="case{number}">']
    if not alone:
        parts.append(f"<h2>{escape(outcome.case.name)} {_badge(RESULTS[outcome.exit_code])}</h2>")
    parts.append(_run(outcome))
    if outcome.trouble:
        parts.append(f"<p>{prose(outcome.trouble)}</p>")
    if outcome.said:
        parts.append(f"<pre>{escape(chr(10).join(outcome.said))}</pre>")
    if (cause := likely(outcome)) is not None:
        parts.append(f'<p class="likely"><b>Likely cause:</b> {prose(cause)}</p>')
    parts += [_verdict(v) for v in outcome.verdicts if not _not_drilled(v)]
    parts += [f'<p class="soft">Not drilled: {prose(told)}</p>' for told in _untried(outcome)]
    parts += [f'<p class="soft">{prose(note)}</p>' for note in outcome.notes]
    parts += [f'<p class="soft">Left to a person: {prose(note)}</p>' for note in outcome.case.notes]
    if outcome.coverage is not None and outcome.coverage.places:
        parts.append(
            f"<h3>Coverage: how much of the migration ran</h3>{changed.coverage(outcome.coverage, listed=alone)}"
        )
    if unseen := not_seen(outcome):
        parts.append(f"<h3>What this did not see</h3>{_list('', unseen)}")
    parts += _plots(outcome)
    if outcome.cost:
        parts.append(_cost(outcome.cost))
    if outcome.cost and on_cpu(outcome):
        parts.append(
            '<p class="soft">A CPU computes in half no faster: these times and sizes say nothing about a GPU.</p>'
        )
    parts.append(changed.diffs(outcome.changes))
    return "".join(parts) + "</section>"


def _run(outcome: Outcome) -> str:
    """What was run, when and on what."""
    case, known = outcome.case, outcome.environment
    command = " ".join([case.original.script.name, *case.argv])
    facts = [f"{case.steps} steps", f"seed {case.seed}"]
    facts += [f"{name} {known[name]}" for name in ("amp-migrate", "torch", "python") if known.get(name)]
    facts += [str(known["device"])] if known.get("device") else []
    facts += [f"commit {known['commit']}"] if known.get("commit") else []
    facts += [f"original from {known['original']}"] if known.get("original") else []
    facts += [str(known["date"])] if known.get("date") else []
    return f'<p class="soft"><code>{escape(command)}</code><br>{escape(", ".join(facts))}</p>'


def _not_drilled(verdict: Verdict) -> bool:
    return verdict.name.startswith(DRILL) and verdict.status == "skipped"


def _untried(outcome: Outcome) -> list[str]:
    """The drills that this program gives no occasion for, by why."""
    reasons: dict[str, list[str]] = {}
    for verdict in outcome.verdicts:
        if _not_drilled(verdict):
            reasons.setdefault(verdict.summary, []).append(verdict.name.removeprefix(DRILL))
    return [f"{', '.join(names)} ({why})" for why, names in reasons.items()]


def _badge(status: str) -> str:
    return f'<span class="badge {status}">{status}</span>'


def _verdict(verdict: Verdict) -> str:
    """The likely causes above the list of symptoms."""
    parts = [f'<div class="verdict">{_badge(verdict.status)} <b>{escape(verdict.name)}</b>']
    if verdict.status == "disagrees":
        parts.append(_list("Likely:", list(dict.fromkeys(verdict.causes))))
    more = [e for e in verdict.evidence if e != verdict.summary]
    parts.append(f"<p>{prose(verdict.summary)}</p>")
    parts.append(_list("", more[:EVIDENCE]))
    if len(more) > EVIDENCE:
        parts.append(f'<p class="soft">and {len(more) - EVIDENCE} more</p>')
    parts.append(_list("Known difference:", list(dict.fromkeys(verdict.announced))))
    return "".join(parts) + "</div>"


def _list(title: str, items: list[str]) -> str:
    if not items:
        return ""
    head = f'<p class="soft">{title}</p>' if title else ""
    return head + '<ul class="plain">' + "".join(f"<li>{prose(item)}</li>" for item in items) + "</ul>"


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


def _plot(title: str, plot: plots.Plot) -> str:
    keys = "".join(f'<li><i class="{look}"></i>{escape(label)}</li>' for label, look in plot.keys)
    return f'<h3>{title}</h3><div class="wide">{plot.svg}</div><ul class="legend">{keys}</ul>'


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
