"""What is said of many sites at once: those that only wait for another one of their unit, and the same remark twice; also
of files that could not be read and that nothing depends on.

JSON lists and counts every site. A person who reads forty lines that say "waits for" has to look for the one that
tells why; here it is one line, which names the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from amp_migrate.findings import Cause, FileResult, Finding

LISTED = 8  # lines named; a person who migrates the unit by hand finds the others there

Found = tuple[FileResult, Finding]


def gathered(found: Iterable[Found]) -> Iterator[Found]:
    """Findings in order, those that wait for a site left out: that site's message says where they stand."""
    listed = list(found)
    roots = {Cause(r.path, f.line, f.code): f for r, f in reversed(listed) if f.cause is None}
    waiting: dict[Cause, list[Found]] = {}
    for result, finding in listed:
        if finding.cause is not None:
            waiting.setdefault(finding.cause, []).append((result, finding))
    for result, finding in listed:
        own = Cause(result.path, finding.line, finding.code)
        cause = finding.cause or own
        others = waiting.get(cause, [])
        if finding.cause is None and roots[own] is finding:
            yield result, _with(result, finding, others)
        elif finding.cause is None:
            yield result, finding
        elif cause not in roots and others[0][1] is finding:  # what they wait for is not told itself
            yield result, _with(result, finding, others[1:])


def once(found: Iterable[Found]) -> Iterator[Found]:
    """Findings in order, those that say the same of several places, or of other code there, said of the first, with where
    the others are."""
    alike: dict[tuple[str, str, str], list[Found]] = {}
    for result, finding in found:
        alike.setdefault((finding.code, finding.review, finding.alike or finding.message), []).append((result, finding))
    for (result, finding), *others in alike.values():
        if others:
            message = f"{finding.message} (and {len(others)} more: {_places(result.path, others)})"
            finding = replace(finding, message=message)
        yield result, finding


def unread(found: Iterable[Found]) -> Iterator[Found]:
    """Findings in order, files that cannot be read and have nothing of Apex said of the first: they are no loss."""
    listed = list(found)
    idle = [f for r, f in listed if r.status == "failed" and f.construct == "file" and f.review != "review"]
    for result, finding in listed:
        if not any(finding is f for f in idle):
            yield result, finding
        elif finding is idle[0]:
            others = [r.path for r, f in listed if any(f is other for other in idle[1:])]
            more = f" (and {len(others)} more like it: {', '.join(others[:LISTED])}{', ...' * (len(others) > LISTED)})"
            yield result, replace(finding, message=finding.message + more * bool(others))


def _with(result: FileResult, finding: Finding, others: list[Found]) -> Finding:
    if not others:
        return finding
    sites = "1 more site" if len(others) == 1 else f"{len(others)} more sites"
    message = f"{finding.message} (and {sites} of this unit: {_places(result.path, others)})"
    return replace(finding, message=message)


def _places(path: str, others: list[Found]) -> str:
    """Where sites stand: `lines 3, 9; model.py: 12`, those of the file itself first."""
    lines = sorted({(r.path != path, r.path, f.line) for r, f in others})
    parts: list[str] = []
    for (elsewhere, other), group in groupby(lines[:LISTED], key=lambda place: place[:2]):
        numbers = [str(line) for *_, line in group]
        text = ", ".join(numbers)
        parts.append(f"{other}:{text}" if elsewhere else f"{'line' if len(numbers) == 1 else 'lines'} {text}")
    return "; ".join(parts) + (", ..." if len(lines) > LISTED else "")
