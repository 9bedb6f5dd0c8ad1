"""The cost table: time a step and peak memory of original, migrated and fp32. Never a verdict."""

from __future__ import annotations

import re
import statistics
from typing import Any

from amp_migrate.verify.record import Recording

WARM_UP = 3  # steps left out: allocation, lazy imports, kernels chosen
_ACCURACY = re.compile(r"(?i)\bacc(?:uracy)?\w*\W{0,3}\s*([0-9]*\.?[0-9]+)\s*(%?)")


def table(runs: dict[str, Recording]) -> list[dict[str, Any]]:
    """One row a run: seconds a step (median), bytes at the peak, speed-up over the first row, final loss, accuracy."""
    rows: list[dict[str, Any]] = []
    for name, recording in runs.items():
        seconds = [a.seconds for a in recording.attempts[WARM_UP:] if a.seconds is not None and not a.captured]
        losses = recording.losses()
        rows.append(
            {
                "run": name,
                "seconds_per_step": statistics.median(seconds) if seconds else None,
                "peak_bytes": max((a.memory for a in recording.attempts), default=0) or None,
                "final_loss": losses[-1] if losses else None,
                "accuracy": _accuracy(recording.output),
                "trouble": recording.trouble,
            }
        )
    base = rows[0]["seconds_per_step"] if rows else None
    for row in rows:
        row["speed_up"] = base / row["seconds_per_step"] if base and row["seconds_per_step"] else None
    return rows


def _accuracy(output: str) -> str | None:
    """The last accuracy the program printed, as it printed it."""
    found = _ACCURACY.findall(output)
    return "".join(found[-1]) if found else None
