"""Under O2 the optimizer stepped float32 masters: what clipped or cleared the model's own gradients did not reach them.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-clipping
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.unit import Init
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup.when_on import never_on
from amp_migrate.rules.stepping.accumulation import pace

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
        apex="Clears the float16 copies' gradients; those of the masters stay until the optimizer steps or clears them.",
        native="Clears the gradients that the optimizer steps with.",
        why="The first step after it can differ: gradients that were added to before are gone now.",
        links=("https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.zero_grad",),
    ),
)


def apply(m: Migration) -> None:
    if not any(init.only("opt_level") == "O2" for init in m.unit.inits):
        return
    stepped = _each_stepped(m)
    for module in dict.fromkeys([*m.unit.modules, *(step.module for step in m.unit.steps)]):
        for call, _ in module.calls:
            model = _clipped(call) or _cleared(call)
            if model is None or not m.live(module, call) or never_on(m, module, call):
                continue
            if m.unit.comes_before(module, call):
                continue  # nothing has masters yet
            if stepped and model is _cleared(call):
                continue  # Apex's step cleared the masters' gradients itself
            where = _under_o2(m, module, model)
            if where is None or (model is not _cleared(call) and _reached_masters(m, module, call)):
                continue
            if model is _cleared(call):
                message = (
                    f"model.zero_grad() left the masters' gradients under {where}; now it clears what the step uses"
                )
                m.output.note(module, call, "AMP306", "model.zero_grad", message)
            else:
                message = (
                    f"clipped the float16 copies under {where}, which had no effect on the step; now the clip acts"
                )
                m.output.note(module, call, "AMP305", "clip_grad_norm_", message, "review")


def _each_stepped(m: Migration) -> bool:
    """Whether a step follows each scaled backward, with no way out of the turn between the two."""
    if any(pace(m, loss) is not None for loss in m.unit.losses):
        return False
    for loss in m.unit.losses:
        steps = [s.stmt.lineno for s in m.unit.steps if s.module is loss.module]
        turn = next((a for a in loss.module.ancestors(loss.with_stmt) if isinstance(a, LOOP_NODES)), None)
        left = [n.lineno for n in walk(turn) if isinstance(n, (ast.Continue, ast.Break, ast.Return))] if turn else []
        first = loss.with_stmt.lineno
        if any(first < line and any(line < step for step in steps) for line in left):
            return False
    return True


def _under_o2(m: Migration, module: Module, model: ast.expr) -> str | None:
    """The calls of `initialize` that gave a model masters, in words; None where none that may have prepared it did."""
    slot = m.project.slot(module, model) if isinstance(model, (ast.Name, ast.Attribute)) else None
    if slot is None or not m.unit.holds_model(module, model) or slot in m.unit.optimizer_slots:
        return None
    mine = [init for init in m.unit.inits if slot in _models(m, init)] or m.unit.inits
    found = [init for init in mine if init.only("opt_level") == "O2"]
    if len(found) == len(mine):
        return "O2"
    return f"the O2 of {found[0].module.display}:{found[0].call.lineno}" if found else None


def _reached_masters(m: Migration, module: Module, clip: ast.Call) -> bool:
    """Whether a clip acted: on the masters, or on what the end of `with scale_loss` then copied to them; or whether no
    scaled backward comes before it, where there was nothing to step."""
    if any(site.short == "master_params" and site.node in set(walk(clip)) for site in m.unit.sites):
        return True
    around = set(module.ancestors(clip))
    if any(loss.item is not None and loss.with_stmt in around for loss in m.unit.losses):
        return True
    scope = module.scope_of(clip)
    steps = [step for step in m.unit.steps if step.module is module and step.scope is scope]
    return bool(steps) and all(step.call in m.plain_steps for step in steps)


def _models(m: Migration, init: Init) -> set[Slot]:
    """Everywhere the models of one call may be."""
    seeds = {s for node in (*init.models, *init.model_targets) for s in m.project.sources(init.module, node)}
    return m.project.reaches(m.project.origins(seeds))


def _clipped(call: ast.Call) -> ast.expr | None:
    """The model of `clip_grad_norm_(model.parameters(), ...)`."""
    name = called_name(call)
    if name not in CLIPS or not call.args:
        return None
    for node in walk(call.args[0]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
            return node.func.value
    return None


def _cleared(call: ast.Call) -> ast.expr | None:
    """What `model.zero_grad()` is called on."""
    func = call.func
    return func.value if isinstance(func, ast.Attribute) and func.attr == "zero_grad" else None
