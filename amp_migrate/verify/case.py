"""What is to be verified: two programs, how they are called, and how far they are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from amp_migrate.verify.recording.spec import RunSpec, Side

FILL_IN = "FILL_IN:"  # in an argument: stands before the name of what a person must say


class VerifyError(Exception):
    """The case cannot be judged; the message says why."""


@dataclass(frozen=True)
class Program:
    """A script and the folder it is started in. They lie in `tree`, a copy of the user's folder `origin`, of which every
    run gets a copy again; without `tree` it runs where it lies."""

    script: Path
    cwd: Path
    tree: Path | None = None
    origin: Path | None = None


@dataclass(frozen=True)
class Case:
    """One verification. `resume_args` is a template with `{checkpoint}`; `resume_at` a step, default the middle.

    `dtype` is the half format the migration is meant to compute in; None: the original's.
    """

    name: str
    original: Program
    migrated: Program
    argv: tuple[str, ...] = ()
    steps: int = 50
    resume_at: int | None = None
    resume_args: str | None = None
    device: Literal["auto", "cuda", "cpu"] = "auto"
    apex: Literal["auto", "installed", "shim"] = "auto"
    dtype: Literal["float16", "bfloat16"] | None = None
    nproc: int = 1
    seed: int = 0
    start_scale: float | None = None  # where every dynamic scaler starts, in place of what the programs say
    reruns: int = 3
    drills: str = "none"  # none, all, auto (those that cost little), or names separated by commas
    off_args: str | None = None  # in place of `argv`: without mixed precision,
    eval_args: str | None = None  # and evaluating alone, with `{checkpoint}` where a file goes
    fp32: bool = True  # also run the migrated program without mixed precision, for the cost table
    cache: bool = True  # noisy reruns may come from earlier verifications
    needs_apex: bool = False  # without mixed precision in the original there is nothing to compare
    notes: tuple[str, ...] = field(default=())  # what the rewriter left to a person
    watch: Mapping[Side, str] = field(default_factory=dict)  # which statements the runs of a side mark, a file

    @property
    def middle(self) -> int:
        return self.resume_at if self.resume_at is not None else max(1, self.steps // 2)

    def spec(self, side: Side, folder: Path, **options: object) -> RunSpec:
        program = self.original if side == "original" else self.migrated
        values: dict[str, object] = {
            "script": str(program.script),
            "argv": self.argv,
            "cwd": str(program.cwd),
            "tree": program.tree and str(program.tree),
            "origin": program.origin and str(program.origin),
            "called_from": self.original.origin and str(self.original.origin),
            "side": side,
            "out": str(folder),
            "steps": self.steps,
            "apex": self.apex,
            "device": self.device,
            "seed": self.seed,
            "start_scale": self.start_scale,
            "watch": None if options.get("full_precision") else self.watch.get(side),
            **options,
        }
        return RunSpec(**values)  # type: ignore[arg-type]


def captures(steps: int) -> tuple[int, ...]:
    """The steps at which lockstep compares: the first ones, then ever sparser, and the last two."""
    wanted = {0, 1, 2, 3, 4, 6, 9, 13, 20, 32, 50, 75, 100, 200, 400, steps - 2, steps - 1}
    return tuple(sorted(step for step in wanted if 0 <= step < steps))
