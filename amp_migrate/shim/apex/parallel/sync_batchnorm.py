"""Batch normalization over the batches of all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules._functions import SyncBatchNorm as SyncBatchNormFunction
from torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose training statistics are those of all processes of the group (None: of all processes).

    `channel_last` takes the last dimension as the channel, as any 2-d input does anyway; `fuse_relu` applies a ReLU
    to the result; a second input to the call is added before it. Works without a process group on its own batch.
    Raises ValueError when training on a single value per channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_group = process_group
        self.channel_last = channel_last
        self.fuse_relu = fuse_relu

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _specify_process_group(self, process_group: Any) -> None:
        self.process_group = process_group

    def _specify_channel_last(self, channel_last: bool) -> None:
        self.channel_last = channel_last

    def forward(self, input: Tensor, z: Tensor | None = None) -> Tensor:
        self._check_input_dim(input)
        moves = self.channel_last and input.dim() > 2
        result = self._normalized(input.movedim(-1, 1) if moves else input)
        if moves:
            result = result.movedim(1, -1)
        if z is not None:
            result = result + z
        return torch.relu(result) if self.fuse_relu else result

    def _normalized(self, input: Tensor) -> Tensor:
        momentum = 0.0
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        batch_statistics = self.training or not self.track_running_stats
        group, world_size = self._group()
        mean = self.running_mean if not self.training or self.track_running_stats else None
        var = self.running_var if not self.training or self.track_running_stats else None
        if not batch_statistics or world_size == 1:
            return F.batch_norm(input, mean, var, self.weight, self.bias, batch_statistics, momentum, self.eps)
        result: Tensor = SyncBatchNormFunction.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, mean, var, self.eps, momentum, group, world_size
        )
        return result

    def _group(self) -> tuple[Any, int]:
        if not (dist.is_available() and dist.is_initialized()):
            return None, 1
        group = self.process_group or dist.group.WORLD
        return group, dist.get_world_size(group)
