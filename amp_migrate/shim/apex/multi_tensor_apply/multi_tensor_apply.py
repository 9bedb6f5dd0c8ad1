"""The object through which programs and optimizers call the operations of `amp_C`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import kernels


class MultiTensorApply:
    """Passes its chunk size, the overflow buffer and the lists to the operation. Always `available` in the shim.

    The chunk size splits the work of Apex's kernels and has no effect here.
    """

    available = True
    warned = False

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def check_avail(self) -> None:
        """Apex raises here when its kernels were not compiled; the shim needs none."""

    def __call__(self, op: Callable[..., Any], noop_flag_buffer: Any, tensor_lists: Any, *args: Any) -> Any:
        if getattr(op, "__module__", None) == kernels.__name__:
            wanted = list(op.__annotations__.items())[3:]
            lacking = [
                name for (name, kind), value in zip(wanted, args, strict=False) if value is None and "None" not in kind
            ]
            if lacking:  # what is compiled takes numbers and tensors
                raise TypeError(f"{op.__name__}(): incompatible function arguments: {', '.join(lacking)} is None")
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)
