"""`apex.parallel`: data parallel training with one process per device (https://nvidia.github.io/apex/parallel.html)."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn

from .. import deprecated_warning
from .distributed import DistributedDataParallel, Reducer
from .sync_batchnorm import SyncBatchNorm

__all__ = [
    "DistributedDataParallel",
    "ReduceOp",
    "Reducer",
    "SyncBatchNorm",
    "convert_syncbn_model",
    "create_syncbn_process_group",
]

if dist.is_available():
    ReduceOp = dist.ReduceOp


def convert_syncbn_model(module: nn.Module, process_group: Any = None, channel_last: bool = False) -> nn.Module:
    """Replace every batch norm below `module` (and `module` itself) by `SyncBatchNorm`; instance norms stay.

    Running statistics are shared with the old layers, weights are copied. Warns that it is deprecated, as Apex does.
    """
    deprecated_warning(
        "apex.parallel.convert_syncbn_model is deprecated. Use `torch.nn.SyncBatchNorm.convert_sync_batchnorm`."
    )
    return _converted(module, process_group, channel_last)


def _converted(module: nn.Module, process_group: Any, channel_last: bool) -> nn.Module:
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return module
    result = module
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        result = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
            channel_last=channel_last,
        )
        result.running_mean = module.running_mean
        result.running_var = module.running_var
        result.num_batches_tracked = module.num_batches_tracked
        if module.affine:
            result.weight.data = module.weight.data.clone()
            result.bias.data = module.bias.data.clone()
    for name, child in module.named_children():
        result.add_module(name, _converted(child, process_group, channel_last))
    return result


def create_syncbn_process_group(group_size: int) -> Any:
    """The group of `group_size` consecutive ranks this process belongs to; None (all ranks) for 0.

    Raises AssertionError unless `group_size` divides the number of ranks. Every rank has to call it.
    """
    if group_size == 0:
        return None
    world_size = dist.get_world_size()
    assert world_size >= group_size
    assert world_size % group_size == 0
    mine = None
    for first in range(0, world_size, group_size):
        group = dist.new_group(ranks=list(range(first, first + group_size)))
        if first <= dist.get_rank() < first + group_size:
            mine = group
    assert mine is not None
    return mine
