"""Apex checkpoints become native ones: `loss_scale`/`unskipped` turn into a GradScaler state.

`states` holds the mapping and needs no torch; `files` reads and writes.
"""

from amp_migrate.checkpoint.states import CheckpointError, Conversion, convert

__all__ = ["CheckpointError", "Conversion", "convert"]
