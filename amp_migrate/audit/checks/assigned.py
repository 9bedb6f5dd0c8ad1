"""Every name that the edit introduced, or now reads, has a value on every path that reads it."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()


def check(review: Review) -> Iterable[Doubt]:
    return ()
