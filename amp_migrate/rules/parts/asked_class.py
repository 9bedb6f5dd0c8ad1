"""Libraries that ask an optimizer which they are handed for its class: another class in its place may be refused there.

DeepSpeed: https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training
"""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.parts.counterpart import Native

DECAYING = "torch.optim.AdamW"
ASKS = (
    "DeepSpeed is handed it ({}), whose ZeRO asks for the class: before 0.3.11 it takes AdamW with "
    "zero_allow_untested_optimizer in its configuration alone; deepspeed.ops.adam.FusedAdam is its own of this kind"
)


def with_class_asked(project: Project, site: Site, decided: Native) -> Native:
    """The same with what is said where an optimizer is handed to a library that asks for its class."""
    if DECAYING not in decided.names or site.call is None:
        return decided
    for module, optimizer in project.once(_handed):
        if any(v.node is site.call for v in project.once(Values).may_be(module, optimizer)):
            message = f"{decided.message}; {ASKS.format(f'{module.display}:{optimizer.lineno}')}"
            return replace(decided, message=message, review="review" if decided.review == "review" else "look")
    return decided


def _handed(project: Project) -> list[tuple[Module, ast.expr]]:
    """The optimizers that `deepspeed.initialize(args, model, optimizer, ...)` is given; see `Project.once`."""
    found: list[tuple[Module, ast.expr]] = []
    for module in project.modules:
        for call, _ in module.calls if "deepspeed" in module.text else ():
            name = module.qualify(call.func) or module.source(call.func)  # `wrap.deepspeed.initialize`, too
            if f".{name}".endswith(".deepspeed.initialize"):
                given = {k.arg: k.value for k in call.keywords}
                optimizer = given.get("optimizer", call.args[2] if len(call.args) > 2 else None)
                found += [(module, optimizer)] if optimizer is not None else []
    return found
