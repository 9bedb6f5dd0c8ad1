"""Readers of gradients that stand above the branch or the loop that steps: unscaled once, updated on every path."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import INITIALIZE, apex, check_refused, native

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
            loss = models[0](x).float().mean()
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
            loss = models[0](x).float().mean()
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


def _branches(apex_branch: str, plain_branch: str) -> str:
    return apex(
        f"""
        loss = criterion(model(x), y) / 4
        if args.fp16:
{textwrap.indent(textwrap.dedent(apex_branch).strip(), " " * 12)}
        else:
{textwrap.indent(textwrap.dedent(plain_branch).strip(), " " * 12)}
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        """,
        "if args.fp16:\n    " + INITIALIZE,
    )


APEX_BACKWARD = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"


def test_a_clip_that_only_the_apex_branch_has_stays_under_its_condition() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)"
    result = rewrite(
        _branches(APEX_BACKWARD + clip, "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 9.0)")
    )
    assert result.after is not None
    assert result.after.count("clip_grad_norm_(model.parameters(), 1.0)") == 1
    assert (
        "    if (i + 1) % 4 == 0:\n"
        "        if args.fp16:\n"
        "            scaler.unscale_(optimizer)\n"
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        scaler.step(optimizer)\n"
    ) in result.after


def test_a_condition_over_several_lines_is_written_in_one() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)"
    source = _branches(APEX_BACKWARD + clip, "loss.backward()")
    source = source.replace(
        "    if args.fp16:\n        with", "    if (args.fp16 and  # both\n            args.clip):\n        with"
    )
    after = rewrite(source).after
    assert after is not None
    assert "        if args.fp16 and args.clip:\n            scaler.unscale_(optimizer)\n" in after


@pytest.mark.parametrize(
    ("test", "kept"), [("args.fp16 or args.half", "(args.fp16 or args.half)"), ("args.level > 0", "args.level > 0")]
)
def test_the_other_branch_of_a_condition_is_its_negation(test: str, kept: str) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)"
    source = apex(
        f"""
        loss = criterion(model(x), y) / 4
        if {test}:
            {APEX_BACKWARD.replace(chr(10), chr(10) + " " * 12).strip()}
            print(i)
        else:
            {APEX_BACKWARD.replace(chr(10), chr(10) + " " * 12).strip()}
            {clip}
        if (i + 1) % 4 == 0:
            optimizer.step()
        """
    )
    after = rewrite(source).after
    assert after is not None
    kept = kept if kept.startswith("(") else f"({kept})"
    assert f"if not {kept}:\n            scaler.unscale_(optimizer)\n" in after


def test_a_condition_that_cannot_be_asked_again_is_refused() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)"
    source = _branches(APEX_BACKWARD + clip, "loss.backward()").replace(
        "    if args.fp16:\n        with", "    if draw() > 0:\n        with"
    )
    check_refused(source, "AMP307")


def test_an_import_guard_inside_the_apex_branch_does_not_keep_the_pair_apart() -> None:
    guard = 'try:\n    from apex import amp\nexcept ImportError:\n    raise ImportError("install apex")\n'
    clip = "torch.nn.utils.clip_grad_norm_({}, 1.0)"
    result = rewrite(
        _branches(
            guard + APEX_BACKWARD + clip.format("amp.master_params(optimizer)"),
            "loss.backward()\n" + clip.format("model.parameters()"),
        )
    )
    assert result.after is not None
    assert result.after.count("clip_grad_norm_") == 1
    assert "loss.backward()" not in result.after
    assert "ImportError" not in result.after
