"""What `amp.initialize` and `amp.scale_loss` take for an optimizer."""

import sys

import torch


def is_optimizer(candidate: object) -> bool:
    """A torch optimizer, or LARC, which wraps one without being one."""
    return isinstance(candidate, torch.optim.Optimizer) or is_instance_of(candidate, "parallel.LARC", "LARC")


def is_instance_of(candidate: object, module: str, name: str) -> bool:
    """isinstance for a class of another part of apex; if that part was never imported there is no instance."""
    package = __package__.rsplit(".", 1)[0]
    loaded = sys.modules.get(f"{package}.{module}")
    return loaded is not None and isinstance(candidate, getattr(loaded, name))
