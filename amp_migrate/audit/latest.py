"""Which object a name is on one way through a program, where the last assignment before it decides that."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit import syntax
from amp_migrate.audit.chains import Chain
from amp_migrate.audit.module import Function, Module, Scope
from amp_migrate.audit.program import Program
from amp_migrate.audit.setups import SetUp

BLOCKS = ("body", "orelse", "finalbody")


def another(program: Program, setup: SetUp, ways: Iterable[Chain], chain: Chain) -> bool:
    """Whether a way surely runs another object than a set-up was given on any way to it: a model loaded anew right before
    it runs. `model = DistributedDataParallel(model)` is the same model."""
    call = chain.place.node
    ran = latest(program, chain, call.func) if isinstance(call, ast.Call) else []
    if not ran or any(not isinstance(v, ast.Call) or _wraps(scope.module, v, setup) for scope, v in ran):
        return False
    given = [latest(program, way, model) for way in ways for model in setup.models]
    made: set[ast.AST] = {value for values in given for _, value in values}
    made |= {step.node for way in ways for step in way.steps}  # `model = load()`, which sets it up
    return bool(given) and all(given) and all(value not in made for _, value in ran)


def _wraps(module: Module, value: ast.Call, setup: SetUp) -> bool:
    """Whether a call is given what its result is called, or what the set-up was given."""
    stmt = module.statement(value)
    names = {syntax.text(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set()
    names |= {syntax.text(m) for m in setup.models}
    return any(syntax.text(a) in names for a in (*value.args, *(k.value for k in value.keywords)))


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
        if found is None or given is None or not _complete(step.function, given):
            return []
        name = found
    return []


def _complete(function: Function, given: dict[str, ast.expr]) -> bool:
    """Whether a call gives a function all that it asks for: else it fails there."""
    a = function.node.args
    positional = [*a.posonlyargs, *a.args]
    required = {p.arg for p in positional[: len(positional) - len(a.defaults)][1 if function.bound else 0 :]}
    return required <= given.keys()


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
        if _again(stmt, name):
            continue
        if isinstance(stmt, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets):
            return [stmt.value]
        if isinstance(stmt, ast.If) and stmt.orelse:
            both = _last(stmt.body, name), _last(stmt.orelse, name)
            if both[0] and both[1]:
                return [*both[0], *both[1]]
        if _binds(stmt, name):
            return None
    return []


def _again(stmt: ast.AST, name: str) -> bool:
    """`model = DistributedDataParallel(model)`, `model = model.cuda()`: what runs the same model."""
    if not isinstance(stmt, ast.Assign) or not any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets):
        return False
    value: ast.AST = stmt.value
    given = value.args if isinstance(value, ast.Call) else []
    while isinstance(value, ast.Call | ast.Attribute):
        value = value.func if isinstance(value, ast.Call) else value.value
    return any(isinstance(v, ast.Name) and v.id == name for v in (value, *given))


def _binds(stmt: ast.AST, name: str) -> bool:
    """Whether a statement may give a name another object."""
    kept = {n for s in syntax.walk(stmt) if _again(s, name) for n in syntax.walk(s)}
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) and n not in kept
        for n in syntax.walk(stmt)
    )
