"""Where the processes of one run meet: at a port of that run's own, whatever port the program names.

Runs stand side by side, and programs name one port for all of them (`os.environ["MASTER_PORT"] = "12355"`,
`tcp://127.0.0.1:23456`): the second to start would find it taken.
"""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from amp_migrate.verify.recording.spec import RunSpec

_TCP = re.compile(r"(tcp://[^/?]*:)\d+")


def install(spec: RunSpec) -> None:
    """Let `init_process_group` meet at a port of this run: that of its ranks, a free one for a process alone.

    Processes that a program starts itself are left where they are: the tool does not know who belongs together.
    """
    if not distributed.is_available():
        return
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        world_size: int = -1,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        store = args[1] if len(args) > 1 else kwargs.get("store")
        if store is None and (port := _port(spec, init_method, world_size)) is not None:
            if init_method is None or init_method.startswith("env:"):
                os.environ["MASTER_PORT"] = str(port)
            else:
                init_method = _TCP.sub(rf"\g<1>{port}", init_method)
        return original(backend, init_method, timeout, world_size, *args, **kwargs)

    replaced: Callable[..., Any] = init_process_group
    distributed.init_process_group = replaced
    torch.distributed.distributed_c10d.init_process_group = replaced


def _port(spec: RunSpec, init_method: str | None, world_size: int) -> int | None:
    if spec.world > 1:
        return spec.port
    said = re.search(r"[?&]world_size=(\d+)", init_method or "")
    size = world_size if world_size > 0 else int(said[1]) if said else int(os.environ.get("WORLD_SIZE", "-1"))
    return free_port() if size == 1 else None


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
