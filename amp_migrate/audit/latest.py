"""Which object a name is on one way through a program, where the last assignment before it decides that."""

from __future__ import annotations

import ast

from amp_migrate.audit import syntax
from amp_migrate.audit.chains import Chain, Step
from amp_migrate.audit.module import Module, Scope
from amp_migrate.audit.program import Program
from amp_migrate.audit.setups import SetUp

BLOCKS = ("body", "orelse", "finalbody")


def another(program: Program, setup: SetUp, chain: Chain) -> bool:
    """Whether a way surely runs another object than a set-up was given: a model loaded anew right before it."""
    call = chain.place.node
    ran = latest(program, chain, call.func) if isinstance(call, ast.Call) else []
    place = Chain((Step(setup.module, setup.module.function_around(setup.call), setup.call),))
    given = [latest(program, place, model) for model in setup.models]
    made = {value for values in given for _, value in values}
    new = all(isinstance(value, ast.Call) and value not in made for _, value in ran)
    return bool(ran) and all(given) and bool(given) and new


def latest(program: Program, chain: Chain, name: ast.expr) -> list[tuple[Scope, ast.expr]]:
    """What was last assigned to what a name at the end of a way stands for; empty where that is not decided.

    Followed up through parameters: `evaluate(model)`, where `model = Net.load(path)` stands right before it, or one such
    line in each branch of an `if`.
    """
    for i in range(len(chain.steps) - 1, -1, -1):
        step = chain.steps[i]
        if not isinstance(name, ast.Name):
            return []
        values = _before(step.module, step.node, name.id)
        if values:
            return [(step.module.scope_of(v), v) for v in values]
        if values is None or step.function is None or i == 0 or chain.steps[i - 1].value:
            return []
        if name.id not in {p.arg for p in step.function.parameters}:
            return []
        call = chain.steps[i - 1].node
        given = program.arguments(step.function, call) if isinstance(call, ast.Call) else None
        found = given.get(name.id) if given is not None else None
        if found is None:
            return []
        name = found
    return []


def _before(module: Module, node: ast.AST, name: str) -> list[ast.expr] | None:
    """The values of the nearest assignment before a node, in the blocks around it; None where what stands there may have
    assigned it or not."""
    stmt: ast.AST = module.statement(node)
    while True:
        holder = module.parents.get(stmt)
        if holder is None or isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        for field in BLOCKS:
            block = getattr(holder, field, None)
            if isinstance(block, list) and stmt in block:
                found = _last(block[: block.index(stmt)], name)
                if found is None or found:
                    return found
        if isinstance(holder, ast.For | ast.While | ast.AsyncFor) and _binds(holder, name):
            return None  # the turn before may have
        stmt = holder


def _last(block: list[ast.stmt], name: str) -> list[ast.expr] | None:
    for stmt in reversed(block):
        if isinstance(stmt, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets):
            return [stmt.value]
        if isinstance(stmt, ast.If) and stmt.orelse:
            both = _last(stmt.body, name), _last(stmt.orelse, name)
            if both[0] and both[1]:
                return [*both[0], *both[1]]
        if _binds(stmt, name):
            return None
    return []


def _binds(stmt: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in syntax.walk(stmt))
