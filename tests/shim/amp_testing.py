"""What the amp tests share: the shim as `apex`, CPU tensors taken for device tensors, and a clean torch afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import amp_migrate.shim

amp_migrate.shim.install(apex="shim", device="cuda")

import apex  # noqa: E402
from apex import _device, amp  # noqa: E402
from apex.amp import _amp_state  # noqa: E402
from apex.amp.handle import AmpHandle  # noqa: E402

# What initialize leaves behind: nothing of one test may reach the next.
_STATE = ("opt_properties", "loss_scalers", "min_loss_scale", "max_loss_scale", "handle")


@contextmanager
def fresh_amp() -> Iterator[None]:
    handles: list[AmpHandle] = []

    def remember(handle: AmpHandle, *args: Any, **kwargs: Any) -> None:
        handles.append(handle)
        construct(handle, *args, **kwargs)

    construct = AmpHandle.__init__
    AmpHandle.__init__ = remember  # type: ignore[method-assign]
    previous = _device.set_device_predicate(lambda tensor: not getattr(tensor, "on_host", False))
    try:
        yield
    finally:
        AmpHandle.__init__ = construct  # type: ignore[method-assign]
        for handle in reversed(handles):  # each initialize wraps the wrappers of the one before
            handle._deactivate()
        amp.init(enabled=False)
        for name in _STATE:
            if hasattr(_amp_state, name):
                delattr(_amp_state, name)
        _amp_state.verbosity = 1
        _amp_state.hard_override = False
        _amp_state.allow_incoming_model_not_fp32 = False
        _device.set_device_predicate(previous)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that counts as lying on the host."""
    tensor.on_host = True  # type: ignore[attr-defined]
    return tensor


class Net(torch.nn.Module):
    """A linear layer behind batch norm; remembers the dtype of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(4)
        self.fc = torch.nn.Linear(4, 2)
        self.seen: torch.dtype | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.dtype
        return self.fc(self.bn(x).to(self.fc.weight.dtype))


def initialize(model: Any, optimizer: Any = None, opt_level: str = "O1", **options: Any) -> Any:
    options.setdefault("verbosity", 0)
    return amp.initialize(model, optimizer, opt_level=opt_level, **options)


def sgd(model: torch.nn.Module, lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


__all__ = ["Net", "_amp_state", "amp", "apex", "fresh_amp", "initialize", "on_host", "sgd"]
