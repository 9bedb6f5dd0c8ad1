"""`torch.distributed` over gloo for programs that ask for nccl, and the wrappers of models that name device numbers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from amp_migrate.shim.redirect import placement
from amp_migrate.shim.redirect.patching import exists, replace, wrap
from amp_migrate.shim.redirect.tensors import move

_asked_for: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _without_nccl(backend: Any) -> Any:
    """gloo instead of nccl, also in "cpu:gloo,cuda:nccl"; any other backend is the program's business."""
    return "gloo" if backend is None or "nccl" in str(backend) else backend


def _init_process_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        original(_without_nccl(backend), *args, **kwargs)
        _asked_for[dist.group.WORLD] = str(backend or "nccl")

    return init_process_group


def _new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        group = original(ranks, timeout, None if backend is None else _without_nccl(backend), None, **kwargs)
        if not isinstance(group, int):  # a rank outside the group gets a number
            _asked_for[group] = str(backend or _asked_for.get(dist.group.WORLD, "nccl"))
        return group

    return new_group


def _get_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_backend(group: Any = None) -> str:
        actual = original(group)
        asked = _asked_for.get(dist.group.WORLD if group is None else group, actual)
        return "nccl" if "nccl" in asked else actual

    return get_backend


def _averaging(original: Callable[..., Any]) -> Callable[..., Any]:
    # gloo cannot average
    def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op != dist.ReduceOp.AVG:
            return original(tensor, op, group, async_op)
        original(tensor, dist.ReduceOp.SUM, group)
        tensor.div_(dist.get_world_size(group))
        return _Done() if async_op else None

    return all_reduce


class _Done:
    """The handle of a collective that has finished."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _barrier(original: Callable[..., Any]) -> Callable[..., Any]:
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return original(group, async_op)

    return barrier


def _on_one_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        original(self, module, [placement.current_index], None, dim)

    return __init__


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return move(value, "cuda")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(item)) for key, item in value.items())
    return value


def _scatter(self: Any, inputs: Any, kwargs: Any, device_ids: Any) -> tuple[Any, Any]:
    return (_moved(inputs),), (_moved(kwargs or {}),)


def _data_parallel(
    module: Any, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*_moved(inputs), **_moved(module_kwargs or {}))


def install() -> None:
    """Replace the entry points of `torch.distributed`, and `DataParallel`'s scattering over several devices."""
    wrap("torch.nn.parallel.DataParallel.__init__", _on_one_device)
    wrap("torch.nn.parallel.DataParallel.scatter", lambda original: _scatter)
    replace("torch.nn.parallel.data_parallel", _data_parallel)
    if not dist.is_available():
        return
    wrappers = {
        "init_process_group": _init_process_group,
        "new_group": _new_group,
        "all_reduce": _averaging,
        "barrier": _barrier,
    }
    for name, make in wrappers.items():
        wrap(f"torch.distributed.{name}", make)
    # Internals keep asking the real question; programs are told the backend they chose.
    wrap("torch.distributed.get_backend", _get_backend)
    for name in ("torch.distributed.is_nccl_available", "torch.distributed.distributed_c10d.is_nccl_available"):
        if exists(name):
            replace(name, lambda: True)
