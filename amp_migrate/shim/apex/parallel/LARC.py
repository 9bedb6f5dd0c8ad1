"""Layer-wise adaptive rate control (https://arxiv.org/abs/1708.03888) around any optimizer."""

from __future__ import annotations

from typing import Any

import torch


class LARC:
    """Scales each gradient by the ratio of parameter and gradient norm before the wrapped optimizer steps.

    `clip` limits the resulting learning rate to the optimizer's own; without it the two are multiplied. Weight decay
    is applied here instead of in the optimizer, whose groups get theirs back after the step.
    """

    def __init__(self, optimizer: Any, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8) -> None:
        self.optim = optimizer
        self.trust_coefficient = trust_coefficient
        self.eps = eps
        self.clip = clip

    def __getstate__(self) -> Any:
        return self.optim.__getstate__()

    def __setstate__(self, state: Any) -> None:
        self.optim.__setstate__(state)

    def __repr__(self) -> str:
        return repr(self.optim)

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state."""
        return self.optim.state

    @property
    def param_groups(self) -> Any:
        """The wrapped optimizer's groups."""
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        self.optim.param_groups = value

    def state_dict(self) -> Any:
        """The wrapped optimizer's state."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the wrapped optimizer's state."""
        self.optim.load_state_dict(state_dict)

    def zero_grad(self) -> None:
        """Clear the gradients as the wrapped optimizer does."""
        self.optim.zero_grad()

    def add_param_group(self, param_group: Any) -> None:
        """Add a group to the wrapped optimizer."""
        self.optim.add_param_group(param_group)

    def step(self) -> None:
        """Adapt the gradients, then step. A parameter or gradient that is all zeros is left as it is."""
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = 0
            for p in group["params"]:
                if p.grad is not None:
                    self._adapt(p.data, p.grad.data, group["lr"], decay)
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay

    def _adapt(self, p: torch.Tensor, grad: torch.Tensor, lr: float, decay: float) -> None:
        p_norm, grad_norm = torch.norm(p), torch.norm(grad)
        rate = self.trust_coefficient * p_norm / (grad_norm + p_norm * decay + self.eps)
        if self.clip:
            rate = torch.clamp(rate / lr, max=1)
        # One expression without branches on the device: where a norm is zero, decay and rate are neutral.
        adapts = (p_norm != 0) & (grad_norm != 0)
        grad.add_(p * (decay * adapts)).mul_(torch.where(adapts, rate, torch.ones_like(rate)))
