"""What functions and classes of torch take: their signatures, as data. A test compares them with the torch installed."""

from __future__ import annotations

import ast
from functools import cache

READ_FROM = "2.13.0"  # the torch these were read from

SIGNATURES = {
    "torch.amp.GradScaler": (
        "device=..., init_scale=..., growth_factor=..., backoff_factor=..., growth_interval=..., enabled=..."
    ),
    "torch.cuda.amp.GradScaler": (
        "init_scale=..., growth_factor=..., backoff_factor=..., growth_interval=..., enabled=..."
    ),
    "torch.autocast": "device_type, dtype=..., enabled=..., cache_enabled=...",
    "torch.cuda.amp.autocast": "enabled=..., dtype=..., cache_enabled=...",
    "torch.amp.custom_fwd": "fwd=..., *, device_type, cast_inputs=...",
    "torch.amp.custom_bwd": "bwd=..., *, device_type",
    "torch.cuda.amp.custom_fwd": "fwd=..., *, cast_inputs=...",
    "torch.cuda.amp.custom_bwd": "bwd",
    "torch.nn.parallel.DistributedDataParallel": (
        "module, device_ids=..., output_device=..., dim=..., broadcast_buffers=..., init_sync=..., "
        "process_group=..., bucket_cap_mb=..., find_unused_parameters=..., check_reduction=..., "
        "gradient_as_bucket_view=..., static_graph=..., delay_all_reduce_named_params=..., "
        "param_to_hook_all_reduce=..., mixed_precision=..., device_mesh=..., "
        "skip_all_reduce_unused_params=..., bucket_cap_mb_list=..., batched_grad_copy=..., "
        "forward_sync_buffers=..."
    ),
    "torch.nn.DataParallel": "module, device_ids=..., output_device=..., dim=...",
    "torch.nn.SyncBatchNorm": (
        "num_features, eps=..., momentum=..., affine=..., track_running_stats=..., process_group=..., "
        "device=..., dtype=..., *, bias=..."
    ),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": "module, process_group=...",
    "torch.nn.LayerNorm": "normalized_shape, eps=..., elementwise_affine=..., bias=..., device=..., dtype=...",
    "torch.nn.RMSNorm": "normalized_shape, eps=..., elementwise_affine=..., device=..., dtype=...",
    "torch.nn.functional.layer_norm": "input, normalized_shape, weight=..., bias=..., eps=...",
    "torch.nn.functional.rms_norm": "input, normalized_shape, weight=..., eps=...",
    "torch.optim.Adam": (
        "params, lr=..., betas=..., eps=..., weight_decay=..., amsgrad=..., *, foreach=..., maximize=..., "
        "capturable=..., differentiable=..., fused=..., decoupled_weight_decay=..."
    ),
    "torch.optim.AdamW": (
        "params, lr=..., betas=..., eps=..., weight_decay=..., amsgrad=..., *, maximize=..., foreach=..., "
        "capturable=..., differentiable=..., fused=..."
    ),
    "torch.optim.SGD": (
        "params, lr=..., momentum=..., dampening=..., weight_decay=..., nesterov=..., *, maximize=..., "
        "foreach=..., differentiable=..., fused=..."
    ),
    "torch.optim.Adagrad": (
        "params, lr=..., lr_decay=..., weight_decay=..., initial_accumulator_value=..., eps=..., foreach=..., "
        "*, maximize=..., differentiable=..., fused=..."
    ),
    "torch.optim.NAdam": (
        "params, lr=..., betas=..., eps=..., weight_decay=..., momentum_decay=..., decoupled_weight_decay=..., "
        "*, foreach=..., maximize=..., capturable=..., differentiable=..."
    ),
    "torch.nn.utils.clip_grad_norm_": "parameters, max_norm, norm_type=..., error_if_nonfinite=..., foreach=...",
    "torch.nn.utils.clip_grad_value_": "parameters, clip_value, foreach=...",
    "torch.nn.BCEWithLogitsLoss": "weight=..., size_average=..., reduce=..., reduction=..., pos_weight=...",
    "torch.nn.functional.binary_cross_entropy": (
        "input, target, weight=..., size_average=..., reduce=..., reduction=..."
    ),
    "torch.nn.functional.binary_cross_entropy_with_logits": (
        "input, target, weight=..., size_average=..., reduce=..., reduction=..., pos_weight=..."
    ),
    "torch.distributed.new_group": (
        "ranks=..., timeout=..., backend=..., pg_options=..., use_local_synchronization=..., group_desc=..., "
        "device_id=..., sort_ranks=..."
    ),
    "torch.distributed.new_subgroups": (
        "group_size=..., group=..., timeout=..., backend=..., pg_options=..., group_desc=..."
    ),
    "torch.autograd.grad": (
        "outputs, inputs, grad_outputs=..., retain_graph=..., create_graph=..., only_inputs=..., "
        "allow_unused=..., is_grads_batched=..., materialize_grads=..."
    ),
    "torch.amp.GradScaler.scale": "self, outputs",
    "torch.amp.GradScaler.unscale_": "self, optimizer",
    "torch.amp.GradScaler.step": "self, optimizer, *args, **kwargs",
    "torch.amp.GradScaler.update": "self, new_scale=...",
    "torch.amp.GradScaler.get_scale": "self",
    "torch.amp.GradScaler.get_growth_factor": "self",
    "torch.amp.GradScaler.set_growth_factor": "self, new_factor",
    "torch.amp.GradScaler.get_backoff_factor": "self",
    "torch.amp.GradScaler.set_backoff_factor": "self, new_factor",
    "torch.amp.GradScaler.get_growth_interval": "self",
    "torch.amp.GradScaler.set_growth_interval": "self, new_interval",
    "torch.amp.GradScaler.is_enabled": "self",
    "torch.amp.GradScaler.state_dict": "self",
    "torch.amp.GradScaler.load_state_dict": "self, state_dict",
}

# Other names of the same.
ALIASES = {
    "torch.amp.autocast": "torch.autocast",
    "torch.amp.autocast_mode.autocast": "torch.autocast",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.cuda.amp.GradScaler",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.modules.normalization.LayerNorm": "torch.nn.LayerNorm",
    "torch.nn.modules.normalization.RMSNorm": "torch.nn.RMSNorm",
    "torch.nn.modules.batchnorm.SyncBatchNorm": "torch.nn.SyncBatchNorm",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.optim.adam.Adam": "torch.optim.Adam",
    "torch.optim.adamw.AdamW": "torch.optim.AdamW",
    "torch.optim.sgd.SGD": "torch.optim.SGD",
}

SCALER = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")


@cache
def signature(name: str) -> ast.arguments | None:
    """The signature of something in torch, by its full name."""
    text = SIGNATURES.get(ALIASES.get(name, name))
    if text is None:
        return None
    (function,) = ast.parse(f"def f({text}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args
