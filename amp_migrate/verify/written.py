"""What runs wrote outside their own copies: as they told (`recording.guard`), and as the links out of the copies show."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from amp_migrate.verify import trees
from amp_migrate.verify.recording.guard import FILE, told_of

SHOWN = 3
ENTRIES = 20_000  # of a folder, that are looked at
Stamps = dict[Path, tuple[int, int]]


def stamps(copies: Iterable[Path]) -> Stamps:
    """Size and time of everything that links of these copies lead to."""
    return {there: _stamp(there) for copy in copies for _, there in trees.links(copy)}


def told(runs: Path, before: Stamps) -> list[str]:
    """Sentences about what the runs whose records lie below `runs` wrote outside their copies."""
    lines = [line for file in sorted(runs.rglob(FILE)) for line in told_of(file)]
    written = sorted({path for what, path in lines if what == "W"})
    read = {path for what, path in lines if what == "R"}
    sentences = []
    if written:
        back = [path for path in written if path in read]
        sentences.append(
            f"the program writes outside its folder, where all runs share what they find: {_some(written)}"
            + (f"; it reads {_some(back)} back, so what one run left may have changed another" if back else "")
        )
    if changed := sorted(str(place) for place, stamp in before.items() if _stamp(place) != stamp):
        sentences.append(
            f"in your project this changed while the programs ran, out of sight of verify: {_some(changed)}"
        )
    return sentences


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")


def _stamp(place: Path) -> tuple[int, int]:
    """Of a folder: the bytes in its files and the latest time, as far as `ENTRIES` of them show."""
    try:
        state = place.stat()
        size, time = state.st_size, state.st_mtime_ns
        if place.is_dir():
            for entry in itertools.islice(os.scandir(place), ENTRIES):
                own = entry.stat()
                size, time = size + own.st_size, max(time, own.st_mtime_ns)
    except OSError:
        return (-1, -1)
    return (size, time)
