"""The program's own `network_to_half` beside the training that it goes out of: whoever puts a model in a Sequential still, and
loads what that training saves, finds other keys. Reported as AMP720: see `fp16_utils.py`.

Apex: https://nvidia.github.io/apex/fp16_utils.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.companions import STATE_METHODS
from amp_migrate.reading.regions.renewed import PLACING, made_float
from amp_migrate.reading.units.legacy_models import HALVERS
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.sequential_keys import State, place

LOADS = ("load", "load_url", "load_state_dict_from_url")
ASKED = frozenset("parameters named_parameters modules children total_parameters zero_grad".split())


def halver(m: Migration, call: ast.Call) -> str:
    """Which of these a call is, by its own name or that of the program's function that runs under another; else nothing."""
    named = [called_name(call), *(f.name for f in m.project.resolved.get(call, ()))]
    return next((name for name in named if name in HALVERS), "")


def others(m: Migration, known: set[ast.Call]) -> Iterator[tuple[Module, ast.Call]]:
    """The other calls of a `network_to_half` of the program's own."""
    for module in m.project.modules:
        for call, scope in module.calls if "network_to_half" in module.text else ():
            if call in known or not m.project.resolved.get(call) or not call.args or place(m, call) is None:
                continue
            if scope.name != "network_to_half":
                yield module, call


def float_after(module: Module, call: ast.Call) -> bool:
    """Whether a model is made half here and float32 again below, before anything runs it: what is done to it between is to its
    state. It computes in float32."""
    stmt, scope = module.statement(call), module.scope_of(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    if not isinstance(target, ast.Name) or stmt not in scope.body:
        return False
    name = target.id
    below = scope.body[scope.body.index(stmt) + 1 :]
    end = next((i for i, s in enumerate(below) if _back(module, s, name)), None)
    between = below[:end] if end is not None else []
    uses = (n for s in between for n in walk(s) if isinstance(n, ast.Name) and n.id == name)
    return end is not None and all(_only_state(module, n) for n in uses)


def _back(module: Module, stmt: ast.stmt, name: str) -> bool:
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.Expr)) else None
    return isinstance(value, ast.Call) and made_float(module, value, name)


def _only_state(module: Module, use: ast.Name) -> bool:
    """Whether a use of a model is a call of a method that runs nothing of it, or gives its name what that gives back."""
    if isinstance(use.ctx, ast.Store):
        return True
    method = module.parents.get(use)
    called = isinstance(method, ast.Attribute) and isinstance(module.parents.get(method), ast.Call)
    return called and method.attr in PLACING | STATE_METHODS | ASKED  # type: ignore[union-attr]


def tell(m: Migration, halved: list[tuple[Module, ast.Call]], states: list[State]) -> list[tuple[Module, ast.Call]]:
    """Say of the others that what is saved from now on has other keys; those that go as well, since they read the same file
    and compute in float32."""
    going: list[tuple[Module, ast.Call]] = []
    if not halved or not states:
        return going
    ours = [found for found in (files(m, module, call) for module, call in states) if found != set()]
    for module, call in others(m, {c for _, c in halved}):
        stmt, scope = module.statement(call), module.scope_of(call)
        target = ast.unparse(stmt.targets[0]) if isinstance(stmt, ast.Assign) else ""
        loads = [
            c
            for c, func in module.method_calls.get("load_state_dict", ())
            if module.scope_of(c) is scope and c.lineno > call.lineno and ast.unparse(func.value) == target
        ]
        for load in loads:
            theirs = files(m, module, load)
            same = {name for own in ours for name in own or ()} & (theirs or set())
            if not ours or (theirs and None not in ours and not same):
                continue
            if same and float_after(module, call) and module in m.project.targets:
                going.append((module, call))
                break
            number = place(m, call)
            first, line = states[0][0].display, states[0][1].lineno
            read = f"{min(same)}, as {first}:{line} does, is" if same else f"what {first}:{line} saves or reads may be"
            message = (
                f"{read} loaded here into a model that {ast.unparse(call.func)} put in a Sequential, whose keys begin with "
                f"`{number}.`; files that are saved from now on have them without, and raise here: load them into {target}[{number}]"
            )
            m.output.note(module, load, "AMP720", "load_state_dict", message, "review")
            break
    return going


def files(m: Migration, module: Module, state: ast.Call) -> set[str] | None:
    """The names of the files that a state is saved in or loaded from; None where they are not all known."""
    found: set[str] = set()
    paths = list(_paths(module, state))
    if not paths and (called_name(state) != "state_dict" or not isinstance(module.statement(state), ast.Expr)):
        return None  # by way of something else
    for path in paths:
        values = m.project.once(Values).constants(module, path)
        if not values or not all(isinstance(v, str) for v in values):
            return None
        found |= {PurePosixPath(str(v)).name for v in values}
    return found


def _paths(module: Module, state: ast.Call) -> Iterator[ast.expr]:
    """The arguments that name these files."""
    if isinstance(state.func, ast.Attribute) and state.func.attr == "state_dict":
        saves = (a for a in module.ancestors(state) if isinstance(a, ast.Call) and "save" in called_name(a))
        for save in saves:
            yield from (a for a in save.args[1:2] or [k.value for k in save.keywords if k.arg == "f"])
        return
    names = {n.id for a in state.args for n in walk(a) if isinstance(n, ast.Name)}
    scope = module.scope_of(state)
    stores = (b for name in names for b in scope.bindings.get(name, ()))
    given = [s.value for b in stores if isinstance(s := module.parents.get(b), ast.Assign)]
    for node in (n for value in (*state.args, *given) for n in walk(value)):
        if isinstance(node, ast.Call) and called_name(node) in LOADS and node.args:
            yield node.args[0]
