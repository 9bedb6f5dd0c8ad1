"""Programs in forked processes, with hooks on torch.

So that hundreds of programs run in minutes, a program sees the first batches of its data only: loaders end and tensors
are split in no more than so many pieces. What a program did is written to a file: the values of its losses at backward,
the gradients each optimizer stepped with, the parameters it left, in which precision modules computed, and what was
printed. All to the bit.
"""

from __future__ import annotations

import itertools
import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.nursery import enter, serve

BATCHES = 8


class Record:
    """What hooks on torch saw of one program."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.gradients: list[float] = []
        self.parameters: list[float] = []
        self.precision: Counter[str] = Counter()

    def install(self) -> None:
        backward = torch.autograd.backward

        def recorded(tensors: Any, *args: Any, **options: Any) -> Any:
            first = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
            self.losses.append(float(first.detach().double().sum()))
            return backward(tensors, *args, **options)

        torch.autograd.backward = recorded
        register_optimizer_step_pre_hook(lambda optimizer, *_: self.gradients.append(_norm(optimizer, True)))
        register_optimizer_step_post_hook(lambda optimizer, *_: self.parameters.append(_norm(optimizer, False)))
        torch.nn.modules.module.register_module_forward_hook(self._forward)

    def _forward(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if not list(module.children()) and isinstance(output, torch.Tensor):
            self.precision[f"{type(module).__name__} training={module.training} {output.dtype}"] += 1

    def write(self, path: Path) -> None:
        said = {**vars(self), "losses": [v.hex() for v in self.losses]}
        said["gradients"] = [v.hex() for v in self.gradients]
        said["parameters"] = [v.hex() for v in self.parameters]
        path.write_text(json.dumps(said, sort_keys=True), encoding="utf-8")


def shorten() -> None:
    """No more than BATCHES batches an epoch."""
    iterate, split = torch.utils.data.DataLoader.__iter__, torch.Tensor.split

    def shortened(loader: Any) -> Any:
        return itertools.islice(iterate(loader), BATCHES)

    def first(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        return split(tensor, *args, **options)[:BATCHES]

    torch.utils.data.DataLoader.__iter__ = shortened  # type: ignore[assignment]
    torch.Tensor.split = first  # type: ignore[method-assign]


def _norm(optimizer: torch.optim.Optimizer, gradients: bool) -> float:
    values = [p.grad if gradients else p for group in optimizer.param_groups for p in group["params"]]
    return sum((float(v.detach().double().pow(2).sum()) for v in values if v is not None), 0.0)


def run(script: str, args: list[str], cwd: str, out: str, short: bool, seconds: int) -> None:
    enter(script, args, cwd, out, seconds)
    if short:
        shorten()
    record = Record()
    record.install()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        record.write(Path(out) / "record.json")


if __name__ == "__main__":
    serve(run)
