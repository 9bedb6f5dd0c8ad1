"""A run that goes on from a checkpoint through the program's own code."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from amp_migrate.verify.case import Case
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec, Side


def resumed(
    case: Case, side: Side, folder: Path, saved: dict[str, Any], file: str, recording: Recording, *,
    left: Path | None = None, **options: object,
) -> RunSpec:  # fmt: skip
    """`saved` is an entry of `recording.saves`; `file` a copy of what was saved, or what it was converted to; `left` the
    tree that the program goes on in, by default the one `recording` was made in: what lies beside a checkpoint belongs
    to it."""
    assert case.resume_args is not None
    arguments = shlex.split(case.resume_args.replace("{checkpoint}", shlex.quote(file)))
    most = max(a.nth for a in recording.attempts)
    before = max((a.nth + 1 for a in recording.attempts[: saved["window"]]), default=0)
    left = left or recording.spec.own_tree
    return case.spec(
        side,
        folder,
        argv=(*case.argv, *arguments),
        steps=most + 1 - before,
        captures=(0,),
        restore_rng_of=file,
        continues=str(left) if left is not None and left.is_dir() else None,
        **options,
    )
