"""Under O2 the optimizer stepped float32 masters: what clipped or cleared the model's own gradients did not reach them.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-clipping
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.definitions import dotted
from amp_migrate.reading.module import Module
from amp_migrate.rules.migration import Migration

CLIPS = frozenset("clip_grad_norm_ clip_grad_norm clip_grad_value_ clip_grads_with_norm_".split())
APEX = "https://nvidia.github.io/apex/advanced.html#gradient-clipping"

CODES = (
    Code(
        "AMP305",
        "A clip that had no effect under O2 works now",
        "clip_grad_norm_",
        apex="model.parameters() are the float16 copies, their gradients still scaled: clipping them leaves the masters, "
        "which are stepped, as they are.",
        native="The model's parameters are the ones stepped, so the clip acts.",
        why="The curve rightly differs where the clip binds. To train as before, take the clip out.",
        links=(APEX, "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"),
    ),
    Code(
        "AMP306",
        "model.zero_grad left the masters' gradients under O2",
        "model.zero_grad",
        apex="Clears the float16 copies' gradients; those of the masters stay until the optimizer clears them.",
        native="Clears the gradients that the optimizer steps with.",
        why="The first step after it can differ: gradients that were added to before are gone now.",
        links=("https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.zero_grad",),
    ),
)


def apply(m: Migration) -> None:
    if not any(init.literal("opt_level") == "O2" for init in m.unit.inits):
        return
    for module in dict.fromkeys([*m.unit.modules, *(step.module for step in m.unit.steps)]):
        for call, _ in module.calls:
            if not m.live(module, call):
                continue
            if _clips_model(m, module, call):
                message = "clipped the float16 copies under O2, which had no effect on the step; now the clip acts"
                m.output.note(module, call, "AMP305", "clip_grad_norm_", message, "review")
            elif _clears_model(m, module, call):
                message = "model.zero_grad() left the masters' gradients under O2; now it clears what the step uses"
                m.output.note(module, call, "AMP306", "model.zero_grad", message)


def _clips_model(m: Migration, module: Module, call: ast.Call) -> bool:
    """`clip_grad_norm_(model.parameters(), ...)` in a function that steps or scales."""
    name = (dotted(call.func) or "").rpartition(".")[2]
    if name not in CLIPS or not call.args:
        return False
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "parameters"
        and _is_model(m, module, n.func.value)
        for n in ast.walk(call.args[0])
    )


def _clears_model(m: Migration, module: Module, call: ast.Call) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "zero_grad" and _is_model(m, module, func.value)


def _is_model(m: Migration, module: Module, node: ast.expr) -> bool:
    slot = m.project.slot(module, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return slot is not None and slot in m.unit.model_slots and slot not in m.unit.optimizer_slots
