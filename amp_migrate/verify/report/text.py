"""The terminal screen: the verdict lines, a sparkline of the losses, the cost table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_migrate.verify.coverage.tally import Coverage
from amp_migrate.verify.drills.verdicts import PREFIX as DRILL
from amp_migrate.verify.judge import Outcome
from amp_migrate.verify.report.findings import likely, not_seen, on_cpu
from amp_migrate.verify.report.ranges import calm
from amp_migrate.verify.verdicts.verdict import Status, Verdict

MARKS = {"agrees": "ok", "disagrees": "NO", "unjudged": "??", "skipped": "--"}
COLOURS = {"agrees": "32", "disagrees": "31;1", "unjudged": "33", "skipped": "2"}
SHOWN = 4  # lines of evidence a verdict; the rest is in the other formats
GROUPS = 5  # reasons why something did not run
REACH = 3  # of what would reach it
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 48


def render(outcome: Outcome, *, colour: bool = False, alone: bool = True) -> str:
    """The screen for one case, without a final line break. What did not run is listed where the case is `alone`; of
    several, for all of them together."""
    result = {0: "agrees", 1: "DISAGREES", 2: "could not be judged"}[outcome.exit_code]
    lines = [_paint(f"{outcome.case.name}: {result}", {0: "32;1", 1: "31;1", 2: "33;1"}[outcome.exit_code], colour)]
    if outcome.trouble is not None:
        lines.append(f"  {outcome.trouble}")
    lines += [_paint(f"    | {said}", "2", colour) for said in outcome.said]
    if (cause := likely(outcome)) is not None:
        lines.append(f"  likely: {cause}")
    for verdict in outcome.verdicts:
        if not verdict.name.startswith(DRILL):
            lines += [told for told in _verdict(verdict, colour) if told.strip() != f"likely: {cause}"]
    lines += _drills([v for v in outcome.verdicts if v.name.startswith(DRILL)], colour)
    lines += coverage(outcome.coverage, colour=colour, listed=alone)
    lines += _curves(outcome)
    if outcome.cost:
        lines += ["", *_cost(outcome)]
    lines += [f"  note: {note}" for note in outcome.notes]
    lines += [f"  left to a person: {note}" for note in outcome.case.notes]
    if unseen := not_seen(outcome):
        lines.append(f"  not seen: {'; '.join(unseen)}")
    if outcome.environment.get("device"):
        lines.append(_paint(_judged(outcome), "2", colour))
    return "\n".join(lines)


def line(outcome: Outcome, *, colour: bool = False) -> str:
    """One of several cases: a line where it agrees, else the screen."""
    if outcome.exit_code:
        return render(outcome, colour=colour, alone=False)
    data = {v.name: v.data for v in outcome.verdicts}
    parts = [f"{len(data.get('scale', {}).get('original', {}).get('scale', ()))} steps"]
    if compared := [
        s["median_error"] for s in data.get("lockstep", {}).get("steps", ()) if s["median_error"] is not None
    ]:
        parts.append(f"{len(compared)} in lockstep, error {max(compared):.1e}")
    parts += [f"{v.name} skipped" for v in outcome.verdicts if v.status == "skipped" and not v.name.startswith(DRILL)]
    if drilled := sum(v.name.startswith(DRILL) and v.status == "agrees" for v in outcome.verdicts):
        parts.append(f"{drilled} drill{'s' if drilled > 1 else ''}")
    if outcome.coverage is not None and outcome.coverage.places:
        parts.append(f"{len(outcome.coverage.ran)} of {len(outcome.coverage.places)} changed places")
    if known := len({note for v in outcome.verdicts for note in v.announced}):
        parts.append(f"{known} known difference{'s' if known > 1 else ''}")
    name = _paint(f"{outcome.case.name}: agrees", "32;1", colour)
    return f"{name}{' ' * max(1, WIDTH - len(outcome.case.name) - 8)}{'; '.join(parts)}"


def _judged(outcome: Outcome) -> str:
    """Where, when, with what, on which commit."""
    known = outcome.environment
    told = f"judged on {known['device']}, torch {known.get('torch')}"
    told += f", amp-migrate {known['amp-migrate']}" if known.get("amp-migrate") else ""
    told += f", commit {known['commit']}" if known.get("commit") else ""
    told += f", {known['date']}" if known.get("date") else ""
    return told + ("; CUDA's rules were applied on the CPU, a GPU has the last word" if on_cpu(outcome) else "")


def coverage(counted: Coverage | None, *, colour: bool = False, listed: bool = True) -> list[str]:
    """How much of the migration ran, and what would reach the rest."""
    if counted is None or not counted.places:
        return []
    missing = counted.missing()
    status: Status = "agrees" if not missing else "unjudged" if counted.ran else "disagrees"
    mark = ".." if status == "unjudged" else MARKS[status]
    lines = [f"  {_paint(mark, COLOURS[status], colour)} {'coverage':<11} {counted.summary}"]
    indent = " " * 17
    if not listed:
        return lines
    for group in missing[:GROUPS]:
        lines.append(f"{indent}not {group.where}: {group.reason.why}")
        if reach := group.reason.reach:
            lines.append(f"{indent}    reach it: {'; '.join(reach[:REACH])}{'; ...' if len(reach) > REACH else ''}")
    if len(missing) > GROUPS:
        left = sum(len(group.places) for group in missing[GROUPS:])
        lines.append(f"{indent}and {left} places more for other reasons (--format json, --report)")
    return lines


def _verdict(verdict: Verdict, colour: bool) -> list[str]:
    lines = [f"  {_paint(MARKS[verdict.status], COLOURS[verdict.status], colour)} {verdict.name:<11} {verdict.summary}"]
    indent = " " * 17
    if verdict.status == "disagrees":
        lines += [f"{indent}likely: {cause}" for cause in dict.fromkeys(verdict.causes)]
        more = [e for e in verdict.evidence if e != verdict.summary]
        lines += [f"{indent}{e}" for e in more[:SHOWN]]
        if len(more) > SHOWN:
            lines.append(f"{indent}and {len(more) - SHOWN} more")
    lines += [f"{indent}known:  {note}" for note in dict.fromkeys(verdict.announced)]
    return lines


def _drills(verdicts: Sequence[Verdict], colour: bool) -> list[str]:
    """Each drill, what several of them have to say once, and in a line of their own those that were not tried."""
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.status != "skipped":
            lines += [told for told in _verdict(verdict, colour) if not told.startswith(" " * 17) or told not in lines]
    untried: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.status == "skipped":
            untried.setdefault(verdict.summary, []).append(verdict.name.removeprefix(DRILL))
    return lines + [
        f"  {_paint(MARKS['skipped'], COLOURS['skipped'], colour)} not drilled: {', '.join(names)} ({why})"
        for why, names in untried.items()
    ]


def _curves(outcome: Outcome) -> list[str]:
    for verdict in outcome.verdicts:
        series = verdict.data.get("series") if verdict.name == "loss curve" else None
        if series:
            name, curves = next(iter(series.items()))
            both = [v for v in (*curves["original"], *curves["migrated"]) if math.isfinite(v)]
            if not both:
                return []
            low, high = calm(both) or (0.0, 1.0)
            return [
                "",
                f"  {name}  original {sparkline(curves['original'], low, high)}",
                f"  {' ' * len(name)}  migrated {sparkline(curves['migrated'], low, high)}  {min(both):.4g} to {max(both):.4g}",
            ]
    return []


def sparkline(values: Sequence[float], low: float, high: float, width: int = WIDTH) -> str:
    """At most `width` bars; a value that is not finite is an x."""
    if len(values) > width:
        values = [values[int(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    span = (high - low) or 1.0
    return "".join(
        BARS[min(len(BARS) - 1, max(0, int((v - low) / span * len(BARS))))] if math.isfinite(v) else "x" for v in values
    )


def _cost(outcome: Outcome) -> list[str]:
    lines = [f"  {'':<10}{'time/step':>12}{'speed-up':>10}{'peak':>10}{'loss':>12}{'accuracy':>10}"]
    for row in outcome.cost:
        cells = (
            time_text(row["seconds_per_step"]),
            f"{row['speed_up']:.2f}x" if row["speed_up"] else "-",
            size_text(row["peak_bytes"]),
            f"{row['final_loss']:.5g}" if row["final_loss"] is not None else "-",
            row["accuracy"] or "-",
        )
        lines.append(f"  {row['run']:<10}{cells[0]:>12}{cells[1]:>10}{cells[2]:>10}{cells[3]:>12}{cells[4]:>10}")
    return lines


def time_text(seconds: float | None) -> str:
    """Milliseconds below a second."""
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size_text(size: int | None) -> str:
    """In MiB, or GiB from one on."""
    return "-" if size is None else f"{size / 2**20:.0f} MiB" if size < 1 << 30 else f"{size / 2**30:.2f} GiB"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
