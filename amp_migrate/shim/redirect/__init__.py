"""Programs written for CUDA run on the CPU.

Functions of torch are replaced (a `TorchFunctionMode` would be switched off inside functions that torch implements in
Python), so the program, its libraries and torch's own Python code all see the same single CUDA device. Every
replacement, with its limits, is listed in docs/shim.md.
"""

from __future__ import annotations

import os

_installed = False


def install() -> None:
    """Redirect CUDA to the CPU in this process, once and for all. Imports torch."""
    global _installed
    if _installed:
        return
    _installed = True
    # Compiled graphs would bypass the replaced functions.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    from torch.utils._device import _device_constructors

    _device_constructors()  # cached: device contexts keep recognising torch's own factories

    from amp_migrate.shim.redirect import (
        autocast,
        batch_norm,
        cuda_device,
        cuda_memory,
        cuda_streams,
        distributed,
        factories,
        half,
        loading,
        products,
        tensor_types,
        tensors,
    )

    for part in (
        tensor_types,
        factories,
        tensors,
        cuda_memory,
        cuda_device,
        cuda_streams,
        autocast,
        half,
        batch_norm,
        loading,
        products,
        distributed,
    ):
        part.install()
