"""What the tool says about code: finding codes, findings, and the result for a file and for a run.

Imports nothing heavy: the command line builds its reports, `explain` and the documentation from these alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["done", "manual", "note"]
Review = Literal["as-is", "look", "review"]
FileStatus = Literal["migrated", "partial", "blocked", "unchanged", "failed"]

REPORT_VERSION = 1

# Stands for a repository in a run of several: the files that lie in none.
LOOSE = "(in no repository)"

# What a note begins with on a part that stays Apex's, and works beside native AMP.
STILL_SHIPPED = "kept: Apex still ships it"

# Findings that are defects of amp-migrate itself.
DEFECTS = frozenset(("AMP007", "AMP190"))


def lines_told(lines: Iterable[int], most: int | None = None) -> str:
    """How lines are named in a message: `line 7`, `lines 7, 9, 12, ...`."""
    found = sorted(set(lines))
    more = ", ..." if most is not None and len(found) > most else ""
    return f"line{'s' * (len(found) > 1)} {', '.join(map(str, found[:most]))}{more}"


@dataclass(frozen=True)
class Example:
    """Code before and after a rule; feeds the documentation page and the tests alike."""

    before: str
    after: str


@dataclass(frozen=True)
class Code:
    """One documented finding code.

    Bands: 1xx imports and set-up, 2xx scaling, stepping, updating, 3xx gradients, 4xx state and checkpoints,
    5xx casts and autocast regions, 6xx apex.parallel/optimizers/normalization, 7xx older APIs,
    8xx frameworks, notebooks, leftovers, 9xx deprecated torch.cuda.amp.
    """

    code: str
    title: str
    construct: str
    apex: str  # what Apex does
    native: str  # what native PyTorch does, or what to write
    why: str
    links: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Cause:
    """The site that keeps others as they are: where it stands, and the code it is reported under."""

    path: str
    line: int
    code: str

    @property
    def awaited(self) -> str:
        """What is said of a site that stays as it is for this one."""
        return f"waits for {self.path}:{self.line} ({self.code})"


@dataclass(frozen=True, order=True)
class Finding:
    """One site in one file. `line` and `column` count from 1."""

    line: int
    column: int
    code: str
    construct: str
    status: Status
    review: Review
    message: str
    cause: Cause | None = field(default=None, compare=False)  # the site that this one waits for
    alike: str = field(default="", compare=False)  # what of its message is said of other places as well; else all of it

    @property
    def keeps_apex(self) -> bool:
        """Whether it tells of a part for which Apex stays installed."""
        return self.status == "note" and self.message.startswith(STILL_SHIPPED)

    @property
    def needs_apex(self) -> bool:
        """Whether Apex is still needed where it is: for a site that is left to a person, or for a part that stays."""
        return self.status == "manual" or self.keeps_apex

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "line": self.line,
            "column": self.column,
            "construct": self.construct,
            "status": self.status,
            "review": self.review,
            "message": self.message,
        }


@dataclass
class FileResult:
    """What happened, or with --check/--diff would happen, to one file.

    `before` and `after` hold decoded text; `after` is None where nothing changes.
    """

    path: str
    status: FileStatus = "unchanged"
    findings: list[Finding] = field(default_factory=list)
    before: str = ""
    after: str | None = None
    units: frozenset[int] = frozenset()  # migration units that wrote here: files sharing one are written together

    @property
    def changed(self) -> bool:
        return self.after is not None and self.after != self.before

    @property
    def listed(self) -> bool:
        return bool(self.findings) or self.status != "unchanged"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "status": self.status, "findings": [f.to_json() for f in sorted(self.findings)]}


@dataclass
class Report:
    """All results of one run; `files` counts every file looked at, listed or not."""

    results: list[FileResult]
    files: int
    repositories: dict[str, Report] = field(default_factory=dict)  # where the run was of several: the report of each

    def count(self, *statuses: FileStatus) -> int:
        return sum(r.status in statuses for r in self.results)

    def findings(self, *statuses: Status) -> Iterable[tuple[FileResult, Finding]]:
        for result in self.results:
            for finding in sorted(result.findings):
                if not statuses or finding.status in statuses:
                    yield result, finding

    @property
    def listed(self) -> list[FileResult]:
        return [result for result in self.results if result.listed]

    def exit_code(self, *, dry: bool) -> int:
        """0: nothing left to do; 1: something remains; 2: a file could not be looked at, or not be written; 3: a defect
        of amp-migrate itself. The highest applies.

        `dry` is a run that writes nothing: what would change remains to be done.
        """
        if any(finding.code in DEFECTS for _, finding in self.findings()):
            return 3
        if self.count("failed"):
            return 2
        remains = self.sites_manual or self.count("partial", "blocked")
        would_change = dry and (self.sites_done or any(r.changed for r in self.results))
        return 1 if remains or would_change else 0

    @property
    def sites_done(self) -> int:
        return sum(1 for _ in self.findings("done"))

    @property
    def sites_manual(self) -> int:
        return sum(1 for _ in self.findings("manual"))

    def to_json(self) -> dict[str, Any]:
        """The report for machines; the repositories of a run of several are `reports.inventory`'s to add."""
        listed = self.listed
        return {
            "version": REPORT_VERSION,
            "files": [r.to_json() for r in listed],
            "summary": {
                "files": self.files,
                "apex_files": sum(any(f.status != "note" for f in r.findings) for r in listed),
                "migrated": self.count("migrated"),
                "partial": self.count("partial"),
                "blocked": self.count("blocked"),
                "failed": self.count("failed"),
                "sites": self.sites_done + self.sites_manual,
                "sites_done": self.sites_done,
                "sites_manual": self.sites_manual,
            },
        }
