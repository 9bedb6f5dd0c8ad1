"""The record of one run, read back and put in order: one entry a step attempt, with what led to it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.verify.recording.spec import RunSpec

LAST_LINES = 12  # of standard error, where there is no traceback


@dataclass(frozen=True)
class Backward:
    """One `backward()`. `loss` is unscaled; `scale` and `tracker` are the scaler's when the loss was scaled."""

    loss: float
    value: float
    scaler: int | None
    scale: float
    tracker: int | None
    scalings: int
    autocast: bool


@dataclass(frozen=True)
class Clip:
    """One call that clipped gradients: `norm` is what it returned, None for value clipping. `scaled`: inside Apex's
    `scale_loss`, where gradients still carry the scale."""

    kind: str
    limit: float
    norm: float | None
    scaled: bool = False


@dataclass
class Attempt:
    """One attempt to step, and everything since the attempt before."""

    window: int
    optimizer: int = 0
    nth: int = 0
    skipped: bool = False
    grad_norm: float | None = None
    with_grad: int = 0
    lr: tuple[float, ...] = ()
    dtypes: tuple[str, ...] = ()
    name: str = ""
    seconds: float | None = None
    memory: int = 0
    inputs: tuple[float, ...] = ()
    backwards: list[Backward] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    unscales: int = 0
    updates: list[float | None] = field(default_factory=list)  # the new scale each update was given, if any
    misfits: tuple[str, ...] = ()
    captured: bool = False
    forced: bool = False
    compared: bool = False  # its gradients were kept
    cleared: int = 0  # so many of its backward passes had their gradients zeroed before the step
    late: bool = False  # skipped for the overflow of an earlier iteration
    by_scaler: bool | None = None  # taken from within `GradScaler.step`; None where no drill asked

    @property
    def loss(self) -> float | None:
        """The mean of the losses that led to this attempt."""
        return sum(b.loss for b in self.backwards) / len(self.backwards) if self.backwards else None


@dataclass
class Recording:
    """Everything one run left behind."""

    spec: RunSpec
    attempts: list[Attempt] = field(default_factory=list)
    scalers: dict[int, dict[str, Any]] = field(default_factory=dict)
    final: dict[int, dict[str, Any]] = field(default_factory=dict)
    census: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    saves: list[dict[str, Any]] = field(default_factory=list)
    loads: list[dict[str, Any]] = field(default_factory=list)
    apex: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    uncompiled: bool = False  # it called torch.compile, which did nothing
    drilled: list[dict[str, Any]] = field(default_factory=list)  # what a drill has forced upon this run
    evaluated: list[dict[str, Any]] = field(default_factory=list)
    began: float | None = None  # when the script started, by the clock `end["at"]` is read from
    open_window: Attempt | None = None  # what was recorded after the last attempt
    trouble: str | None = None  # why the run is no good for judging, as a sentence
    output: str = ""

    @property
    def folder(self) -> Path:
        return Path(self.spec.out)

    @property
    def opt_level(self) -> str | None:
        return str(self.apex[-1]["opt_level"]) if self.apex else None

    @property
    def seconds(self) -> float | None:
        """From the start of the script to the end of the record."""
        ended = self.end.get("at")
        return None if self.began is None or ended is None else ended - self.began

    def save_near(self, step: int) -> dict[str, Any] | None:
        """The kept save nearest to a step that holds a training's state and has steps after it."""
        usable = [
            s for s in self.saves if s["kept"] and Path(s["kept"]).exists() and 0 < s["window"] < len(self.attempts)
        ]
        return min(usable, key=lambda s: (abs(self.attempts[s["window"]].nth - step), -s["window"]), default=None)

    def said(self) -> tuple[str, ...]:
        """Why it failed, in the program's own words: its traceback, else the end of its standard error; with the user's
        paths."""
        text = self.end.get("traceback") or "\n".join(_tail(self.folder / "stderr.txt").splitlines()[-LAST_LINES:])
        return tuple(_printable(line) for line in self.spec.shown(text).splitlines() if line.strip())

    def losses(self) -> list[float]:
        return [b.loss for attempt in self.attempts for b in attempt.backwards]


