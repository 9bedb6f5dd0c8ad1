"""`torch.cuda`: availability, device selection, properties, seeds, profiling ranges. All of it describes one CPU."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from amp_migrate.shim.redirect import cuda_memory, placement
from amp_migrate.shim.redirect.patching import exists, replace

CAPABILITY = (8, 0)
CUDA_VERSION = "12.4"
CUDNN_VERSION = 90100
NCCL_VERSION = (2, 21, 5)


def device_count() -> int:
    """One device, or one per local rank under a launcher, so that `set_device(local_rank)` makes sense."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def index_of(device: Any = None, optional: bool = False, allow_cpu: bool = False) -> int:
    """Number of a device given as number, string, `torch.device` or None (the current one).

    Raises ValueError for another kind of device, as torch does.
    """
    if isinstance(device, int):
        return device
    place = placement.place_of(device)
    if place == "host" and allow_cpu:
        return -1
    if place not in (None, "cuda"):
        raise ValueError(f"Expected a cuda device, but got: {device}")
    index = None if device is None else torch.device(device).index
    return placement.current_index if index is None else index


def set_device(device: Any) -> None:
    """Make it the current device; a negative number changes nothing."""
    index = index_of(device)
    if index >= 0:
        placement.set_current_index(index)


class device:
    """`with torch.cuda.device(...)`: selects a device and restores the previous one."""

    def __init__(self, device: Any) -> None:
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = placement.current_index
        set_device(self.idx)

    def __exit__(self, *failure: object) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """`with torch.cuda.device_of(tensor)`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def device_properties(device: Any = None) -> SimpleNamespace:
    """The fields of a real properties object that programs read."""
    return SimpleNamespace(
        name=device_name(device),
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=cuda_memory.total(),
        multi_processor_count=os.cpu_count() or 1,
        is_integrated=True,
        is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        L2_cache_size=0,
        gcnArchName="",
        uuid=f"CPU-{platform.node()}",
    )


def device_name(device: Any = None) -> str:
    """A name nobody takes for a GPU's."""
    return f"CPU in place of CUDA ({platform.machine()})"


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def _rng_state(device: Any = "cuda") -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(state: torch.Tensor, device: Any = "cuda") -> None:
    torch.set_rng_state(state)


@contextlib.contextmanager
def _range(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


class _Cudart:
    """What `torch.cuda.cudart()` returns: the profiler's switches do nothing and report success."""

    cudaError = SimpleNamespace(success=0)

    def cudaProfilerStart(self) -> int:
        return 0

    def cudaProfilerStop(self) -> int:
        return 0

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        return cuda_memory.free(), cuda_memory.total()


class CUDAGraph:
    """Capturing a graph needs a device: making one raises RuntimeError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDA graphs cannot be captured where CUDA is redirected to the CPU")


def _no_graph(*args: Any, **kwargs: Any) -> Any:
    return CUDAGraph()


def _table() -> dict[str, Any]:
    cudart = _Cudart()
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_lazy_call": lambda call, **kwargs: call(),
        "_is_in_bad_fork": lambda: False,
        "device_count": device_count,
        "current_device": lambda: placement.current_index,
        "set_device": set_device,
        "device": device,
        "_DeviceGuard": device,
        "device_of": device_of,
        "_get_device_index": index_of,
        "synchronize": lambda device=None: None,
        "ipc_collect": lambda: None,
        "can_device_access_peer": lambda device, peer_device: True,
        "get_device_name": device_name,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_properties": device_properties,
        "get_arch_list": lambda: ["sm_80"],
        "get_gencode_flags": lambda: "-gencode compute=compute_80,code=sm_80",
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda debug_mode: None,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "utilization": lambda device=None: 0,
        "temperature": lambda device=None: 0,
        "power_draw": lambda device=None: 0,
        "clock_rate": lambda device=None: 0,
        "cudart": lambda: cudart,
        "check_error": lambda code: None,
        "current_blas_handle": lambda: 0,
        "manual_seed": _seed_all,
        "manual_seed_all": _seed_all,
        "seed": lambda: torch.default_generator.seed() and None,
        "seed_all": lambda: torch.default_generator.seed() and None,
        "initial_seed": lambda: torch.default_generator.initial_seed(),
        "get_rng_state": _rng_state,
        "get_rng_state_all": lambda: [_rng_state()] * device_count(),
        "set_rng_state": _set_rng_state,
        "set_rng_state_all": lambda states: torch.set_rng_state(next(iter(states))),
        "default_generators": (torch.default_generator,),
        "CUDAGraph": CUDAGraph,
        "graph": _no_graph,
        "graph_pool_handle": _no_graph,
        "make_graphed_callables": _no_graph,
        "is_current_stream_capturing": lambda: False,
        "nvtx.range_push": lambda msg: 0,
        "nvtx.range_pop": lambda: 0,
        "nvtx.range_start": lambda msg: 0,
        "nvtx.range_end": lambda range_id: None,
        "nvtx.mark": lambda msg: None,
        "nvtx.range": _range,
        "profiler.start": lambda: None,
        "profiler.stop": lambda: None,
        "profiler.profile": _range,
        "nccl.version": lambda: NCCL_VERSION,
        "nccl.is_available": lambda tensors: True,
    }


def install() -> None:
    """Replace the functions in `torch.cuda` and its submodules, and what tells about CUDA elsewhere."""
    for name, value in _table().items():
        replace(f"torch.cuda.{name}", value)
        for module in ("random", "graphs"):
            if exists(f"torch.cuda.{module}.{name}"):
                replace(f"torch.cuda.{module}.{name}", value)
    replace("torch.cuda._utils._get_device_index", index_of)
    replace("torch.version.cuda", CUDA_VERSION)
    replace("torch.backends.cudnn.version", lambda: CUDNN_VERSION)
    replace("torch.backends.cudnn.is_available", lambda: True)
    replace("torch.backends.cudnn.is_acceptable", lambda tensor: False)
    replace("torch.backends.cuda.is_built", lambda: True)
    replace("torch.autograd.profiler.emit_nvtx", _range)
    replace("torch._C._cuda_clearCublasWorkspaces", lambda: None)  # trainers call it as they end
    _replace_accelerator()


def _replace_accelerator() -> None:
    current = lambda: placement.current_index  # noqa: E731
    for name, value in {
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: placement.Device("cuda"),
        "device_count": device_count,
        "current_device_index": current,
        "current_device_idx": current,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "synchronize": lambda device=None: None,
    }.items():
        if exists(f"torch.accelerator.{name}"):
            replace(f"torch.accelerator.{name}", value)
