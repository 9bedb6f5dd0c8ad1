"""`amp.initialize`, its options, and the saved state: https://nvidia.github.io/apex/amp.html"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from .. import deprecated_warning
from ._amp_state import _amp_state, maybe_print, warn_or_err
from ._initialize import prepare
from .amp import DEPRECATION


class Properties:
    """The options in force, as `_amp_state.opt_properties`.

    They live in `options` and are read and set as attributes; setting one checks it against the opt level and
    raises RuntimeError (with `_amp_state.hard_override`: prints) where the two contradict each other.
    """

    options: dict[str, Any]

    def __init__(self) -> None:
        self.__dict__["options"] = {
            "enabled": False,
            "opt_level": None,
            "cast_model_type": None,
            "patch_torch_functions": False,
            "keep_batchnorm_fp32": None,
            "master_weights": None,
            "loss_scale": 1.0,
        }

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.options:
            super().__setattr__(name, value)
            return
        contradiction = self._contradiction(name, value)
        if contradiction:
            warn_or_err(contradiction)
        if name == "loss_scale":
            value = value if value == "dynamic" else float(value)
        elif name == "keep_batchnorm_fp32":
            value = _optional_bool(name, value)
        self.options[name] = value

    def _contradiction(self, name: str, value: Any) -> str | None:
        if name == "patch_torch_functions" and value and self.opt_level != "O1":
            return "patch_torch_functions=True can only be had by selecting opt_level='O1'."
        if self.opt_level != "O1" or value is None:
            return None
        if name == "cast_model_type" and value is not False and value is not torch.float32:
            return (
                "O1 casts around torch functions and leaves the model weights in FP32; to cast the model use "
                f"opt_level='O2' or 'O3'. cast_model_type was {value}"
            )
        if name == "keep_batchnorm_fp32":
            return (
                "With opt_level O1 batchnorm runs in FP32 anyway, so keep_batchnorm_fp32 should be None. "
                f"keep_batchnorm_fp32 was {value}"
            )
        if name == "master_weights":
            return "master_weights makes no sense with O1, where the model weights themselves are FP32."
        return None


def _optional_bool(name: str, value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value in ("True", "False"):
        return bool(value == "True")
    raise AssertionError(f"{name} must be a boolean, the string 'True' or 'False', or None, not {value!r}")


_LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "O0": ("plain FP32", {"cast_model_type": torch.float32, "master_weights": False}),
    "O1": ("FP16 casts around torch functions", {"patch_torch_functions": True, "loss_scale": "dynamic"}),
    "O2": (
        "FP16 model, FP32 batchnorm and FP32 master weights",
        {
            "cast_model_type": torch.float16,
            "keep_batchnorm_fp32": True,
            "master_weights": True,
            "loss_scale": "dynamic",
        },
    ),
    "O3": (
        "pure FP16",
        {"cast_model_type": torch.float16, "keep_batchnorm_fp32": False, "master_weights": False},
    ),
}


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | bool | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
) -> Any:
    """Prepare models and optimizers for mixed precision and return them in the shape they came in.

    models, optimizers: one, or a list; `optimizers=None` (inference) returns the models alone.
    enabled: False returns the same objects and makes every later amp call a no-op.
    opt_level: "O0" fp32, "O1" casts around functions (default), "O2" fp16 model with fp32 masters, "O3" fp16.
    cast_model_type ... loss_scale: override what the level sets; None keeps it. `loss_scale` is a number, a
        numeric string, or "dynamic".
    cast_model_outputs: dtype of what the models return (default: fp32 where the models are cast).
    num_losses: number of loss scalers, chosen by `scale_loss(loss_id=...)`.
    verbosity: 0 silences amp, 2 prints every cast.
    min_loss_scale, max_loss_scale: bounds of a dynamic scale (defaults none and 2**24).

    Raises RuntimeError for an unknown level, options that contradict it, models that are fp16, not on CUDA or
    already wrapped for parallel training, and optimizers seen before; TypeError for other containers.
    https://nvidia.github.io/apex/amp.html#apex.amp.initialize
    """
    deprecated_warning(DEPRECATION)
    properties = _amp_state.opt_properties = Properties()
    _amp_state.verbosity = verbosity
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    if not torch.backends.cudnn.enabled:
        raise RuntimeError("Amp requires torch.backends.cudnn.enabled = True")
    if opt_level not in _LEVELS:
        raise RuntimeError(
            f"Unexpected optimization level {opt_level}. Options are 'O0', 'O1', 'O2', 'O3' "
            "(the letter O, not the number zero)."
        )
    brief, defaults = _LEVELS[opt_level]
    properties.options.update(enabled=True, opt_level=opt_level, **defaults)
    overrides = {
        "enabled": enabled,
        "cast_model_type": cast_model_type,
        "patch_torch_functions": patch_torch_functions,
        "keep_batchnorm_fp32": keep_batchnorm_fp32,
        "master_weights": master_weights,
        "loss_scale": loss_scale,
    }
    maybe_print(f"amp {opt_level}: {brief}", True)
    for name, value in overrides.items():
        if value is not None:
            setattr(properties, name, value)
    for name, value in properties.options.items():
        maybe_print(f"  {name:21} = {value}", True)
    _amp_state.min_loss_scale = min_loss_scale
    _amp_state.max_loss_scale = max_loss_scale
    return prepare(models, optimizers, properties, num_losses, cast_model_outputs)


def state_dict(destination: dict[str, Any] | None = None) -> dict[str, Any]:
    """The scale and the growth counter of every loss scaler, under `loss_scaler0`, `loss_scaler1`, ...

    AttributeError if `amp.initialize` has not run, or only with `enabled=False`.
    """
    if destination is None:
        destination = OrderedDict()
    for i, scaler in enumerate(_amp_state.loss_scalers):
        destination[f"loss_scaler{i}"] = {"loss_scale": scaler.loss_scale(), "unskipped": scaler._unskipped}
    return destination


def load_state_dict(state_dict: dict[str, Any]) -> None:
    """Restore what `state_dict` returned, entry by entry in order.

    Surplus entries are skipped and a differing count is printed; RuntimeError, after loading, for keys that
    are not loss scalers.
    """
    scalers = _amp_state.loss_scalers
    if len(state_dict) != len(scalers):
        print(f"Warning: state_dict contains {len(state_dict)} entries, while {len(scalers)} loss_scalers are used")
    saved = [entry for key, entry in state_dict.items() if "loss_scaler" in key]
    for scaler, entry in zip(scalers, saved, strict=False):
        scaler._loss_scale = entry["loss_scale"]
        scaler._unskipped = entry["unskipped"]
    if len(saved) > len(scalers):
        print(f"Skipping loss_scaler[{len(scalers)}] and later ones: num_losses was set to {len(scalers)}")
        return
    unexpected = [key for key in state_dict if "loss_scaler" not in key]
    if unexpected:
        names = ", ".join(f'"{key}"' for key in unexpected)
        raise RuntimeError(f"Error(s) in loading state_dict. Unexpected key(s) in state_dict: {names}.")
