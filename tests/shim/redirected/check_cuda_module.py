"""`torch.cuda` and what programs ask of it."""

from __future__ import annotations

import time

import pytest
import torch


def test_one_device_that_is_not_mistaken_for_a_gpu() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert "CPU" in torch.cuda.get_device_name(0)
    assert torch.cuda.get_device_capability() >= (7, 0)
    assert torch.cuda.get_device_properties("cuda:0").total_memory > 0
    assert torch.cuda.is_bf16_supported()
    assert int(torch.version.cuda.split(".")[0]) >= 11
    assert torch.backends.cudnn.version() >= 7000
    assert torch.backends.cudnn.is_available()
    assert torch.cuda.nccl.version() > (2, 0)


def test_a_host_device_is_no_cuda_device() -> None:
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.set_device("cpu")


def test_flags_can_be_set() -> None:
    for flag in ("benchmark", "deterministic", "enabled", "allow_tf32"):
        for value in (False, True):
            setattr(torch.backends.cudnn, flag, value)
            assert getattr(torch.backends.cudnn, flag) is value
    torch.backends.cudnn.deterministic = False
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def test_streams_have_their_own_identity_and_order() -> None:
    default = torch.cuda.default_stream()
    side, other = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    assert side != other
    assert side.cuda_stream != other.cuda_stream
    assert torch.cuda.current_stream() is default
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        with torch.cuda.stream(None), torch.cuda.stream(other):
            assert torch.cuda.current_stream() is other
        assert torch.cuda.current_stream() is side
    assert torch.cuda.current_stream() is default
    side.wait_stream(default)
    default.wait_event(side.record_event())
    torch.zeros(2).record_stream(side)
    assert side.query()
    torch.cuda.synchronize()


def test_events_measure_milliseconds_and_refuse_to_guess() -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    time.sleep(0.02)
    end.record()
    assert 15 < start.elapsed_time(end) < 10_000
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)


def test_memory_statistics_are_those_of_the_process() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = torch.ones(64 * 2**20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() >= before + 2**25
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() - 2**20
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] > before
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    assert "bytes" in torch.cuda.memory_summary()
    torch.cuda.empty_cache()
    assert block.numel() == 64 * 2**20


def test_ranges_and_profiler_switches_do_nothing() -> None:
    with torch.cuda.nvtx.range("step"), torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx():
        torch.cuda.nvtx.range_push("forward")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("here")
        assert torch.cuda.cudart().cudaProfilerStart() == 0
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()


def test_graphs_are_refused() -> None:
    with pytest.raises(RuntimeError, match="graphs"):
        torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()


def test_accelerator_agrees() -> None:
    if not hasattr(torch, "accelerator"):  # before torch 2.6
        return
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 1


# Submodules, base classes and storages; and questions about a driver, a compiler or an allocator that is not there.
UNTOUCHED = """
export_dot export_graph_data graph_annotations
amp graphs jiterator memory nccl nvtx profiler random sparse streams tunable CudaError DeferredCudaCallError
CUDAPluggableAllocator MemPool use_mem_pool GreenContext caching_allocator_alloc caching_allocator_delete
caching_allocator_disabled caching_allocator_enable change_current_allocator get_allocator_backend
get_stream_from_external current_solver_handle cudaStatus has_half has_magma host_memory_stats
host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats reset_peak_host_memory_stats
"""


def test_every_public_name_is_replaced_or_listed() -> None:
    from amp_migrate.shim.redirect.patching import originals

    replaced = {name.removeprefix("torch.cuda.") for name in originals}
    public = {name for name in torch.cuda.__all__ if not name.endswith("Storage")}
    assert public - replaced <= set(UNTOUCHED.split())
