"""A second opinion on every migration, before anything is written.

The program before and after is read once more, as text, by code that shares no conclusion with `reading/` or `rules/`. It
knows two things only: what Apex does and what native AMP does. Each file of `checks/` proves one thing, and says in its
docstring what it cannot. What a check refutes is left with Apex; what differs is said; what it cannot follow is told too.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from amp_migrate.audit.doubts import Doubt
from amp_migrate.findings import Code

if TYPE_CHECKING:
    from amp_migrate.audit.checks import Check
    from amp_migrate.audit.review import Review, Was, Wish

Part = Literal["refusing", "telling"]

CODES = (
    Code(
        code="AMP191",
        title="a migration that a check of the audit could not follow, or that no process comes to",
        construct="a program",
        apex="-",
        native="Read the change of this file with what the message names in mind: nothing was proved about it.",
        why="What the audit cannot follow is told, never passed over.",
    ),
)


def audit(
    before: Mapping[str, str],
    after: Mapping[str, str],
    wish: Wish | None = None,
    was: Was | None = None,
    trees: Mapping[str, ast.Module] | None = None,
    part: Part | None = None,
) -> list[Doubt]:
    """What is wrong with, or different after, a migration; in the order of files and lines, each thing once.

    `before` holds the text of every Python file of the project, by path relative to its root; `after` those that the
    migration changes. `wish` is what was asked for (`--dtype`, `--eval`). `was` keeps what was read
    of the program before, where several migrations of one are reviewed. `trees` are syntax trees of files after, where the
    caller has parsed them: what Python's parser says is no conclusion of anybody's. `part`: only what the checks say that
    may refuse, or only what the others do, which need not be asked about a migration that does not stand.
    """
    changed: Collection[str] = [p for p, text in after.items() if text != before.get(p)]
    if not changed:
        return []

    from amp_migrate.audit.checks import CHECKS, TELLING
    from amp_migrate.audit.review import Was, Wish

    review = (was or Was(before)).review(after, wish or Wish(), trees)
    asked = [c for c in CHECKS if part is None or (c in TELLING) is (part == "telling")]
    found = {doubt for check in asked for doubt in _doubts(check, review)}
    if part != "refusing":
        found |= {*_not_loaded(review), *_given_up(review)}
    return sorted(found)


def _given_up(review: Review) -> Iterator[Doubt]:
    """Changed files of a program so large that the checks were not told where all values come from."""
    if review.values_before.gave_up or review.values_after.gave_up:
        message = (
            "the audit did not follow all values of this program to where they come from: too much hangs on some. What the "
            "checks say of it may be incomplete; read its change with care"
        )
        for path in sorted(review.changes):
            yield Doubt(path, 1, "AMP191", "audit", message, "review")


def _not_loaded(review: Review) -> Iterator[Doubt]:
    """Changed files that no process loads as they are: what their code would run was not followed."""
    from amp_migrate.audit.program.stopping import stops_at

    for path in review.changes:
        stopped = stops_at(review.before, review.before.modules[path])
        if stopped is not None:
            message = (
                f"`{ast.unparse(stopped)}` raises: it leads to a name that is not there, so that nothing loads this file; "
                "what it runs was not followed. See its change once that is mended"
            )
            yield Doubt(path, stopped.lineno, "AMP191", "an import", message, "review")


def _doubts(check: Check, review: Review) -> list[Doubt]:
    """What a check says; where it breaks, that nothing was proved is said instead."""
    try:
        return list(check.check(review))
    except Exception as error:
        if os.environ.get("AMP_MIGRATE_DEBUG"):
            raise
        what = f"the audit could not follow this file ({check.__name__.rpartition('.')[2]}: {type(error).__name__})"
        message = f"{what}; read its change with care, and please report this"
        return [Doubt(path, 1, "AMP191", "audit", message, "review") for path in sorted(review.changes)]


__all__ = ["CODES", "Doubt", "Part", "audit"]
