"""Horovod: gradients are reduced before they are unscaled, and the step does not reduce them again.

Apex: https://horovod.readthedocs.io/en/stable/api.html#horovod.torch.DistributedOptimizer
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.unit import Step
from amp_migrate.rules.migration import Migration

APEX = "https://horovod.readthedocs.io/en/stable/api.html#horovod.torch.DistributedOptimizer"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_"

CODES = (
    Code(
        "AMP225",
        "Horovod's reduction comes before unscaling",
        "hvd.DistributedOptimizer",
        apex="Horovod reduces gradients while backward runs. Its documentation asks for optimizer.synchronize() inside the "
        "with statement of scale_loss, and for skip_synchronize() around the step.",
        native="synchronize() after the last backward, then unscale_ and whatever reads gradients, then scaler.step inside "
        "skip_synchronize(). Every process sees the same sums, so every process skips the same steps.",
        why="Where the program left synchronize() to the step, unscale_ would run while gradients are still on their way, "
        "and one process could skip a step that another one takes. Written calls stay where they are.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "import horovod.torch as hvd\nimport torch\nfrom apex import amp\n\n"
                "model = torch.nn.Linear(4, 2).cuda()\n"
                "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))\n"
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
                "for x, y in loader:\n"
                "    optimizer.zero_grad()\n"
                "    loss = criterion(model(x), y)\n"
                "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
                "        scaled_loss.backward()\n"
                "    optimizer.step()\n",
                "import horovod.torch as hvd\nimport torch\n\n"
                "model = torch.nn.Linear(4, 2).cuda()\n"
                "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))\n"
                'scaler = torch.amp.GradScaler("cuda")\n'
                "for x, y in loader:\n"
                "    optimizer.zero_grad()\n"
                '    with torch.autocast("cuda", dtype=torch.float16):\n'
                "        loss = criterion(model(x), y)\n"
                "    scaler.scale(loss).backward()\n"
                "    optimizer.synchronize()\n"
                "    with optimizer.skip_synchronize():\n"
                "        scaler.step(optimizer)\n"
                "    scaler.update()\n",
            ),
        ),
    ),
)

OPTIMIZER = "horovod.torch.DistributedOptimizer"


def apply(m: Migration) -> None:
    """Synchronize before the gradients are unscaled, where the program leaves that to the step."""
    if not m.scales or not any("horovod" in module.text for module in m.project.modules):
        return
    made = _distributed(m)
    if not made or _synchronizes(m):
        return
    sometimes = any(isinstance(a, (ast.If, ast.IfExp, ast.Try)) for module, c in made for a in module.ancestors(c))
    for step in m.unit.steps:
        edits = m.edit(step.module)
        if step.call not in edits.expressions:
            continue  # a plain step
        name = step.module.source(step.optimizer)
        if sometimes or not isinstance(step.stmt, ast.Expr):
            m.output.note(
                step.module,
                step.call,
                "AMP225",
                "hvd.DistributedOptimizer",
                f"where this is Horovod's optimizer, call {name}.synchronize() before its gradients are unscaled or stepped "
                f"and step inside {name}.skip_synchronize(): left to the step, unscaling meets gradients on their way",
                "review",
            )
            continue
        edits.before.setdefault(_first(m, step, name), []).insert(0, f"{name}.synchronize()")
        edits.wrap(step.stmt, step.stmt, f"{name}.skip_synchronize()")
        m.output.done(
            step.module,
            step.call,
            "AMP225",
            "hvd.DistributedOptimizer",
            "gradients are reduced before they are unscaled; the step does not reduce them again",
            "review",
        )


def _distributed(m: Migration) -> list[tuple[Module, ast.Call]]:
    """The calls that make one of the unit's optimizers Horovod's."""
    found = []
    for module in m.project.modules:
        for call, _ in module.calls if OPTIMIZER.rpartition(".")[2] in module.text else ():
            if m.project.qualify(module, call.func) != OPTIMIZER:
                continue
            parent = module.parents.get(call)
            while isinstance(parent, ast.IfExp):
                parent = module.parents.get(parent)
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            if any(m.project.slot(module, target) in m.unit.optimizer_slots for target in targets):
                found.append((module, call))
    return found


def _synchronizes(m: Migration) -> bool:
    """Whether the program reduces the gradients of one of the unit's optimizers itself."""
    calls = ((module, f) for module in m.project.modules for _, f in module.method_calls.get("synchronize", ()))
    return any(m.project.slot(module, func.value) in m.unit.optimizer_slots for module, func in calls)


def _first(m: Migration, step: Step, name: str) -> ast.stmt:
    """The statement before which gradients are unscaled: the first reader's, else the step's."""
    module: Module = step.module
    unscaling = f".unscale_({name})"
    for stmt, codes in m.edit(module).before.items():
        if module.scope_of(stmt) is step.scope and any(isinstance(c, str) and c.endswith(unscaling) for c in codes):
            return stmt
    return step.stmt
