"""The work behind `amp.initialize`: check and cast the models, patch the optimizers, make the scalers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from .._device import is_device_tensor, type_name
from ..fp16_utils.fp16util import convert_network
from ._amp_state import _amp_state, warn_or_err
from ._optimizers import is_instance_of, is_optimizer
from ._process_optimizer import process_optimizer
from .amp import init
from .handle import disable_casts
from .scaler import LossScaler

if TYPE_CHECKING:
    from .frontend import Properties

Caster = Callable[[Any], Any]


def prepare(
    models: Any, optimizers: Any, properties: Properties, num_losses: int, cast_model_outputs: torch.dtype | None
) -> Any:
    optimizer_list = _as_optimizer_list(optimizers)
    model_list = _as_model_list(models)
    _refuse_parallel_wrappers(model_list)
    if not _amp_state.allow_incoming_model_not_fp32:
        _require_fp32_on_device(model_list)

    if properties.cast_model_type:
        _cast_models(model_list, properties, cast_model_outputs or torch.float32)
        for optimizer in optimizer_list:
            # Loading its own state makes the optimizer cast existing per-parameter state to the new dtypes.
            optimizer.load_state_dict(optimizer.state_dict())
    elif cast_model_outputs is not None:
        for model in model_list:
            _patch_forward(model, None, _caster(cast_model_outputs))

    for optimizer in optimizer_list:
        process_optimizer(optimizer, properties)
    _amp_state.loss_scalers = [
        LossScaler(
            properties.loss_scale,
            min_loss_scale=_amp_state.min_loss_scale,
            max_loss_scale=_amp_state.max_loss_scale,
        )
        for _ in range(num_losses)
    ]
    if properties.patch_torch_functions:
        init(loss_scale=properties.loss_scale, verbose=_amp_state.verbosity == 2)
        for optimizer in optimizer_list:
            _step_without_casts(optimizer)

    returned_models = models if isinstance(models, list) else model_list[0]
    if isinstance(optimizers, list):
        return returned_models, optimizers
    return (returned_models, optimizer_list[0]) if optimizer_list else returned_models


def _as_optimizer_list(optimizers: Any) -> list[Any]:
    if optimizers is None:
        return []
    if is_optimizer(optimizers):
        return [optimizers]
    candidates: list[Any] = optimizers if isinstance(optimizers, list) else [optimizers]
    for candidate in candidates:
        if is_instance_of(candidate, "fp16_utils.fp16_optimizer", "FP16_Optimizer"):
            raise RuntimeError(
                "An incoming optimizer is an instance of apex.fp16_utils.FP16_Optimizer: amp.initialize takes bare "
                "PyTorch or Apex fused optimizers."
            )
    if candidates is not optimizers:
        raise TypeError("optimizers must be either a single optimizer or a list of optimizers.")
    return list(candidates)


def _as_model_list(models: Any) -> list[torch.nn.Module]:
    if isinstance(models, torch.nn.Module):
        return [models]
    if isinstance(models, list):
        return list(models)
    raise TypeError("models must be either a single model or a list of models.")


def _refuse_parallel_wrappers(models: list[torch.nn.Module]) -> None:
    # Apex meant to refuse its own DistributedDataParallel as well, but its test for it never held.
    for model in models:
        for wrapper in (torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.DataParallel):
            if isinstance(model, wrapper):
                raise RuntimeError(
                    f"Incoming model is an instance of torch.nn.parallel.{wrapper.__name__}. Parallel wrappers "
                    "should only be applied AFTER amp.initialize has returned the model(s)."
                )


def _require_fp32_on_device(models: list[torch.nn.Module]) -> None:
    for model in models:
        _check_tensors("param", model.named_parameters())
        _check_tensors("buffer", model.named_buffers())


def _check_tensors(kind: str, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in named:
        if not tensor.is_floating_point():
            continue
        found = f"Found {kind} {name} with type {type_name(tensor)}, expected torch.cuda.FloatTensor. "
        if tensor.dtype == torch.float16:
            warn_or_err(found + "Do not call .half() on the model before amp.initialize, at any opt level.")
        elif not is_device_tensor(tensor):
            warn_or_err(found + "Move the model to a CUDA device, as with model.to('cuda'), before amp.initialize.")


def _cast_models(models: list[torch.nn.Module], properties: Properties, output_type: torch.dtype) -> None:
    dtype = properties.cast_model_type
    for model in models:
        if properties.keep_batchnorm_fp32:
            convert_network(model, dtype)
        else:
            model.to(dtype)
        _patch_forward(model, _caster(dtype), _caster(output_type))
        for module in model.modules():
            module._register_state_dict_hook(_save_as_fp32)  # type: ignore[no-untyped-call]


def _save_as_fp32(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    for key, value in state_dict.items():
        if isinstance(value, torch.Tensor) and value.dtype == torch.float16:
            state_dict[key] = value.to(torch.float32)


def _patch_forward(model: torch.nn.Module, cast_input: Caster | None, cast_output: Caster) -> None:
    """Shadow `model.forward` on the instance.

    The new one is bound to this model for good: a deep copy of the model still runs the original's forward, and
    the model as a whole cannot be pickled.
    """
    forward = model.forward

    def amp_forward(*args: Any, **kwargs: Any) -> Any:
        if cast_input is not None:
            args, kwargs = apply_to_tensors(args, cast_input), apply_to_tensors(kwargs, cast_input)
        return apply_to_tensors(forward(*args, **kwargs), cast_output)

    model.forward = amp_forward


def _caster(dtype: torch.dtype) -> Caster:
    def to_type(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not is_device_tensor(value):
                warnings.warn("An input tensor was not cuda.", stacklevel=2)
            if not value.is_floating_point():
                return value
        return value.to(dtype)

    return to_type


def apply_to_tensors(value: Any, fn: Caster) -> Any:
    """Apply `fn` to the tensors in nested containers, and to any object with a `.to` method: a program's own
    batch class casts itself. Mappings come back as plain dicts."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, str) or _is_numpy_array(value):
        return value
    if hasattr(value, "to"):
        return fn(value)
    if isinstance(value, Mapping):
        return {apply_to_tensors(k, fn): apply_to_tensors(v, fn) for k, v in value.items()}
    if isinstance(value, Iterable):
        return type(value)(apply_to_tensors(item, fn) for item in value)  # type: ignore[call-arg]
    return value


def _is_numpy_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _step_without_casts(optimizer: Any) -> None:
    step = optimizer.step

    def fp32_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with disable_casts():
            return step(*args, **kwargs)

    optimizer.step = MethodType(fp32_step, optimizer)
