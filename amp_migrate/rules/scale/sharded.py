"""Parameters sharded over processes: each rank's scaler sees a part of the gradients.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
Native: https://pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from amp_migrate.findings import Code
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP223",
        "The scaler of sharded parameters",
        "FullyShardedDataParallel",
        apex="Each rank looks for overflows in its own part of the gradients, and skips and halves alone.",
        native="torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler (fairscale: fairscale.optim.grad_scaler) takes "
        "the place of GradScaler: the ranks agree on what overflowed. With fully_shard GradScaler does so by itself.",
        why="GradScaler asks no other rank: after an overflow on one of them they train with different scales, and some have "
        "stepped where others have not.",
        links=(
            "https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss",
            "https://pytorch.org/docs/stable/fsdp.html",
        ),
    ),
)

_FSDP = {
    "torch.distributed.fsdp.FullyShardedDataParallel": "torch.distributed.fsdp.sharded_grad_scaler",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": (
        "torch.distributed.fsdp.sharded_grad_scaler"
    ),
    "fairscale.nn.FullyShardedDataParallel": "fairscale.optim.grad_scaler",
    "fairscale.nn.data_parallel.FullyShardedDataParallel": "fairscale.optim.grad_scaler",
    "fairscale.nn.data_parallel.fully_sharded_data_parallel.FullyShardedDataParallel": "fairscale.optim.grad_scaler",
}


def apply(m: Migration) -> None:
    """Point out where parameters are sharded while the unit's scaler, of the same process, is on."""
    if not m.scales:
        return
    for module in m.unit.reach:
        if module not in m.unit.tied or "FullyShardedDataParallel" not in module.text:
            continue
        for call, _ in module.calls:
            home = _FSDP.get(m.project.qualify(module, call.func) or "")
            if home is not None and m.live(module, call) and not m.switch.off_at(module, call):
                message = (
                    f"each rank sees a part of the gradients: create {home}.ShardedGradScaler in place of GradScaler"
                )
                m.output.note(module, call, "AMP223", module.source(call.func), message, "review")
