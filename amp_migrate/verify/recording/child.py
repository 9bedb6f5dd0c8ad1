"""The child process: prepare torch, hook it, and run the script as if it had been started by `python script.py`."""

from __future__ import annotations

import os
import random
import runpy
import sys
import time
import traceback
from pathlib import Path

import torch

from amp_migrate import shim
from amp_migrate.verify.recording import apex_use, drills, files, hooks, marks, rendezvous, surroundings
from amp_migrate.verify.recording.guard import Guard
from amp_migrate.verify.recording.recorder import Recorder
from amp_migrate.verify.recording.spec import RunSpec

PACKAGE = Path(__file__).resolve().parents[2]


def run(spec: RunSpec, early: frozenset[str]) -> None:
    """Run what `spec` asks for; never returns to the caller's program state, leaves a complete record.

    `early`: the modules that a bare Python has imported when it starts a script.
    """
    surroundings.enter(spec)
    guard = Guard(spec)
    guard.install()
    # A migrated program must do without the shim: it would hide an import that was left behind.
    shim.install(apex=spec.apex if spec.side == "original" else "untouched", device=spec.device)

    _deterministic(spec.seed)
    recorder = Recorder(spec)
    hooks.install(recorder)
    rendezvous.install(spec)
    files.install(recorder, guard)
    if spec.side == "original":
        hooks.install_apex(recorder)
        apex_use.watch(recorder)
    if spec.drill is not None:
        drills.install(recorder, spec.drill)
    marks.install(spec)
    recorder.journal.write("start", python=sys.version.split()[0], torch=torch.__version__, at=time.time())
    recorder.journal.flush()

    process = os.getpid()
    if recorder.census is not None:
        recorder.census.__enter__()  # type: ignore[no-untyped-call]  # left by the end of the process
    surroundings.forget_shadowed(spec, early)
    try:
        runpy.run_path(spec.script, run_name="__main__")
        reason, details = "returned", {}
    except SystemExit as stop:
        code = stop.code
        failed = code not in (None, 0)
        reason, details = (
            "exited",
            {"code": code if isinstance(code, int) or code is None else str(code), "failed": failed},
        )
    except BaseException as error:
        own = [f for f in traceback.extract_tb(error.__traceback__) if _is_programs(f)]
        place = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
        reason = "raised"
        details = {"error": f"{type(error).__name__}: {error}"[:2000], "place": place, "traceback": _traceback(error)}
        if os.getpid() == process:
            traceback.print_exc()
    if os.getpid() != process:  # a child the program forked has come back here: it is not the one recorded
        os._exit(0)
    recorder.finish(reason, **details)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if reason == "returned" or not (details.get("failed") or reason == "raised") else 1)


def _traceback(error: BaseException) -> str:
    """As the program itself would have ended: without the frames of the tool around and within it."""
    told: traceback.TracebackException | None = traceback.TracebackException.from_exception(error, compact=True)
    text = told
    while told is not None:
        told.stack = traceback.StackSummary.from_list([f for f in told.stack if _is_programs(f)])
        told = told.__cause__ or told.__context__
    return "".join(text.format())[-8000:] if text is not None else ""


def _is_programs(frame: traceback.FrameSummary) -> bool:
    return not (frame.filename.startswith((f"{PACKAGE}{os.sep}", "<frozen ")) or frame.filename == runpy.__file__)


def _deterministic(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    # Programs switch it on; an algorithm chosen by timing makes two runs differ in rounding.
    held = torch.backends.ContextProp(lambda: False, lambda value: None)  # type: ignore[no-untyped-call]
    setattr(type(torch.backends.cudnn), "benchmark", held)  # noqa: B010
