"""The object through which programs and optimizers call the operations of `amp_C`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)
