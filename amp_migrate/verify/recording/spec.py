"""What one child process is asked to do; written by the parent, read by the child, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Side = Literal["original", "migrated"]


@dataclass(frozen=True)
class RunSpec:
    """One run of one program.

    `captures` are steps (of the busiest optimizer): at the start of each window (see `Recorder`) that opens there the
    full state is saved, with the gradients of the attempts that follow. `force_from` names a folder with such captures:
    the state of each is put in place before its window runs. `noise` is the relative amplitude of rounding noise put on
    weights (once, or whenever state is forced) and on every gradient; 0 means none.
    """

    script: str
    argv: tuple[str, ...]
    cwd: str
    side: Side
    out: str
    steps: int
    apex: Literal["auto", "installed", "shim"] = "auto"
    device: Literal["auto", "cuda", "cpu"] = "auto"
    seed: int = 0
    captures: tuple[int, ...] = ()
    capture_budget: int = 1 << 31  # bytes on disk
    force_from: str | None = None
    noise: float = 0.0
    noise_seed: int = 1
    census: bool = False
    full_precision: bool = False
    keep_saves: bool = False
    restore_rng_of: str | None = None  # a kept save: torch.load of it puts its random state back
    restart_at: int | None = (
        None  # a window: weights are scrambled at the start and everything is loaded from a file here
    )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        values = json.loads(path.read_text())
        return cls(**{**values, "argv": tuple(values["argv"]), "captures": tuple(values["captures"])})
