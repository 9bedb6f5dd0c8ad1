"""The record of a run: one JSON object a line, written as it happens, so that a crash loses nothing."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch


class Journal:
    """Appends events to `record.jsonl`.

    Scalars still on a device stay there until the next step has been launched: reading them at once would stop the
    program at every step. Events are kept in order; `flush` writes all of them.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "record.jsonl").open("a", buffering=1 << 16)
        self._waiting: list[dict[str, Any]] = []
        self._process = os.getpid()
        self._start = time.perf_counter()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def write(self, kind: str, **values: Any) -> dict[str, Any]:
        """Add an event; it may still be changed until it is flushed. Ignored in forked children."""
        event = {"kind": kind, **values}
        if os.getpid() == self._process:
            self._waiting.append(event)
        return event

    def flush(self) -> None:
        if os.getpid() != self._process:
            return
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._file.write(json.dumps({key: _plain(value) for key, value in event.items()}) + "\n")
        self._file.flush()


def _plain(value: Any) -> Any:
    """Tensors become numbers; numbers JSON lacks become strings that `float` reads."""
    if isinstance(value, torch.Tensor):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return value
