"""Optimizers with passes of their own (SAM's `first_step` and `second_step`): refused, with the passes written out.

Apex: https://nvidia.github.io/apex/advanced.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP226",
        "An optimizer reads gradients in a method of its own",
        "optimizer.first_step",
        apex="Gradients are unscaled when the with statement ends, so any method may use them; an overflow skips step, but "
        "no other method.",
        native="unscale_ before the method, once between two updates: update() after the first pass ends its stage, so that "
        "the second can be unscaled. If the second pass is what the class calls step(), scaler.step runs it and leaves "
        "it out after an overflow. A first pass whose gradients are not finite must not move the weights: skip the "
        "iteration.",
        why="Which method applies the update, and what must happen when gradients overflow between the two, is the "
        "optimizer's own contract. Apex let such weights become NaN.",
        links=(
            "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_",
            "https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-unscaled-gradients",
        ),
        examples=(
            Example(
                "with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:\n"
                "    scaled_loss.backward()\n"
                "optimizer.first_step(zero_grad=True)\n"
                "with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:\n"
                "    scaled_loss.backward()\n"
                "optimizer.second_step(zero_grad=True)\n",
                'with torch.autocast("cuda", dtype=torch.float16):\n'
                "    loss = criterion(model(x), y)\n"
                "scaler.scale(loss).backward()\n"
                "scaler.unscale_(optimizer)\n"
                'grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]\n'
                "finite = all(torch.isfinite(g).all() for g in grads)\n"
                "scaler.update()  # ends the first stage; halves the scale after an overflow\n"
                "if finite:\n"
                "    optimizer.first_step(zero_grad=True)\n"
                '    with torch.autocast("cuda", dtype=torch.float16):\n'
                "        loss = criterion(model(x), y)\n"
                "    scaler.scale(loss).backward()\n"
                "    scaler.step(optimizer)  # optimizer.step is what second_step was\n"
                "    scaler.update()\n"
                "optimizer.zero_grad()\n",
            ),
        ),
    ),
)

# What torch.optim.Optimizer has, and wrappers of data parallel libraries.
KNOWN = frozenset(
    (
        "step",
        "zero_grad",
        "state_dict",
        "load_state_dict",
        "add_param_group",
        "synchronize",
        "skip_synchronize",
        "register_step_pre_hook",
        "register_step_post_hook",
        "train",
        "eval",
    )
)


def apply(m: Migration) -> None:
    """Refuse a unit whose optimizer reads gradients in a method that is not its step."""
    if not m.scales:
        return
    stepped = any(m.live(step.module, step.call) for step in m.unit.steps)
    for loss in m.unit.losses:
        module = loss.module
        scope = module.scope_of(loss.call)
        for call in sorted(module.calls_in(scope), key=lambda c: c.lineno):
            if call is loss.call or call.lineno < loss.call.lineno or not isinstance(call.func, ast.Attribute):
                continue
            name = call.func.attr
            if name in KNOWN or m.project.slot(module, call.func.value) not in m.unit.optimizer_slots:
                continue
            functions = m.project.callees(module, call)
            reads = any(_reads_gradients(f.scope.node) for f in functions)
            # One that only looks, on the way to a step, is a gradient reader like any other.
            if (reads and _another_pass(m, module, call)) or (not stepped and (reads or not functions)):
                raise Blocked(
                    module,
                    call,
                    "AMP226",
                    f"optimizer.{name}",
                    f"{name} uses gradients that would still be scaled: unscale them before it, and let scaler.step run the "
                    "method that applies the update; `amp-migrate explain AMP226` shows the passes written out",
                )


def _another_pass(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a scaled loss follows in the same function before the next step."""
    scope = module.scope_of(call)
    after = [x.call.lineno for x in m.unit.losses if x.module is module and module.scope_of(x.call) is scope]
    losses = [line for line in after if line > call.lineno]
    steps = [s.call.lineno for s in m.unit.steps if s.scope is scope and s.call.lineno > call.lineno]
    return bool(losses) and min(losses) < min(steps, default=max(losses) + 1)


def _reads_gradients(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in walk(node))
