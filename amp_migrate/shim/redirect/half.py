"""float16 operations that CUDA has and the CPU lacks: computed in float32 and rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from amp_migrate.shim.redirect.patching import exists, words, wrap

FUNCTIONS = words(
    """
torch.round torch.polygamma torch.special.polygamma torch.Tensor.round torch.Tensor.polygamma torch.rrelu
torch.nn.functional.avg_pool3d torch.nn.functional.interpolate torch.nn.functional.multi_margin_loss
torch.nn.functional.multilabel_margin_loss torch.nn.functional.rrelu torch.nn.functional.multilabel_soft_margin_loss
torch.fft.fft torch.fft.fft2 torch.fft.fftn torch.fft.hfft torch.fft.hfft2 torch.fft.hfftn torch.fft.ifft
torch.fft.ifft2 torch.fft.ifftn torch.fft.ihfft torch.fft.ihfft2 torch.fft.ihfftn torch.fft.irfft torch.fft.irfft2
torch.fft.irfftn torch.fft.rfft torch.fft.rfft2 torch.fft.rfftn
"""
)

_WIDER = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}


def _converted(value: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in dtypes:
        return value.to(dtypes[value.dtype])
    if isinstance(value, (list, tuple)):
        return type(value)(_converted(item, dtypes) for item in value)
    return value


def _missing(error: RuntimeError) -> bool:
    text = str(error)
    return "not implemented for 'Half'" in text or "Unsupported dtype Half" in text or "'ComplexHalf'" in text


def rounded(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, and where it has no float16 kernel, `original` in float32 with its results rounded to float16."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if not _missing(error):
                raise
        wide = original(
            *_converted(args, _WIDER), **{name: _converted(value, _WIDER) for name, value in kwargs.items()}
        )
        return _converted(wide, _NARROWER)

    return call


def install() -> None:
    """Wrap the functions whose float16 kernel is missing on the CPU."""
    for name in FUNCTIONS:
        if exists(name):
            wrap(name, rounded)
