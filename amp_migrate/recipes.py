"""Recipes in texts, a README's example of how a checkpoint is loaded, that put a model into what the program puts it in no more."""

from __future__ import annotations

import re
from collections.abc import Sequence

from amp_migrate.findings import FileResult, Finding
from amp_migrate.leftovers import REFERENCE
from amp_migrate.sources.discover import Found
from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import read_bytes
from amp_migrate.texts import kind_of

WRAPPER = "network_to_half"
SHOWN = re.compile(rf"^[\s>]*(?:[\w.]+\s*=\s*)?(?:\w+\.)*({WRAPPER})\s*\(\s*\w")


def outdated(files: Sequence[Found], migrated: Sequence[FileResult]) -> list[FileResult]:
    """The texts that show such a call, where it went out of the program."""
    done = (f for result in migrated for f in result.findings if result.after is not None and f.status == "done")
    if not any(f.code == "AMP720" and f.construct == WRAPPER for f in done):
        return []
    texts = (found for found in files if kind_of(found.path) == "prose")
    results = ((found, _shown(found)) for found in texts)
    return [
        FileResult(path=found.display, status="blocked", findings=findings) for found, findings in results if findings
    ]


def _shown(found: Found) -> list[Finding]:
    try:
        text = read_bytes(found.path).decode("utf-8", errors="replace")
    except (OSError, SourceError):
        return []  # said by who looks for Apex in it
    message = (
        f"shows {WRAPPER}, which the program calls no more: a model that is put in its Sequential does not load what is saved "
        "from now on; take the line out for that"
    )
    return [
        Finding(number, match.start(1) + 1, REFERENCE, "reference", "manual", "look", message)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := SHOWN.match(line)) is not None
    ]
