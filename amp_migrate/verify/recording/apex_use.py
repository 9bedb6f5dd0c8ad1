"""Whether Apex did anything in a run: without it there is nothing that a migration could have changed."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amp_migrate.verify.recording.recorder import Recorder

# What a program calls of Apex; its layers and optimizers are found by their class. Decorators and registrations do
# nothing before `initialize`, and `scale_loss` nothing without it.
_CALLED = {
    "apex.amp": ("initialize", "init"),
    "apex.parallel": ("LARC", "Reducer", "convert_syncbn_model"),
    "apex.fp16_utils": (
        "FP16_Optimizer", "LossScaler", "DynamicLossScaler", "BN_convert_float", "clip_grad_norm", "convert_module",
        "convert_network", "master_params_to_model_params", "model_grads_to_master_grads", "network_to_half",
        "prep_param_lists",
    ),
}  # fmt: skip


def watch(recorder: Recorder) -> None:
    """Note in `recorder.apex_used` what the program calls. Parts of Apex that do not import are not called either."""
    for module_name, names in _CALLED.items():
        try:
            module = importlib.import_module(module_name)
        except Exception:
            continue
        for name in names:
            found = getattr(module, name, None)
            if inspect.isclass(found):
                setattr(found, "__init__", _noting(found.__init__, name, recorder))  # noqa: B010
            elif found is not None:
                setattr(module, name, _noting(found, name, recorder))


def used(recorder: Recorder) -> list[str]:
    """The names of what was called or is in use."""
    held: list[type] = [type(optimizer) for optimizer in recorder.live_optimizers]
    held += [type(module) for root in recorder.roots for module in root.modules()]
    return sorted({*recorder.apex_used, *(c.__name__ for c in held if c.__module__.partition(".")[0] == "apex")})


def _noting(function: Any, name: str, recorder: Recorder) -> Any:
    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        recorder.apex_used.add(name)
        return function(*args, **kwargs)

    return noting
