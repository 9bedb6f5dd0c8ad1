"""Trains a residual network in one precision and prints seconds per step and peak memory as JSON.

    python training_program.py fp32|autocast|O1|O2 [--steps N] [--small]

The network has the size of ResNet-50 (bottleneck blocks 3, 4, 6, 3; 25 million weights); `--small` is for a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inner != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def network(depths: tuple[int, ...], width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inner = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inner, width * 2**stage, 2 if stage and not block else 1))
            inner = 4 * width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def step_of(mode: str, model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Callable[[], None]:
    """One training step in the given precision."""
    if mode.startswith("O"):
        from apex import amp

        model, optimizer = amp.initialize(model, optimizer, opt_level=mode, verbosity=0)

        def apex_step() -> None:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()

        return apex_step

    scaler = torch.amp.GradScaler("cuda", enabled=mode == "autocast")
    region = torch.autocast("cuda", dtype=torch.float16) if mode == "autocast" else contextlib.nullcontext()

    def native_step() -> None:
        optimizer.zero_grad()
        with region:
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return native_step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["fp32", "autocast", "O1", "O2"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    batch, size = (4, 64) if given.small else (64, 224)
    model = (network((1, 1), 16) if given.small else network((3, 4, 6, 3), 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(batch, 3, size, size, device="cuda"), torch.randint(0, 1000, (batch,), device="cuda")
    step = step_of(given.mode, model, optimizer, x, y)
    for _ in range(max(3, given.steps // 3)):  # cuDNN chooses its kernels, the scale settles
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(given.steps):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    figures = {
        "seconds": sorted(times)[len(times) // 2],
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "device": torch.cuda.get_device_name(0),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
