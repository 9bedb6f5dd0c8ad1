"""Casting networks, and copying between fp16 model parameters and fp32 masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .. import deprecated_warning

M = TypeVar("M", bound=nn.Module)

Params = Sequence[torch.Tensor]

DEPRECATION = (
    "apex.fp16_utils is deprecated and was removed from Apex. Use PyTorch AMP: https://pytorch.org/docs/stable/amp.html"
)

clip_grad_norm = nn.utils.clip_grad_norm_


class tofp16(nn.Module):
    """A module that casts its input to fp16."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input.half()


def BN_convert_float(module: M) -> M:
    """Put every affine batch norm layer of `module` back to fp32, in place."""
    for layer in module.modules():
        if isinstance(layer, _BatchNorm) and layer.affine:
            layer.float()
    return module


def network_to_half(network: nn.Module) -> nn.Sequential:
    """The network in fp16 with fp32 affine batch norm, behind a cast of its input."""
    return nn.Sequential(tofp16(), BN_convert_float(network.half()))


def convert_module(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast the floating parameters (with their gradients) and buffers that belong to `module` itself."""
    for param in module.parameters(recurse=False):
        if param.is_floating_point():
            param.data = param.data.to(dtype)
            if param.grad is not None:
                param.grad.data = param.grad.data.to(dtype)
    for buffer in module.buffers(recurse=False):
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(dtype)


def convert_network(network: M, dtype: torch.dtype) -> M:
    """Cast a network in place, leaving affine batch norm layers as they are."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.affine:
            continue
        convert_module(module, dtype)
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()
    return network


class FP16Model(nn.Module):
    """A network in fp16 with fp32 affine batch norm; positional inputs are cast to fp16."""

    def __init__(self, network: nn.Module) -> None:
        deprecated_warning(DEPRECATION)
        super().__init__()
        self.network = convert_network(network, dtype=torch.half)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.network(*(tensor.half() for tensor in inputs))


def prep_param_lists(model: nn.Module, flat_master: bool = False) -> tuple[list[nn.Parameter], list[torch.Tensor]]:
    """The trainable parameters of `model`, and fp32 masters of them.

    flat_master: one flat master for all of them.
    """
    model_params = [param for param in model.parameters() if param.requires_grad]
    if not flat_master:
        return model_params, [param.detach().clone().float().requires_grad_() for param in model_params]
    master = nn.Parameter(_flatten([param.data for param in model_params]).float())
    master.grad = torch.empty_like(master.data)
    return model_params, [master]


def model_grads_to_master_grads(model_params: Params, master_params: Params, flat_master: bool = False) -> None:
    """Copy gradients; a parameter without gradient leaves its master without one."""
    if flat_master:
        flat = _flatten([p.grad.data for p in model_params if p.grad is not None])
        assert master_params[0].grad is not None
        master_params[0].grad.data.copy_(flat)
        return
    for model, master in zip(model_params, master_params, strict=False):
        if model.grad is None:
            master.grad = None
        else:
            if master.grad is None:
                master.grad = torch.empty_like(master.data)
            master.grad.data.copy_(model.grad.data)


def master_params_to_model_params(model_params: Params, master_params: Params, flat_master: bool = False) -> None:
    """Copy values from the masters into the model."""
    masters = _unflatten(master_params[0].data, model_params) if flat_master else master_params
    for model, master in zip(model_params, masters, strict=False):
        model.data.copy_(master.data)


def _flatten(tensors: Params) -> torch.Tensor:
    """One vector of all elements, in the widest of their dtypes."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten(flat: torch.Tensor, like: Params) -> list[torch.Tensor]:
    pieces = torch.split(flat, [tensor.numel() for tensor in like])
    return [piece.view(tensor.size()) for piece, tensor in zip(pieces, like, strict=True)]


def to_python_float(t: Any) -> Any:
    """The number in a one-element tensor, or the first item of a sequence."""
    return t.item() if hasattr(t, "item") else t[0]
