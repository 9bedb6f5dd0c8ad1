"""What training rarely meets, forced upon a run: infinite gradients, a loss that is nan, growth, short epochs, O0.

Everything is done where both programs have it alike: to the gradients that a backward pass has left, before Apex or a
GradScaler looks at them; to what the first forward of a window returns; to the scalers; to DataLoaders.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module
from torch.utils.data import DataLoader

from amp_migrate.verify.recording import state
from amp_migrate.verify.recording.forwards import checksum
from amp_migrate.verify.recording.recorder import EVAL_FORWARDS, Recorder
from amp_migrate.verify.recording.spec import Drill


def install(recorder: Recorder, drill: Drill) -> None:
    """Prepare what `drill` asks for; after all other hooks, so that the recorder sees what it does."""
    _steps(recorder)
    if drill.overflow_at is not None:
        _overflow(recorder, drill)
    if drill.nan_at is not None:
        _nan(recorder, drill.nan_at)
    if drill.growth_interval is not None:
        _growth(recorder, drill.growth_interval, drill.start_scale)
    if drill.epoch_batches is not None:
        _short_epochs(recorder, drill.epoch_batches)
    if drill.off:
        _off(recorder)
    if drill.evaluation:
        _evaluation(recorder)


def gradient_holders(optimizer: Optimizer) -> list[Tensor]:
    """The tensors whose `.grad` backward fills: the optimizer's params, or the half weights they are masters of."""
    own = state.parameters(optimizer)
    copy_back = getattr(optimizer, "_master_params_to_model_params", None)  # of FP16_Optimizer, if recorded under one
    for keeper in (getattr(optimizer, "_amp_stash", None), getattr(copy_back, "__self__", None)):
        halves = getattr(keeper, "all_fp16_params", None)
        masters = getattr(keeper, "all_fp32_from_fp16_params", None)
        if halves and masters:
            half_of = {id(master): half for master, half in zip(masters, halves, strict=True)}
            return [half_of.get(id(p), p) for p in own]
    return own


def _steps(recorder: Recorder) -> None:
    """Whether each step was taken from within `GradScaler.step`."""
    inside = 0
    original = torch.amp.GradScaler.step

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        inside += 1
        try:
            return original(*args, **kwargs)
        finally:
            inside -= 1

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        recorder.journal.write("stepped", window=recorder.attempts, by_scaler=inside > 0)

    torch.amp.GradScaler.step = step  # type: ignore[method-assign]
    optimizer_module.register_optimizer_step_pre_hook(before)


def _overflow(recorder: Recorder, drill: Drill) -> None:
    original = torch.autograd.backward
    before = 0  # backward passes up to the end of the window before
    window = -1

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal before, window
        if recorder.attempts != window:
            window, before = recorder.attempts, recorder.backwards
        first = recorder.backwards - before
        result = original(*args, **kwargs)
        if window == drill.overflow_at and first <= drill.backward < recorder.backwards - before:
            hit = [number for number in drill.optimizers if _make_infinite(recorder.optimizers[number])]
            recorder.journal.write("drilled", window=window, what="overflow", optimizers=hit)
        return result

    torch.autograd.backward = backward


def _make_infinite(optimizer: Optimizer | None) -> bool:
    """One element of the optimizer's first gradient."""
    for holder in [] if optimizer is None else gradient_holders(optimizer):
        if holder.grad is not None and holder.grad.numel():
            values = holder.grad._values() if holder.grad.is_sparse else holder.grad.detach()
            if values.numel():
                values[(0,) * values.ndim] = math.inf
                return True
    return False


