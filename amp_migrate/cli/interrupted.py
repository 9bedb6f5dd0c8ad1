"""What a run that was killed left behind: finished by the next `rewrite`, told by everything that only reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from amp_migrate.findings import FileResult, Finding
from amp_migrate.sources import journal
from amp_migrate.sources.discover import Discovery, project_root, shown
from amp_migrate.sources.failures import INTERRUPTED
from amp_migrate.sources.journal import Left


def settle(discovery: Discovery, paths: Iterable[str], *, write: bool) -> list[FileResult]:
    """What is said of interrupted units among the files of a run. With `write`, units that lie below the paths are finished
    and what else a killed run left is removed."""
    remains = [*discovery.remains, *_around(paths)]
    journals = [path for path in remains if not path.endswith(journal.SUFFIX)]
    texts = [path for path in remains if path.endswith(journal.SUFFIX)]
    results: list[FileResult] = []
    below = [os.path.realpath(path) for path in paths]
    for left in journal.abandoned(
        [*journals, *(owner for path in texts if (owner := journal.owner(path)) is not None)]
    ):
        results += _one(left, below, write)
    for path in texts if write else ():
        if journal.owner(path) is None and os.path.isfile(path) and not os.path.islink(path):
            with contextlib.suppress(OSError):
                os.unlink(path)
    return results


def _around(paths: Iterable[str]) -> Iterator[str]:
    """Journals and temporary files beside files that were named, and journals above everything that was."""
    folders: dict[str, bool] = {}
    for path in paths:
        real = os.path.realpath(path)
        if not os.path.isdir(real):
            real = os.path.dirname(real)
            folders[real] = True
        top = project_root(real)
        while top is not None and real != top:
            real = os.path.dirname(real)
            folders.setdefault(real, False)
    for folder, beside in folders.items():
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if journal.is_journal(name) or (beside and name.startswith(".") and name.endswith(journal.SUFFIX)):
                    yield os.path.join(folder, name)


def _one(left: Left, below: list[str], write: bool) -> Iterator[FileResult]:
    if not left.half:
        if write:
            left.clean()
        return
    done = ", ".join(shown(str(file.target)) for file in left.files if file.done)
    pending = [file for file in left.files if not file.done]
    ours = all(any(_within(str(file.target), path) for path in below) for file in pending)
    if write and ours and left.finishable:
        try:
            left.finish()
        except OSError as error:
            yield from (
                _told(str(f.target), f"not finished: {(error.strerror or str(error)).lower()}") for f in pending
            )
            return
        left.clean()
        for file in pending:
            message = f"an interrupted run had migrated {done} and not this file: finished"
            note = Finding(1, 1, INTERRUPTED, "file", "note", "look", message)
            yield FileResult(shown(str(file.target)), findings=[note])
        return
    for file in pending:
        if not left.finishable:
            state = "waits with them" if file.waiting else "has changed since, or its new text is gone"
            advice = f"this file {state}; restore them all from version control and rewrite again"
        else:
            place = shown(str(left.path.parent))
            advice = f"`amp-migrate rewrite {place}` finishes it"
        yield _told(
            str(file.target), f"half of a migration: an interrupted run migrated {done} and not this file; {advice}"
        )
    if write and not left.finishable:
        left.clean()


def _within(target: str, path: str) -> bool:
    return target == path or target.startswith(path.rstrip(os.sep) + os.sep)


def _told(target: str, message: str) -> FileResult:
    return FileResult(shown(target), "blocked", [Finding(1, 1, INTERRUPTED, "file", "manual", "review", message)])
