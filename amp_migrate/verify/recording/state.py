"""The state of a training program, found from its optimizers and modules: taken, put in place, compared by order.

Names and wrappers may differ between the two programs; the order of parameters in `optimizer.param_groups` and of
buffers below each root module does not, nor that of the parameters that no optimizer holds (a momentum encoder, a
teacher: programs move them by hand). Under Apex O2 the optimizer holds the fp32 master params, so that they, not the
half weights, are the state.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's params in order; under Apex O2 these are the masters."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def gradients(optimizer: Optimizer) -> list[Tensor | None]:
    """The gradients as the optimizer is about to see them, unscaled also where a fused step would do that itself."""
    scale = getattr(optimizer, "grad_scale", None)
    grads = [p.grad for p in parameters(optimizer)]
    if scale is None:
        return grads
    return [None if g is None else g / scale for g in grads]


def norm(tensors: Iterable[Tensor | None]) -> Tensor | float:
    """The 2-norm over all tensors, in fp32, left on the device."""
    dense = [t.coalesce().values() if t.is_sparse else t for t in tensors if t is not None]
    if not dense:
        return 0.0
    norms = torch._foreach_norm([t.detach().float() if t.dtype == torch.float16 else t.detach() for t in dense])
    first = norms[0].device
    total: Tensor = torch.linalg.vector_norm(torch.stack([n.float().to(first) for n in norms]))
    return total


def buffers(roots: Sequence[nn.Module]) -> list[list[Tensor]]:
    return [list(root.buffers()) for root in roots]


def unowned(optimizers: Sequence[Optimizer | None], roots: Sequence[nn.Module]) -> list[list[Tensor]]:
    """The parameters of each root that no optimizer moves: neither itself nor by masters."""
    owned: set[int] = set()
    for optimizer in optimizers:
        if optimizer is None:
            continue
        owned |= {id(p) for p in parameters(optimizer)}
        wrapper = getattr(getattr(optimizer, "_master_params_to_model_params", None), "__self__", None)
        for holder in (getattr(optimizer, "_amp_stash", None), wrapper):
            owned |= {id(p) for group in getattr(holder, "fp16_groups", ()) for p in group}
    return [
        [p for p in root.parameters() if id(p) not in owned and not isinstance(p, UninitializedParameter)]
        for root in roots
    ]


def take(optimizers: Sequence[Optimizer | None], roots: Sequence[nn.Module]) -> dict[str, Any]:
    """A copy of params, optimizer state, buffers, params of no optimizer and random state, on the CPU."""
    return {
        "optimizers": [
            None
            if optimizer is None
            else {
                "params": [_copy(p) for p in parameters(optimizer)],
                "state": [{k: _copy(v) for k, v in optimizer.state.get(p, {}).items()} for p in parameters(optimizer)],
                "groups": [
                    {k: v for k, v in group.items() if k != "params" and isinstance(v, (int, float, bool, tuple))}
                    for group in optimizer.param_groups
                ],
            }
            for optimizer in optimizers
        ],
        "buffers": [[_copy(b) for b in found] for found in buffers(roots)],
        "unowned": [[_copy(p) for p in found] for found in unowned(optimizers, roots)],
        "random": random_state(),
    }


def put(state: dict[str, Any], optimizers: Sequence[Optimizer | None], roots: Sequence[nn.Module]) -> list[str]:
    """Put a taken state in place, in the dtypes and on the devices found there; returns what did not fit.

    An optimizer of an earlier training may be gone on one side: Apex keeps those it was given alive.
    """
    misfits: list[str] = []
    taken = state["optimizers"]
    if len(taken) != len(optimizers):
        misfits.append(f"{len(taken)} optimizers were recorded and {len(optimizers)} are here")
    for number, (saved, optimizer) in enumerate(zip(taken, optimizers, strict=False)):
        if saved is not None and optimizer is not None:
            misfits += _put_optimizer(saved, optimizer, f"optimizer {number}")
    for saved_buffers, found in zip(state["buffers"], buffers(roots), strict=False):
        if [b.shape for b in saved_buffers] != [b.shape for b in found]:
            misfits.append("the buffers of the modules differ in number or shape")
            continue
        for source, target in zip(saved_buffers, found, strict=True):
            target.data.copy_(source)
    for saved_params, found in zip(state["unowned"], unowned(optimizers, roots), strict=False):
        if [p.shape for p in saved_params] == [
            p.shape for p in found
        ]:  # else a part of it is trained on one side alone
            for source, target in zip(saved_params, found, strict=True):
                target.data.copy_(source)
    set_random_state(state["random"])
    return misfits


def _put_optimizer(saved: dict[str, Any], optimizer: Optimizer, name: str) -> list[str]:
    here = parameters(optimizer)
    if [p.shape for p in saved["params"]] != [p.shape for p in here]:
        return [f"the parameters of {name} differ in number, order or shape"]
    for source, target in zip(saved["params"], here, strict=True):
        target.data.copy_(source)
    follow_masters(optimizer)
    group_of = [i for i, group in enumerate(optimizer.param_groups) for _ in group["params"]]
    for index, (values, parameter) in enumerate(zip(saved["state"], here, strict=True)):
        _put_state(values, optimizer, parameter, saved["groups"][min(group_of[index], len(saved["groups"]) - 1)])
    for source_group, group in zip(saved["groups"], optimizer.param_groups, strict=False):
        if "step" in source_group and "step" in group:
            group["step"] = source_group["step"]
        group["lr"] = source_group.get("lr", group["lr"])
    return []


def follow_masters(optimizer: Optimizer) -> None:
    """Let half weights follow their masters: under Apex O2, once those were made (at the first `scale_loss`), and
    under FP16_Optimizer, which leaves its copying function on the optimizer it wraps when it is recorded."""
    copy_back = getattr(optimizer, "_master_params_to_model_params", None)
    stash = getattr(optimizer, "_amp_stash", None)
    if callable(copy_back) and (stash is None or getattr(stash, "lazy_init_called", False)):
        copy_back()


def _put_state(values: dict[str, Any], optimizer: Optimizer, parameter: Tensor, group: dict[str, Any]) -> None:
    """Optimizer state of one parameter. Apex's fused optimizers count steps in the group, torch's in the state."""
    if not values:
        optimizer.state.pop(parameter, None)
        return
    values = dict(values)
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam)) and "step" not in values:
        values["step"] = torch.tensor(float(group.get("step", 0)))
    state = optimizer.state[parameter]
    known = set(state) or set(values)
    for key, value in values.items():
        if key not in known:
            continue
        if isinstance(value, Tensor) and isinstance(state.get(key), Tensor):
            state[key].copy_(value)
        elif isinstance(value, Tensor):
            state[key] = value.clone() if value.ndim == 0 else value.to(parameter.device, copy=True)
        else:
            state[key] = value


def random_state() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if on_cuda() else [],
        "python": random.getstate(),
        "numpy": numpy.random.get_state() if numpy is not None else None,
    }


def set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and on_cuda():
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate(state["python"])
    if state["numpy"] is not None and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(state["numpy"])


def on_cuda() -> bool:
    """Whether the program computes on a real GPU; the redirection to the CPU may answer for `torch.cuda`."""
    return torch.version.cuda is not None and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach()
        return value.to("cpu", torch.float32 if value.dtype == torch.float16 else value.dtype, copy=True)
    return value
