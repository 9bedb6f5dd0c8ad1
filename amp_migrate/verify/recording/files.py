"""What the program saves and loads: copies of its checkpoints, with the random state of that moment."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from amp_migrate.checkpoint.states import scaler_states
from amp_migrate.verify.recording import state
from amp_migrate.verify.recording.guard import Guard
from amp_migrate.verify.recording.recorder import Recorder


def install(recorder: Recorder, guard: Guard) -> None:
    """Watch `torch.save` and `torch.load`; `guard` hears of files that torch opens by itself."""
    save, load = torch.save, torch.load
    near = recorder.spec.keep_save_near
    kept: tuple[int, Path] | None = None  # its distance from the step asked for, and the copy

    def keep(f: str | os.PathLike[str]) -> str | None:
        nonlocal kept
        distance = abs(recorder.steps - (near or 0))
        if near is None or (kept is not None and kept[0] <= distance):
            return None
        folder = recorder.folder / "saves"
        folder.mkdir(exist_ok=True)
        if kept is not None:
            kept[1].unlink()
        copy = folder / f"{recorder.attempts}{Path(f).suffix}"
        shutil.copyfile(f, copy)
        save(state.random_state(), f"{copy}.random")
        kept = distance, copy
        return str(copy)

    @functools.wraps(save)
    def watched_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        named = isinstance(f, (str, os.PathLike))
        if named:
            guard.before_write(f, whole=True)
        save(obj, f, *args, **kwargs)
        if named:
            content = describe(obj)
            trained = content["optimizer"] or content["native"] or content["apex"]
            recorder.saved(f, content, keep(f) if trained else None)

    @functools.wraps(load)
    def watched_load(f: Any, *args: Any, **kwargs: Any) -> Any:
        result = load(f, *args, **kwargs)
        if isinstance(f, (str, os.PathLike)):
            recorder.loaded(f, describe(result))
            wanted = recorder.spec.restore_rng_of
            if wanted is not None and os.path.exists(f) and os.path.samefile(f, wanted):
                random = Path(wanted + ".random")
                if random.exists():
                    state.set_random_state(load(random, weights_only=False))
        return result

    torch.save, torch.load = watched_save, watched_load


def describe(content: Any) -> dict[str, Any]:
    """What of a training's state a saved object holds."""
    apex, native = scaler_states(content)
    return {
        "apex": apex,
        "native": native,
        "optimizer": _holds_optimizer(content),
    }


def _holds_optimizer(content: Any, depth: int = 0) -> bool:
    if not isinstance(content, (dict, list, tuple)) or depth > 3:
        return False
    if isinstance(content, dict) and {"state", "param_groups"} <= set(content):
        return True
    values = content.values() if isinstance(content, dict) else content
    return any(_holds_optimizer(value, depth + 1) for value in list(values)[:200])
