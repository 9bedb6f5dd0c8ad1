"""Run Apex programs on current PyTorch, with or without a GPU.

`install` prepares this process; `child_environment` prepares the Python processes it starts. Nothing is written into
the user's environment: `import apex` is answered by an import hook, and functions of torch are replaced in memory.
torch itself is imported only when the program imports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from amp_migrate.shim import finder

__all__ = ["ApexChoice", "DeviceChoice", "child_environment", "install"]

ApexChoice = Literal["auto", "installed", "shim", "untouched"]
DeviceChoice = Literal["auto", "cuda", "cpu"]

APEX_VARIABLE = "AMP_MIGRATE_APEX"
DEVICE_VARIABLE = "AMP_MIGRATE_DEVICE"

_STARTUP = Path(__file__).parent / "startup"


def install(apex: ApexChoice = "auto", device: DeviceChoice = "auto") -> None:
    """Make `import apex` work in this process and, on the CPU, make CUDA programs run.

    `apex`: "shim" answers `import apex` with the shim; "installed" insists on a real Apex that has `amp.initialize`
    and lets the import raise ModuleNotFoundError without one; "auto" (default) takes the real one when it is complete
    and the shim otherwise; "untouched" leaves `import apex` to Python, and to whatever Apex there is.
    `device`: "cpu" redirects CUDA to the CPU, "cuda" leaves torch alone, "auto" (default) redirects where
    `torch.cuda.is_available()` is false. The redirection cannot be undone in a process.
    Raises ValueError for other values.
    """
    _check(apex, device)
    finder.provide_apex(apex)
    finder.after_torch(lambda: _place(device))


def child_environment(
    apex: ApexChoice = "auto", device: DeviceChoice = "auto", base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Environment variables under which every `python ...` starts as if it had called `install(apex, device)` first.

    Only the variables to set are returned; merge them over `base` (default: `os.environ`), whose PYTHONPATH is kept
    behind the entry added here. Interpreters started with `-E`, `-I` or `-S` ignore them.
    Raises ValueError like `install`.
    """
    _check(apex, device)
    given = (os.environ if base is None else base).get("PYTHONPATH")
    kept = [entry for entry in (given or "").split(os.pathsep) if entry and Path(entry) != _STARTUP]
    variables = {
        "PYTHONPATH": os.pathsep.join([str(_STARTUP), *kept]),
        APEX_VARIABLE: apex,
        DEVICE_VARIABLE: device,
    }
    if device == "cpu":
        variables["TORCHDYNAMO_DISABLE"] = "1"
    return variables


def _check(apex: str, device: str) -> None:
    if apex not in get_args(ApexChoice):
        raise ValueError(f"apex must be one of {', '.join(get_args(ApexChoice))}, not {apex!r}")
    if device not in get_args(DeviceChoice):
        raise ValueError(f"device must be one of {', '.join(get_args(DeviceChoice))}, not {device!r}")


def _place(device: DeviceChoice) -> None:
    torch = sys.modules["torch"]
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        from amp_migrate.shim import redirect

        redirect.install()
