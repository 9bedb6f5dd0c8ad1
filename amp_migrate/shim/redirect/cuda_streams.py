"""Streams and events: everything runs in program order, so waiting is immediate and time is the host's clock."""

from __future__ import annotations

import itertools
import sys
import time
from abc import ABCMeta
from typing import Any

from amp_migrate.shim.redirect import placement
from amp_migrate.shim.redirect.patching import exists, replace

_handles = itertools.count(1)


class Event:
    """`torch.cuda.Event`: remembers when it was recorded."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **kwargs: Any) -> None:
        self.cuda_event = next(_handles)
        self.enable_timing = enable_timing
        self._recorded: float | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        self._recorded = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing is outstanding."""

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def query(self) -> bool:
        """Whether the work before the event is done: always."""
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`. Raises ValueError unless both were recorded with timing."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded - self._recorded) * 1000.0


class Stream:
    """`torch.cuda.Stream`: a name for work that runs at once. Each has its own identity, as on a device."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = placement.cuda(placement.current_index)
        self.priority = priority
        self.cuda_stream = self.stream_id = next(_handles)
        self.device_index = self.device.index
        self.device_type = 1  # CUDA, in the numbering of torch._C.Stream

    def wait_event(self, event: Any) -> None:
        """Nothing is outstanding."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is outstanding."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done: always."""
        return True

    def synchronize(self) -> None:
        """Nothing is outstanding."""

    def is_capturing(self) -> bool:
        """Whether a graph is being captured: never."""
        return False

    def __enter__(self) -> Stream:
        self._entered = [*getattr(self, "_entered", ()), _state.current]
        _state.current = self
        return self

    def __exit__(self, *failure: object) -> None:
        _state.current = self._entered.pop()


class StreamContext:
    """`with torch.cuda.stream(s)`; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *failure: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*failure)


class _State:
    default: Stream
    current: Stream


_state = _State()


def _set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _state.current = stream


def install() -> None:
    """Replace the classes and functions in `torch.cuda`, and the device-neutral ones in `torch`."""
    _state.default = Stream()
    _state.default.cuda_stream = 0
    _state.current = _state.default
    table: dict[str, Any] = {
        "torch.cuda.Stream": Stream,
        "torch.cuda.ExternalStream": Stream,
        "torch.cuda.Event": Event,
        "torch.cuda.StreamContext": StreamContext,
        "torch.cuda.stream": StreamContext,
        "torch.cuda.set_stream": _set_stream,
        "torch.cuda.current_stream": lambda device=None: _state.current,
        "torch.cuda.default_stream": lambda device=None: _state.default,
        "torch.cuda.streams.Stream": Stream,
        "torch.cuda.streams.Event": Event,
        "torch.accelerator.current_stream": lambda device=None: _state.current,
        "torch.accelerator.set_stream": _set_stream,
        "torch.Stream": Stream,
        "torch.Event": Event,
    }
    for name, value in table.items():
        if exists(name):
            replace(name, value)
    bases = sys.modules.get("torch._streambase")  # torch 2.4: its compiler insists on them
    for name, own in (("_StreamBase", Stream), ("_EventBase", Event)):
        base = getattr(bases, name, None)
        if isinstance(base, ABCMeta):
            base.register(own)
