"""`network_to_half` put the model in a Sequential: the keys of its state began with `1.`. Reported as AMP720.

Apex: https://nvidia.github.io/apex/fp16_utils.html
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import identifiers
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

PLACES = (ast.Name, ast.Attribute)
SAME = ("cpu", "cuda", "float", "half", "eval", "train")  # methods that give the model itself


State = tuple[Module, ast.Call]  # a call that takes or gives the state of a model


def place(m: Migration, call: ast.Call) -> int | None:
    """Which item of a Sequential a call makes of a model: of Apex's `network_to_half`, or of one of the program's that does so."""
    own = m.project.resolved.get(call, ())
    if not own:
        return 1 if called_name(call) == "network_to_half" else None
    for function in own:
        made = (n for n in function.inside if isinstance(n, ast.Call) and called_name(n) == "Sequential")
        for sequential in made if function.name == "network_to_half" else ():
            given = set(function.scope.params)
            items = (i for i, arg in enumerate(sequential.args) if not given.isdisjoint(identifiers(arg)))
            return next(items, 1)
    return None


def note(m: Migration, halved: list[tuple[Module, ast.Call]]) -> list[State]:
    """Say where the state of a model is taken, or given, that was in such a Sequential; all of these calls."""
    found: list[State] = []
    seeds: set[Slot] = set()
    for module, call in halved:
        stmt = module.statement(call)
        values = [*call.args[:1], *(stmt.targets if isinstance(stmt, ast.Assign) else ())]
        seeds.update(slot for v in values for slot in m.project.sources(module, v))
    held = m.project.reaches(seeds)
    number = next((n for _, call in halved if (n := place(m, call)) is not None), 1)
    for module in dict.fromkeys((*m.unit.modules, *m.unit.reach, *(h for h, _ in halved))) if held else ():
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
                    f"the keys of {module.source(model)} began with `{number}.`, for network_to_half had put it in a Sequential, and "
                    "are its own now: take that off the keys of files saved before"
                )
                if method == "load_state_dict":
                    message += ", which raise here (Missing key(s), Unexpected key(s))"
                m.output.note(module, call, "AMP720", method, message, "look" if method == "state_dict" else "review")
                found.append((module, call))
    return found


def take_items(m: Migration, halved: list[tuple[Module, ast.Call]]) -> None:
    """Write the model where the item is asked for that it was of such a Sequential: `model[1]`.

    Raises Blocked where another item is.
    """
    for halving, call in halved:
        stmt = halving.statement(call)
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
        slot = m.project.slot(halving, target) if isinstance(target, PLACES) else None
        for module in dict.fromkeys((halving, *m.unit.modules, *m.unit.reach)) if slot is not None else ():
            for node in module.of(ast.Subscript):
                if not isinstance(node.value, PLACES) or m.project.slot(module, node.value) != slot:
                    continue
                if not m.live(module, node) or _before(module, node, halved):
                    continue
                name, number = module.source(node.value), place(m, call)
                if not isinstance(node.slice, ast.Constant) or node.slice.value != number:
                    why = f"is an item of the Sequential that network_to_half put {name} in, which goes; {name} was {name}[{number}]"
                    raise Blocked(module, node, "AMP720", "network_to_half", f"{module.source(node)} {why}")
                if node not in m.edit(module).expressions:
                    m.edit(module).replace(node, (node.value,))
                    message = (
                        f"{name}[{number}] of the Sequential that network_to_half had put it in is {name} itself now"
                    )
                    m.output.done(module, node, "AMP720", "network_to_half", message, "look")


def _before(module: Module, call: ast.expr, halved: list[tuple[Module, ast.Call]]) -> bool:
    """Whether a state is taken above all that puts a model in a Sequential, in one scope."""
    scope = module.scope_of(call)
    return all(other is module and module.scope_of(h) is scope and call.lineno < h.lineno for other, h in halved)
