"""Parts of a network that are made half in place and trained: a GradScaler refuses their gradients at the first step.

Where only mixed precision asks for it, the cast goes: autocast casts what an operation needs. Where every run comes by it, what
would be written could take no step. Reported as AMP118: see `half_weights.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.casts import half_parts
from amp_migrate.rules.casts.before_training import same_switch, trains
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.fp16_utils import without_half
from amp_migrate.rules.setup.when_on import ways_to

Place = tuple[Module, ast.stmt]
RUN_IN_TRAINING = half_parts.RUN_BY_TORCH - {"eval"}


def apply(m: Migration, module: Module, call: ast.Call, places: Sequence[Place]) -> None:
    """`places`: the statements by which a call makes parts half."""
    assert isinstance(call.func, ast.Attribute), "what casts is a method"
    construct = f"{module.source(call.func.value)}.{call.func.attr}"
    tensors = half_parts.only_tensors(m)
    trained = [place for place in places if not tensors and _is_trained_after(m, *place)]
    more = _asked_besides(m, module, call, places)
    if trained and all(same_switch(m, *place, more) for place in places):
        _take_out(m, module, call, call.func, places)
        message = (
            "parts of the network stay float32: autocast casts what an operation needs, and scaler.step raises 'Attempting to "
            "unscale FP16 gradients.' for half weights, which Apex's took"
        )
        m.output.done(module, call, "AMP118", construct, message, "look")
        return
    raises = "make scaler.step raise 'Attempting to unscale FP16 gradients.', and "
    surely = [place for place in trained if _is_model(m, _runs_with_network(m, *place))]
    always = not more and any(not way for place in surely for way in ways_to(m, *place))
    if always and not _freezes(m):
        message = (
            f"makes weights of the network float16 in every run, and they {raises}a layer with such weights may refuse float32 "
            "input: leave them float32 where mixed precision is on, autocast casts what it needs"
        )
        raise Blocked(module, call, "AMP118", construct, message)
    message = (
        f"makes weights of the network float16: {'' if tensors else f'those that are trained {raises}'}a layer with such weights "
        "may refuse float32 input; leave them float32, autocast casts what it needs"
    )
    m.output.note(module, call, "AMP118", construct, message, "look" if tensors else "review")


def _asked_besides(m: Migration, module: Module, call: ast.Call, places: Sequence[Place]) -> set[str]:
    """What is asked between the statements that make parts half and the cast itself, but for what asks of the part."""
    stmt = module.statement(call)
    if any(s is stmt for _, s in places):
        return set()
    function = next((a for a in module.ancestors(call) if isinstance(a, FUNCTION_NODES)), None)
    loop = next((s for where, s in places if where is module and s in module.ancestors(call)), None)
    within = loop or function
    assert within is not None, "what is applied is a function"
    tests = [a.test for a in module.ancestors(call) if isinstance(a, ast.If) and within in module.ancestors(a)]
    own = {n.id for n in walk(within) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in walk(within) if isinstance(n, ast.arg)}
    return {module.source(test) for test in tests if own.isdisjoint(identifiers(test))}


def _is_trained_after(m: Migration, module: Module, stmt: ast.stmt) -> bool:
    """Whether training surely follows a statement: it is run with the network, or the same code scales a loss further down."""
    if _runs_with_network(m, module, stmt):
        return True
    scope = module.scope_of(stmt)
    loops = [a for a in module.ancestors(stmt) if isinstance(a, (ast.For, ast.AsyncFor, ast.While))]
    start = loops[-1].lineno if loops else stmt.lineno
    calls = [x.call for x in m.unit.losses if x.module is module] + [c for c, _ in module.calls if trains(m, c)]
    return any(call.lineno > start for call in calls if module.scope_of(call) is scope)


def _runs_with_network(m: Migration, module: Module, stmt: ast.stmt) -> ClassInfo | None:
    """The class of networks, a method of which that training runs holds a statement."""
    function = m.project.function_of(module, stmt)
    cls = function.cls if function is not None and function.name in RUN_IN_TRAINING else None
    return cls if cls is not None and cls.is_module else None


def _is_model(m: Migration, cls: ClassInfo | None) -> bool:
    """Whether one of the unit's models is of a class; of None, which is none of a network, anything is."""
    models = {c for init in m.unit.inits for model in init.models for c in m.project.classes_of(init.module, model)}
    return cls is None or cls in models


def _freezes(m: Migration) -> bool:
    """Whether code in reach sets what takes a gradient: parts that are half may be frozen."""
    return any("requires_grad" in module.text for module in m.unit.reach)


def _take_out(m: Migration, module: Module, call: ast.Call, func: ast.Attribute, places: Sequence[Place]) -> None:
    """Take the cast off; a loop or function that does nothing else goes, with what applies that."""
    function = next((a for a in module.ancestors(call) if isinstance(a, FUNCTION_NODES)), None)
    bare = not isinstance(func.value, ast.Call) and len(call.args) + len(call.keywords) < 2
    loop = next((s for where, s in places if where is module and s in module.ancestors(call)), None)
    if bare and isinstance(loop, (ast.For, ast.AsyncFor)) and _only_casts(loop.body, call):
        m.edit(module).delete(loop)
        return
    by = [(where, stmt) for where, stmt in places if stmt is not loop and stmt is not module.statement(call)]
    whole = bare and bool(by) and all(isinstance(stmt, ast.Expr) for _, stmt in by)
    if not whole or function is None or not _only_casts(function.body, call):
        without_half(m, module, call, func)
        return
    for where, stmt in by:
        m.edit(where).delete(stmt)
    if set(_uses(m, function.name)) <= {n for _, stmt in by for n in walk(stmt)}:
        m.edit(module).delete(function)


def _only_casts(body: Sequence[ast.stmt], call: ast.Call) -> bool:
    """Whether statements do nothing but one cast, and ask what it is to be done to."""
    for stmt in body:
        if isinstance(stmt, ast.If):
            done = pure(stmt.test) and _only_casts(stmt.body, call) and _only_casts(stmt.orelse, call)
        elif isinstance(stmt, ast.Assign):
            done = pure(stmt.value) and all(isinstance(t, ast.Name) for t in stmt.targets)
        elif isinstance(stmt, ast.Expr):
            done = stmt.value is call or isinstance(stmt.value, ast.Constant)
        else:
            done = isinstance(stmt, (ast.Pass, ast.Continue)) or (isinstance(stmt, ast.Return) and stmt.value is None)
        if not done:
            return False
    return True


def _uses(m: Migration, name: str) -> Iterator[ast.AST]:
    """Wherever a name is read in the program, or imported."""
    for module in m.project.modules:
        for node in module.nodes if name in module.text else ():
            if name in (getattr(node, field, None) for field in ("id", "attr", "name")) and not isinstance(
                node, FUNCTION_NODES
            ):
                yield node
