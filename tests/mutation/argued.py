"""Mutants that no test has to see: `argued.tsv` names each by file and ident, with what it is and the reason in a sentence.

A reason holds for the code it was written for. When that changes its mutant has another ident, and the argument is stale:
`tests/mutation/test_mutants.py` says so, as does `make mutation` of one that the tests see by now.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import mutants
from tests.mutation.running import ROOT

PATH = Path(__file__).parent / "argued.tsv"


@dataclass(frozen=True)
class Argument:
    file: str
    ident: str
    told: str
    reason: str


def arguments() -> list[Argument]:
    with PATH.open(encoding="utf-8", newline="") as lines:
        return [Argument(*row) for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def stale(known: list[Argument]) -> list[Argument]:
    """Those of mutants that are no longer there."""
    texts = {a.file: ROOT / a.file for a in known}
    there = {f: {m.ident for m in mutants(p.read_text("utf-8"))} if p.exists() else set() for f, p in texts.items()}
    return [a for a in known if a.ident not in there[a.file]]
