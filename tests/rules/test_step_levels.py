"""Readers of gradients that stand above the branch or the loop that steps: unscaled once, updated on every path."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite
from tests.rules.programs import apex, native

BACKWARD = """
loss = criterion(model(x), y)
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
{}
"""
SCALED = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
{}
"""

NORM = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{NORM}\nif norm != norm:\n    print(norm)\nelse:\n    optimizer.step()\noptimizer.zero_grad()",
            f"scaler.unscale_(optimizer)\n{NORM}\nif norm != norm:\n    print(norm)\nelse:\n    scaler.step(optimizer)\n"
            "scaler.update()\noptimizer.zero_grad()",
        ),
        (
            f"{NORM}\nif norm < 10:\n    optimizer.step()",
            f"scaler.unscale_(optimizer)\n{NORM}\nif norm < 10:\n    scaler.step(optimizer)\nscaler.update()",
        ),
        (
            f"if ready(x):\n    {NORM}\n    if norm == norm:\n        optimizer.step()\n    optimizer.zero_grad()",
            f"if ready(x):\n    scaler.unscale_(optimizer)\n    {NORM}\n    if norm == norm:\n        scaler.step(optimizer)\n"
            "    scaler.update()\n    optimizer.zero_grad()",
        ),
        (
            f"if ready(x):\n    {NORM}\n    if rank == 0:\n        optimizer.step()",
            f"if ready(x):\n    scaler.unscale_(optimizer)\n    {NORM}\n    if rank == 0:\n        scaler.step(optimizer)\n"
            "    scaler.update()",
        ),
        (
            f"{NORM}\nif ready(x):\n    optimizer.step()",
            f"if ready(x):\n    scaler.unscale_(optimizer)\n    {NORM}\n    scaler.step(optimizer)\n    scaler.update()",
        ),
    ],
)
def test_readers_above_the_branch_that_steps(before: str, after: str) -> None:
    check_rewrite(apex(BACKWARD.format(before)), native(SCALED.format(after)))


def test_readers_above_a_loop_over_optimizers() -> None:
    source = """
    import torch
    from apex import amp
    from project import build, loader

    models = [build(), build()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    models, optimizers = amp.initialize(models, optimizers, opt_level="O1")
    for x in loader:
        loss = models[0](x).mean()
        with amp.scale_loss(loss, optimizers) as scaled_loss:
            scaled_loss.backward()
        for model in models:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    """
    expected = """
    import torch
    from project import build, loader

    models = [build(), build()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = models[0](x).mean()
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        for model in models:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    """
    check_rewrite(source, expected)


def test_optimizers_looked_up_in_a_loop_step_in_one_iteration() -> None:
    source = """
    import torch
    from apex import amp
    from project import build, loader

    models = [build(), build()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    models, optimizers = amp.initialize(models, optimizers, opt_level="O1")
    for x in loader:
        loss = models[0](x).mean()
        with amp.scale_loss(loss, optimizers) as scaled_loss:
            scaled_loss.backward()
        for i in range(2):
            optimizers[i].step()
    """
    expected = """
    import torch
    from project import build, loader

    models = [build(), build()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = models[0](x).mean()
        scaler.scale(loss).backward()
        for i in range(2):
            scaler.step(optimizers[i])
        scaler.update()
    """
    check_rewrite(source, expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "for p in model.parameters():\n    dist.all_reduce(p.grad.data)\n    p.grad.data.div_(2)\noptimizer.step()",
            "for p in model.parameters():\n    dist.all_reduce(p.grad.data)\n    p.grad.data.div_(2)\n"
            "scaler.step(optimizer)\nscaler.update()",
        ),
        (
            f"grads = [p.grad.data for p in model.parameters()]\nall_reduce_and_rescale(grads)\n{NORM}\noptimizer.step()",
            f"grads = [p.grad.data for p in model.parameters()]\nall_reduce_and_rescale(grads)\nscaler.unscale_(optimizer)\n{NORM}\n"
            "scaler.step(optimizer)\nscaler.update()",
        ),
        (
            "grads = [p.grad.data for p in model.parameters()]\nprint(grads)\noptimizer.step()",
            "scaler.unscale_(optimizer)\ngrads = [p.grad.data for p in model.parameters()]\nprint(grads)\n"
            "scaler.step(optimizer)\nscaler.update()",
        ),
    ],
)
def test_gradients_are_summed_over_processes_before_they_are_unscaled(before: str, after: str) -> None:
    check_rewrite(apex(BACKWARD.format(before)), native(SCALED.format(after)))