def read(spec: RunSpec, status: int | None = 0, stopped: str | None = None) -> Recording:
    """The recording of `spec`; a torn last line is left out. `status` and `stopped` say how the process ended."""
    recording = Recording(spec)
    windows: dict[int, Attempt] = {}
    zeroed: dict[int, list[tuple[int, int]]] = {}  # by window: an optimizer, and the passes before

    def at(window: int) -> Attempt:
        return windows.setdefault(window, Attempt(window))

    done = 0
    for event in _events(Path(spec.out) / "record.jsonl"):
        kind = event.pop("kind")
        if kind == "step":
            _fill(at(event["window"]), event)
            done = max(done, event["window"] + 1)
        elif kind == "window":
            attempt = at(event["window"])
            attempt.inputs = tuple(float(v) for v in event["inputs"])
            attempt.misfits = tuple(event.get("misfits", ()))
            attempt.captured = event.get("captured", False)
            attempt.forced = event.get("forced", False)
        elif kind == "backward":
            at(event["window"]).backwards.append(_backward(event))
        elif kind == "clip":
            norm = event["norm"]
            at(event["window"]).clips.append(
                Clip(event["clip"], float(event["limit"]), None if norm is None else float(norm), event["scaled"])
            )
        elif kind == "stepped":
            at(event["window"]).by_scaler = event["by_scaler"]
        elif kind == "cleared":
            zeroed.setdefault(event["window"], []).append((event["optimizer"], event["passes"]))
        elif kind == "unscale":
            at(event["window"]).unscales += 1
        elif kind == "update":
            new_scale = event["new_scale"]
            at(max(0, event["window"] - 1)).updates.append(None if new_scale is None else float(new_scale))
        else:
            _other(recording, kind, event)
    recording.attempts = [windows[w] for w in sorted(windows) if w < done]
    for attempt in recording.attempts:
        of_step = [passes for number, passes in zeroed.get(attempt.window, ()) if number == attempt.optimizer]
        attempt.cleared = max(of_step, default=0)
    recording.open_window = windows.get(done)
    recording.output = _tail(Path(spec.out) / "stdout.txt")
    recording.trouble = _trouble(recording, status, stopped)
    return recording


def _other(recording: Recording, kind: str, event: dict[str, Any]) -> None:
    if kind == "scaler":
        recording.scalers[event["scaler"]] = event
    elif kind == "final_scale":
        recording.final[event["scaler"]] = event
        recording.scalers[event["scaler"]] = {"scaler": event["scaler"], **event["config"]}
    elif kind == "census":
        recording.census = event["table"]
    elif kind == "save":
        recording.saves.append(event)
    elif kind == "load":
        recording.loads.append(event)
    elif kind == "apex":
        recording.apex.append(event)
    elif kind == "end":
        recording.end = event
    elif kind == "drilled":
        recording.drilled.append(event)
    elif kind == "uncompiled":
        recording.uncompiled = True
    elif kind == "evaluated":
        recording.evaluated.append(event)
    elif kind == "start":
        recording.began = event.pop("at", None)
        recording.environment = event


LONGEST = 300  # characters of an error that is quoted
WEIGHTS_ONLY = "Weights only load failed"
LOADS_ALL = (
    "torch 2.6 and later load no other objects of a checkpoint, unless TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 is in the "
    "environment"
)


def _trouble(recording: Recording, status: int | None, stopped: str | None) -> str | None:
    reason, steps = recording.end.get("reason"), len(recording.attempts)
    where = f"after {steps} step{'s' if steps != 1 else ''}"
    if stopped is not None:
        return f"{stopped} ({where})"
    if reason == "raised":
        place = recording.end.get("place")
        raised = f"raised {_short(recording.end['error'])}" + (f" at {place}" if place else "") + f" {where}"
        return _printable(recording.spec.shown(raised))
    if reason == "exited" and recording.end.get("failed"):
        return f"called sys.exit({_printable(repr(recording.end['code']))}) {where}"
    if reason is None:
        if status is not None and status < 0:
            ended = f"was killed by signal {-status}"
        else:
            ended = f"left with status {status}, past Python's own end (os._exit?),"
        return f"{ended} {where}{_last_words(recording.folder)}"
    if steps == 0 and not (recording.spec.drill and recording.spec.drill.evaluation):
        return "ended without a single optimizer step"
    return None


def _short(error: str) -> str:
    """An error on one line: some of torch's are pages long."""
    error = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", error).split())
    if WEIGHTS_ONLY in error:
        return error[: error.index(WEIGHTS_ONLY)] + f"{WEIGHTS_ONLY}: {LOADS_ALL}"
    return error if len(error) <= LONGEST else f"{error[:LONGEST]}..."


def _last_words(folder: Path) -> str:
    """The last line on standard error that is no warning."""
    lines = [line for line in _tail(folder / "stderr.txt").splitlines() if line.strip() and "Warning" not in line]
    said = [line for line in lines if not line.startswith(" ")]
    return f": {_printable(said[-1][:300])}" if said else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _tail(path: Path, size: int = 1 << 16) -> str:
    """The end of what the program printed, whatever bytes it printed."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - size))
            return stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _events(path: Path) -> list[dict[str, Any]]:
    events = []
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return events


def _fill(attempt: Attempt, event: dict[str, Any]) -> None:
    attempt.optimizer, attempt.nth, attempt.skipped = event["optimizer"], event["nth"], event["skipped"]
    attempt.grad_norm = None if event.get("grad_norm") is None else float(event["grad_norm"])
    attempt.with_grad = event.get("with_grad", 0)
    attempt.lr, attempt.dtypes, attempt.name = tuple(event["lr"]), tuple(event["dtypes"]), event["name"]
    attempt.seconds, attempt.memory = event["seconds"], event["memory"]
    attempt.compared, attempt.late = event["compared"], event.get("late", False)


def _backward(event: dict[str, Any]) -> Backward:
    tracker = event.get("tracker")
    return Backward(
        loss=float(event["loss"]),
        value=float(event["value"]),
        scaler=event["scaler"],
        scale=float(event["scale"]),
        tracker=None if tracker is None else int(tracker),
        scalings=event["scalings"],
        autocast=event["autocast"],
    )
