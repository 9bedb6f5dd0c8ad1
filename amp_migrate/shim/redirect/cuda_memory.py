"""`torch.cuda` memory statistics: the resident memory of this process stands in for the device's."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from amp_migrate.shim.redirect.patching import exists, replace

_peak = 0


def used() -> int:
    """Resident memory in bytes now; raises the peak."""
    global _peak
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            now = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        now = _high_water()
    _peak = max(_peak, now)
    return now


def peak() -> int:
    """Largest resident memory in bytes seen by this process, or since `reset_peak` at the calls made since."""
    used()
    return max(_peak, _high_water()) if not _was_reset else _peak


def reset_peak(device: Any = None) -> None:
    """Forget the peak: from here on it is the largest value seen when asked."""
    global _peak, _was_reset
    _peak, _was_reset = 0, True
    used()


_was_reset = False


def total() -> int:
    """Physical memory in bytes."""
    return _pages("SC_PHYS_PAGES")


def free() -> int:
    """Free physical memory in bytes."""
    return _pages("SC_AVPHYS_PAGES")


def _pages(name: str) -> int:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 16 * 2**30


def _high_water() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _statistics(device: Any = None) -> dict[str, Any]:
    statistics: dict[str, Any] = defaultdict(int)
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        statistics[f"{kind}.all.current"] = used()
        statistics[f"{kind}.all.peak"] = peak()
    return statistics


def _summary(device: Any = None, abbreviated: bool = False) -> str:
    return f"resident memory of the process: {used()} bytes, peak {peak()} bytes"


def install() -> None:
    """Replace the statistics in `torch.cuda`, `torch.cuda.memory` and `torch.accelerator`."""
    now: Callable[..., int] = lambda device=None: used()  # noqa: E731
    most: Callable[..., int] = lambda device=None: peak()  # noqa: E731
    nothing: Callable[..., None] = lambda *args, **kwargs: None  # noqa: E731
    table: dict[str, Any] = {
        "memory_allocated": now,
        "memory_reserved": now,
        "memory_cached": now,
        "max_memory_allocated": most,
        "max_memory_reserved": most,
        "max_memory_cached": most,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "reset_max_memory_cached": reset_peak,
        "reset_accumulated_memory_stats": nothing,
        "memory_stats": _statistics,
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_summary": _summary,
        "memory_snapshot": lambda *args, **kwargs: [],
        "memory_usage": lambda device=None: 100 * used() // total(),
        "device_memory_used": now,
        "mem_get_info": lambda device=None: (free(), total()),
        "get_memory_info": lambda device=None: (free(), total()),
        "list_gpu_processes": lambda device=None: "no processes are running",
        "empty_cache": nothing,
        "set_per_process_memory_fraction": nothing,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
    }
    for name, value in table.items():
        for module in ("torch.cuda", "torch.cuda.memory", "torch.accelerator"):
            if exists(f"{module}.{name}"):
                replace(f"{module}.{name}", value)
