"""What a field holds that a constructor gives one thing and methods another: which of them has run, for the object of a way."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Class, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.ways.chains import Chain, Chains
from amp_migrate.audit.ways.latest import latest
from amp_migrate.audit.ways.trails import Place, Trails

Given = tuple[Module, ast.expr | None]


def at_first(trails: Trails, expr: ast.Attribute, place: Place) -> tuple[ast.Constant | None, list[Given]]:
    """The constant that a constructor gives a field, and what it is given elsewhere."""
    found = trails.fields(expr, place)
    first = [v for m, v in found if (f := m.function_around(v) if v is not None else None) and f.name == "__init__"]
    later = [(m, v) for m, v in found if v not in first]
    if len(first) != 1 or not later or not isinstance(first[0], ast.Constant):
        return None, []
    return first[0], later


def last_given(program: Program, expr: ast.Attribute, place: Place) -> tuple[Scope, ast.expr] | None:
    """What a field was given last on a way, in one of the functions that the way comes by, or by the constructor; None where
    that is not decided there."""
    steps = place.chain.steps if place.chain is not None else ()
    at = next((i for i, s in enumerate(steps) if s.module.scope_of(s.node) is place.scope), None)
    found = latest(program, Chain(steps[: at + 1]), expr) if at is not None else []
    if len(found) != 1:
        return None
    scope, value = found[0]
    came_by = any(s.module.scope_of(s.node) is scope for s in steps)
    return (scope, value) if came_by or isinstance(value, ast.Constant) else None


def of_its_class(program: Program, chains: Chains, given: Given, chain: Chain | None) -> bool:
    """Whether what a method gives a field may be given to the object of a way: not if that has a method of its own in the place
    of this one, which nothing runs as that of the base."""
    module, value = given
    method = module.function_around(value) if value is not None else None
    kinds = chains.objects(chain) if chain is not None else None
    if method is None or method.owner is None or not kinds:
        return True
    if any(method in program._method(kind, method.name) for kind in kinds):
        return True
    if method.owner not in {base for kind in kinds for base in program.family_up(kind)}:
        return False
    return any(_on_other(program, m, call, method.owner) for m, call in program.callers(method))


def _on_other(program: Program, module: Module, call: ast.Call, owner: Class) -> bool:
    """Whether a call runs a method of a class as that of a base: `super().train()`, `Base.train(self)`."""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(holder, ast.Call):
        return isinstance(holder.func, ast.Name) and holder.func.id == "super"
    return holder is not None and owner in program.definitions(module.scope_of(call), holder, guess=False)
