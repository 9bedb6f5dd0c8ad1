"""Programs written for CUDA run on the CPU."""

from __future__ import annotations


def install() -> None:
    """Redirect CUDA to the CPU in this process."""