def _nan(recorder: Recorder, window: int) -> None:
    """The output of the first training forward of the window: what is computed from it, and its loss, is nan."""
    depth, done = 0, False

    def enter(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1

    def leave(module: nn.Module, args: Any, output: Any) -> Any:
        nonlocal depth, done
        depth -= 1
        if depth or done or recorder.attempts != window or not torch.is_grad_enabled():
            return None
        spoiled = _spoiled(output)
        if spoiled is output:
            return None
        done = True
        recorder.journal.write("drilled", window=window, what="nan", optimizers=[])
        return spoiled

    nn.modules.module.register_module_forward_pre_hook(enter)
    nn.modules.module.register_module_forward_hook(leave, always_call=True)


def _spoiled(output: Any) -> Any:
    """The same structure with nan in its floating tensors; the very object when it has none that can be reached."""
    if isinstance(output, Tensor):
        return output * math.nan if output.is_floating_point() and output.requires_grad else output
    if isinstance(output, (list, tuple)):
        parts = [_spoiled(part) for part in output]
        if all(new is old for new, old in zip(parts, output, strict=True)):
            return output
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    if isinstance(output, Mapping):
        changed = {key: new for key, old in output.items() if (new := _spoiled(old)) is not old}
        if not changed:
            return output
        other: Any = copy.copy(output)
        for key, value in changed.items():
            other[key] = value
        return other
    held = getattr(output, "__dict__", None)
    if isinstance(held, dict) and not isinstance(output, (nn.Module, type)):
        changed = {
            key: new for key, old in held.items() if isinstance(old, Tensor) and (new := _spoiled(old)) is not old
        }
        if changed:
            other = copy.copy(output)
            for key, value in changed.items():
                object.__setattr__(other, key, value)
            return other
    return output


def _growth(recorder: Recorder, interval: int, start: float | None) -> None:
    known = 0

    def before(module: nn.Module, args: Any) -> None:
        nonlocal known
        for scaler in recorder.scalers[known:]:
            config = scaler.config()
            if config["enabled"] and config["dynamic"]:
                scaler.grow_after(interval)
                if start is not None:
                    scaler.put(start, 0)
                recorder.journal.write("drilled", window=recorder.attempts, what="growth", optimizers=[])
        known = len(recorder.scalers)

    nn.modules.module.register_module_forward_pre_hook(before)


def _short_epochs(recorder: Recorder, batches: int) -> None:
    original = DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:
        recorder.journal.write("drilled", window=recorder.attempts, what="epoch", optimizers=[])
        return itertools.islice(original(self), batches)

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign, assignment]


def _off(recorder: Recorder) -> None:
    try:
        from apex import amp  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return
    original = amp.initialize
    signature = inspect.signature(original)
    follow = ("cast_model_type", "patch_torch_functions", "keep_batchnorm_fp32", "master_weights", "loss_scale")

    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.arguments["opt_level"] = "O0"
        for name in follow:  # each at the default of O0
            call.arguments.pop(name, None)
        recorder.journal.write("drilled", window=recorder.attempts, what="off", optimizers=[])
        return original(*call.args, **call.kwargs)

    amp.initialize = initialize
    frontend = getattr(amp, "frontend", None)
    if frontend is not None and hasattr(frontend, "initialize"):
        frontend.initialize = initialize


def _evaluation(recorder: Recorder) -> None:
    """Write down what each whole forward returns, and end the run after EVAL_FORWARDS."""
    depth = seen = 0
    concerned = False

    def enter(module: nn.Module, args: Any) -> None:
        nonlocal depth, concerned
        depth += 1
        if depth == 1:
            concerned = recorder.concerns(module, args)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth, seen
        depth -= 1
        if depth or not concerned:
            return
        seen += 1
        recorder.journal.write(
            "evaluated",
            root=type(module).__name__,
            training=module.training,
            values=checksum(output),
            dtypes=sorted({str(t.dtype).removeprefix("torch.") for t in _floats(output)}),
        )
        if seen >= EVAL_FORWARDS:
            recorder.stop("evaluated")

    nn.modules.module.register_module_forward_pre_hook(enter)
    nn.modules.module.register_module_forward_hook(leave, always_call=True)


def _floats(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (list, tuple)) else ()
    return [tensor for value in values for tensor in _floats(value)]
