"""`network_to_half` put the model in a Sequential: the keys of its state began with `1.`. Reported as AMP720.

Apex: https://nvidia.github.io/apex/fp16_utils.html
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.rules.migration import Migration

PLACES = (ast.Name, ast.Attribute)
SAME = ("cpu", "cuda", "float", "half", "eval", "train")  # methods that give the model itself


def note(m: Migration, halved: list[tuple[Module, ast.Call]]) -> None:
    """Say where the state of a model is taken, or given, that was in such a Sequential."""
    seeds: set[Slot] = set()
    for module, call in halved:
        stmt = module.statement(call)
        values = [*call.args[:1], *(stmt.targets if isinstance(stmt, ast.Assign) else ())]
        seeds.update(slot for v in values for slot in m.project.sources(module, v))
    held = m.project.reaches(seeds)
    for module in dict.fromkeys((*m.unit.modules, *m.unit.reach)) if held else ():
        for method in ("state_dict", "load_state_dict"):
            for call, func in module.method_calls.get(method, ()):
                model = func.value
                while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in SAME:
                    model = model.func.value
                if not isinstance(model, PLACES) or not m.live(module, call) or _before(module, call, halved):
                    continue
                slot = m.project.slot(module, model)
                if slot not in held or slot in m.unit.optimizer_slots:
                    continue
                message = (
                    f"the keys of {module.source(model)} began with `1.`, for network_to_half had put it in a Sequential, and "
                    "are its own now: take that off the keys of files saved before"
                )
                if method == "load_state_dict":
                    message += ", which raise here (Missing key(s), Unexpected key(s))"
                m.output.note(module, call, "AMP720", method, message, "look" if method == "state_dict" else "review")


def _before(module: Module, call: ast.Call, halved: list[tuple[Module, ast.Call]]) -> bool:
    """Whether a state is taken above all that puts a model in a Sequential, in one scope."""
    scope = module.scope_of(call)
    return all(other is module and module.scope_of(h) is scope and call.lineno < h.lineno for other, h in halved)
