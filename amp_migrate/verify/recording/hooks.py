"""Where the recorder listens: torch's global hooks, and a few of its functions wrapped before the script sees them.

Public hooks: `register_module_forward_pre_hook`, `register_optimizer_step_pre_hook`/`_post_hook`. Wrapped because
there is no hook: `torch.autograd.backward`/`grad`, the clip functions, `GradScaler`'s methods, `amp.scale_loss`,
`torch.save`/`load`, and `Optimizer.__init__`, which tells in which order optimizers were made.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_module

from amp_migrate.verify.recording import state
from amp_migrate.verify.recording.census import COMPOSED, Census
from amp_migrate.verify.recording.recorder import Recorder
from amp_migrate.verify.recording.scalers import ApexScaler, NativeScaler


def install(recorder: Recorder) -> None:
    """Hook everything but Apex, which is only there once the shim is in place."""
    _modules(recorder)
    _optimizers(recorder)
    _backward(recorder)
    _clipping(recorder)
    _grad_scaler(recorder)
    _autocast(recorder)
    _compiling(recorder)
    if recorder.census is not None:
        _composed(recorder.census)


def _composed(census: Census) -> None:
    """Let the census know what a matrix product belongs to."""
    for name in COMPOSED:
        original = getattr(torch, name)

        def wrapped(*args: Any, _original: Any = original, _name: str = name, **kwargs: Any) -> Any:
            outer, census.within = census.within, census.within or _name
            try:
                return _original(*args, **kwargs)
            finally:
                census.within = outer

        functools.update_wrapper(wrapped, original)
        for owner in (torch, torch.functional):
            if getattr(owner, name, None) is original:
                setattr(owner, name, wrapped)


def _modules(recorder: Recorder) -> None:
    depth = 0

    def enter(module: nn.Module, args: Any) -> None:
        nonlocal depth
        depth += 1
        if depth == 1 and recorder.concerns(module, args):
            recorder.before_root_forward(module, args)
            recorder.inside_module(True)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            recorder.inside_module(False)
            recorder.after_root_forward(output)

    nn.modules.module.register_module_forward_pre_hook(enter)
    nn.modules.module.register_module_forward_hook(leave, always_call=True)


def _optimizers(recorder: Recorder) -> None:
    original = Optimizer.__init__
    running: list[int] = []  # a subclass may call the step of its base: one attempt

    @functools.wraps(original)
    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        recorder.add_optimizer(self)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        running.append(id(optimizer))
        if running.count(id(optimizer)) == 1:
            recorder.before_step(optimizer)

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        running.remove(id(optimizer))
        if id(optimizer) not in running:
            recorder.after_step(optimizer)

    Optimizer.__init__ = init  # type: ignore[method-assign]
    for owner, counted in ((Optimizer, "optimizer"), (nn.Module, "module")):
        setattr(owner, "zero_grad", _counting(owner.zero_grad, recorder, counted))  # noqa: B010
    optimizer_module.register_optimizer_step_pre_hook(before)
    optimizer_module.register_optimizer_step_post_hook(after)


def _counting(
    function: Callable[..., Any], recorder: Recorder, name: str, owner: Optimizer | None = None
) -> Callable[..., Any]:  # fmt: skip
    """`owner` is given where the function is bound to it."""

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        recorder.zero_grads[name] += 1
        for optimizer in _of(args[0] if owner is None else owner, recorder) if recorder.passes else ():
            recorder.cleared(optimizer)
        return function(*args, **kwargs)

    counted.counts_for_amp_migrate = True  # type: ignore[attr-defined]
    return counted


def _of(owner: Optimizer | nn.Module, recorder: Recorder) -> list[Optimizer]:
    """The optimizers that have no other gradients than those of `owner`."""
    if isinstance(owner, Optimizer):
        return [owner]
    held = {id(p) for p in owner.parameters()}
    return [o for o in recorder.live_optimizers if all(id(p) in held for p in state.parameters(o))]


def _backward(recorder: Recorder) -> None:
    def wrap(function: Callable[..., Any], losses: bool) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            tensors = args[0] if args else kwargs.get("tensors" if losses else "outputs")
            roots = [tensors] if isinstance(tensors, Tensor) else list(tensors or ())
            recorder.before_backward(roots if losses else [])
            try:
                return function(*args, **kwargs)
            finally:
                recorder.after_backward()

        return wrapped

    torch.autograd.backward = wrap(torch.autograd.backward, losses=True)
    torch.autograd.grad = wrap(torch.autograd.grad, losses=False)


def _clipping(recorder: Recorder) -> None:
    utils = torch.nn.utils
    for name, kind, keyword in (
        ("clip_grad_norm_", "norm", "max_norm"),
        ("clip_grad_norm", "norm", "max_norm"),
        ("clip_grad_value_", "value", "clip_value"),
    ):
        original = getattr(utils, name)

        def clip(
            *args: Any, _original: Any = original, _kind: str = kind, _keyword: str = keyword, **kwargs: Any
        ) -> Any:
            returned = _original(*args, **kwargs)
            limit = kwargs[_keyword] if _keyword in kwargs else args[1]
            recorder.clipped(_kind, float(limit), returned.detach() if isinstance(returned, Tensor) else returned)
            return returned

        functools.update_wrapper(clip, original)
        setattr(utils, name, clip)
        if hasattr(utils.clip_grad, name):
            setattr(utils.clip_grad, name, clip)


def _grad_scaler(recorder: Recorder) -> None:
    scaler_class = torch.amp.GradScaler
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    original_init, original_scale = scaler_class.__init__, scaler_class.scale
    original_unscale, original_step, original_update = scaler_class.unscale_, scaler_class.step, scaler_class.update
    inside = 0  # step() unscales by itself: not the program's own unscale_

    def number(scaler: Any) -> int:
        if scaler not in numbers:
            numbers[scaler] = recorder.add_scaler(NativeScaler(scaler))
        return numbers[scaler]

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if recorder.spec.full_precision:
            kwargs["enabled"] = False
        original_init(self, *args, **kwargs)
        number(self)

    @functools.wraps(original_scale)
    def scale(self: Any, outputs: Any) -> Any:
        result = original_scale(self, outputs)
        if self.is_enabled():
            current = NativeScaler(self).scale()
            pairs = [(result, outputs)] if isinstance(result, Tensor) else zip(result, outputs, strict=False)
            for scaled, loss in pairs:
                if isinstance(scaled, Tensor):
                    recorder.scaled(scaled, loss, number(self), current)
        return result

    @functools.wraps(original_unscale)
    def unscale(self: Any, optimizer: Optimizer) -> None:
        original_unscale(self, optimizer)
        if not inside and self.is_enabled():
            recorder.unscaled(number(self))

    @functools.wraps(original_step)
    def step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        before = recorder.attempts
        inside += 1
        try:
            result = original_step(self, optimizer, *args, **kwargs)
        finally:
            inside -= 1
        if recorder.attempts == before:  # the optimizer's own step was not reached
            recorder.skipped(optimizer)
        return result

    @functools.wraps(original_update)
    def update(self: Any, new_scale: Any = None) -> None:
        original_update(self, new_scale)
        if self.is_enabled():
            recorder.updated(number(self), new_scale)

    for name, function in (("__init__", init), ("scale", scale), ("unscale_", unscale), ("step", step)):
        setattr(scaler_class, name, function)
    scaler_class.update = update  # type: ignore[method-assign]


def _autocast(recorder: Recorder) -> None:
    """Note the dtypes of autocast regions; in the fp32 run, switch every region off."""
    original = torch.autocast.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if recorder.spec.full_precision:
            if len(args) > 2:
                args = (*args[:2], False, *args[3:])
            else:
                kwargs["enabled"] = False
        original(self, *args, **kwargs)
        if getattr(self, "_enabled", True):
            recorder.autocast_dtypes.add(str(getattr(self, "fast_dtype", "")).removeprefix("torch."))

    torch.autocast.__init__ = init  # type: ignore[method-assign]


def _compiling(recorder: Recorder) -> None:
    """Note `torch.compile` where it does nothing, so that the report can say so."""
    if os.environ.get("TORCHDYNAMO_DISABLE") != "1":
        return
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        recorder.journal.write("uncompiled")
        return original(*args, **kwargs)

    torch.compile = compile


def install_apex(recorder: Recorder) -> None:
    """Wrap `apex.amp.scale_loss`; a program that never uses Apex pays one failed import."""
    try:
        from apex import amp  # type: ignore[import-not-found, unused-ignore]
        from apex.amp._amp_state import _amp_state  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return
    _fp16_optimizer(recorder)
    original = amp.scale_loss
    numbers: dict[int, int] = {}

    def number(scaler: Any) -> int:
        if id(scaler) not in numbers:
            numbers[id(scaler)] = recorder.add_scaler(ApexScaler(scaler))
        return numbers[id(scaler)]

    def made() -> list[Any]:
        return list(getattr(_amp_state, "loss_scalers", ()))

    initialize = amp.initialize

    @functools.wraps(initialize)
    def initialized(*args: Any, **kwargs: Any) -> Any:
        result = initialize(*args, **kwargs)
        for scaler in made():
            number(scaler)
        for optimizer in recorder.live_optimizers:  # O2 gives its optimizers a zero_grad of their own
            own = vars(optimizer).get("zero_grad")
            if own is not None and not getattr(own, "counts_for_amp_migrate", False):
                optimizer.zero_grad = _counting(own, recorder, "optimizer", optimizer)  # type: ignore[method-assign]
        properties = getattr(_amp_state, "opt_properties", None)
        if properties is not None and properties.enabled:
            recorder.journal.write("apex", opt_level=str(properties.opt_level), masters=bool(properties.master_weights))
        return result

    @contextmanager
    def scale_loss(loss: Any, optimizers: Any, loss_id: int = 0, *args: Any, **kwargs: Any) -> Iterator[Any]:
        scalers = made()
        scaler = scalers[loss_id] if loss_id < len(scalers) else None
        with original(loss, optimizers, loss_id, *args, **kwargs) as scaled:
            if scaler is not None and scaled is not loss and isinstance(scaled, Tensor):
                recorder.scaled(scaled, loss, number(scaler), ApexScaler(scaler).scale())
            recorder.inside_scale_loss = True
            try:
                yield scaled
            finally:
                recorder.inside_scale_loss = False
        for optimizer in optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]:
            if getattr(getattr(optimizer, "_amp_stash", None), "already_patched", False):
                _watch_skip(optimizer, recorder)

    functools.update_wrapper(scale_loss, original)
    amp.scale_loss, amp.initialize = scale_loss, initialized
    for module in ("handle", "frontend"):
        part = getattr(amp, module, None)
        for name, function in (("scale_loss", scale_loss), ("initialize", initialized)):
            if part is not None and hasattr(part, name):
                setattr(part, name, function)


def _fp16_optimizer(recorder: Recorder) -> None:
    """`apex.fp16_utils.FP16_Optimizer`: its own scaling, masters and skipping."""
    from apex.fp16_utils import FP16_Optimizer  # type: ignore[import-not-found, unused-ignore]

    original_init, original_backward, original_step = (
        FP16_Optimizer.__init__,
        FP16_Optimizer.backward,
        FP16_Optimizer.step,
    )
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        numbers[self] = recorder.add_scaler(ApexScaler(held_by=self))
        self.optimizer._master_params_to_model_params = self._master_params_to_model_params

    @functools.wraps(original_backward)
    def backward(self: Any, loss: Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder.scales_next(loss, numbers[self], recorder.scalers[numbers[self]].scale())
        return original_backward(self, loss, *args, **kwargs)

    @functools.wraps(original_step)
    def step(self: Any, closure: Any = None) -> Any:
        if self.overflow:
            recorder.skipped(self.optimizer)
        return original_step(self, closure)

    for name, function in (("__init__", init), ("backward", backward), ("step", step)):
        setattr(FP16_Optimizer, name, function)


def _watch_skip(optimizer: Any, recorder: Recorder) -> None:
    """Apex has put a step that skips into the optimizer for one call: report that call."""
    skip, armed = optimizer.step, recorder.backwards
    if getattr(skip, "reports_to_amp_migrate", False):
        return

    def step(*args: Any, **kwargs: Any) -> Any:
        result = skip(*args, **kwargs)  # puts the usual step back
        recorder.skipped(optimizer, late=recorder.backwards > armed)
        return result

    step.reports_to_amp_migrate = True  # type: ignore[attr-defined]
    optimizer.step = step
