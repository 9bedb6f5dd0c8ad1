"""What tests of the audit share: a migration written down as two texts, and what is said of it."""

from __future__ import annotations

import ast
import re
import textwrap

from amp_migrate.audit import Doubt, audit
from amp_migrate.audit.review import Wish


def program(text: str) -> str:
    text = textwrap.dedent(text).lstrip("\n")
    ast.parse(text)
    return text


def sides(text: str) -> tuple[str, str]:
    """A program before and after, written as one diff: `-` and `+`, in a margin of four columns, mark a line of one alone."""
    before, after = (
        re.sub(rf"^  [{own}] ", "    ", re.sub(rf"^  [{other}] .*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
        for own, other in ("-+", "+-")
    )
    return before, after


def doubts(before: str, after: str, **wish: str) -> list[Doubt]:
    """What the audit says of one file's migration, all of whose checks could follow it."""
    return _followed(audit({"train.py": program(before)}, {"train.py": program(after)}, Wish(**wish)))  # type: ignore[arg-type]


def doubts_of(before: dict[str, str], after: dict[str, str]) -> list[Doubt]:
    """The same for a project; `after` holds the files that change."""
    return _followed(audit({p: program(t) for p, t in before.items()}, {p: program(t) for p, t in after.items()}))


def _followed(found: list[Doubt]) -> list[Doubt]:
    assert not [d.message for d in found if d.code == "AMP191"]  # a check that crashed says nothing else
    return found


def told(found: list[Doubt], code: str) -> list[tuple[int, str]]:
    """Line and verdict of the doubts with one code."""
    return [(d.line, d.verdict) for d in found if d.code == code]
