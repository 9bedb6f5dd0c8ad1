"""Which object a name is on one way through a program, where the last assignment before it decides that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.lookalikes import RUNNING
from amp_migrate.audit.sites.setups import SetUp
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.same import is_partial
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.within import may_follow

# What gives the object that it is called on:
MOVING = frozenset("to cuda cpu eval train half float requires_grad_".split())
READING = ("getattr", "next", "max", "min", "get", "pop", "setdefault")  # what gives an object that is there


def another(program: Program, setup: SetUp, ways: Iterable[Chain], chain: Chain) -> bool:
    """Whether a way surely runs another object than a set-up was given on any way to it: a model loaded anew right before
    it runs, or copied before the set-up. `model = DistributedDataParallel(model)` is the same model."""
    return _is_another(program, setup, ways, _ran(program, chain))


def perhaps_another(program: Program, setup: SetUp, ways: Iterable[Chain], chain: Chain) -> bool:
    """Whether a way may run a model that is made anew since: an option decides whether it is loaded before it runs. One that
    is there before the set-up is none, given to it or not."""
    ways = list(ways)
    ran = _ran(program, chain, perhaps=True)
    anew = [r for r in ran if not any(_never_after(way, r[0].module, r[1]) for way in ways)]
    return any(_is_another(program, setup, ways, [value]) for value in anew)


def as_saved(program: Program, chain: Chain) -> bool:
    """Whether a way may run a whole model that was read from a file: its weights are half if they were when it was saved."""
    for scope, value in _ran(program, chain):
        made = syntax.chained(value, MOVING)
        if isinstance(made, ast.Call) and program.dotted(scope, made.func) == "torch.load":
            return True
    return False


def _ran(program: Program, chain: Chain, *, perhaps: bool = False) -> list[tuple[Scope, ast.expr]]:
    """What the call at the end of a way runs, `model(x)`, or a part of, `model.encoder(x)`."""
    call = chain.place.node
    if not isinstance(call, ast.Call):
        return []
    found = latest(program, chain, call.func, perhaps=perhaps)
    if not found and isinstance(call.func, ast.Attribute) and call.func.attr in RUNNING | _of_networks(program):
        found = latest(program, chain, call.func.value, perhaps=perhaps)
    return [(scope, value) for scope, value in found if not is_partial(value, program, scope)]


@kept
def _of_networks(program: Program) -> frozenset[str]:
    """The names of the methods of the program's networks."""
    return frozenset(name for cls in program.classes if program.is_network(cls) for name in cls.methods)


def _is_another(program: Program, setup: SetUp, ways: Iterable[Chain], ran: list[tuple[Scope, ast.expr]]) -> bool:
    if not ran or any(not isinstance(v, ast.Call) or _same(scope.module, v, setup) for scope, v in ran):
        return False
    if any(isinstance(v, ast.Call) and last_name(v.func) in READING for _, v in ran):
        return False
    ways = list(ways)
    if ways and all(_since(way, scope.module, value) for way in ways for scope, value in ran):
        return True
    given = [latest(program, way, model) for way in ways for model in setup.models]
    made: set[ast.AST] = {value for values in given for _, value in values}
    made |= {step.node for way in ways for step in way.steps}  # `model = load()`, which sets it up
    return bool(given) and all(given) and all(value not in made for _, value in ran)


def _since(way: Chain, module: Module, value: ast.expr) -> bool:
    """Whether a value is only made once a way to a set-up is behind."""
    return any(may_follow(module, n, value) and not may_follow(module, value, n) for n in _beside(way, module, value))


def _never_after(way: Chain, module: Module, value: ast.expr) -> bool:
    """Whether a value is not made any more once a way to a set-up is behind: it is before that, or in another branch."""
    return any(not may_follow(module, n, value) for n in _beside(way, module, value))


def _beside(way: Chain, module: Module, value: ast.expr) -> list[ast.AST]:
    """The steps of a way in the function that makes a value."""
    function = module.function_around(value)
    return [step.node for step in way.steps if step.module is module and step.function is function]


def _same(module: Module, value: ast.Call, setup: SetUp) -> bool:
    """Whether a call is given what its result is called, or what the set-up was given; a copy of it is another object, but
    one of what the set-up made is as that is."""
    stmt = module.statement(value)
    names = {syntax.text(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set()
    names |= {"self", *(syntax.text(m) for m in setup.models)}  # `DataParallel(self)` in a method of the model
    names |= setup.prepared if setup.module is module else set()
    if not any(syntax.text(_unmoved(a)) in names for a in syntax.given(value)):
        return False
    copied = syntax.text(value.func).rpartition(".")[2] == "deepcopy"
    return not copied or setup.module is not module or may_follow(module, setup.call, value)


def latest(program: Program, chain: Chain, name: ast.expr, *, perhaps: bool = False) -> list[tuple[Scope, ast.expr]]:
    """What was last assigned to what a name at the end of a way stands for; empty where that is not decided, or all of it that
    may be (`perhaps`).

    Followed up through parameters: `evaluate(model)`, where `model = Net.load(path)` stands right before it, or one such
    line in each branch of an `if`; and through objects: `Tester(model).run()`, which calls `self.model`, also where a
    method called before it makes that anew.
    """
    place: ast.AST = chain.place.node
    i = len(chain.steps) - 1
    while i >= 0:
        step, name = chain.steps[i], _unmoved(name)
        if isinstance(name, ast.Call):
            return [(step.module.scope_of(name), name)]
        if not isinstance(name, (ast.Name, ast.Attribute)):
            return []
        values = _before(step.module, place, syntax.text(name))
        if values and len(values) == 1 and isinstance(kept := _unmoved(values[0]), (ast.Name, ast.Attribute)):
            name, place = kept, step.module.statement(kept)  # `self.model = model`
            continue
        if values:
            return [(step.module.scope_of(v), v) for v in values]
        if values is None:
            may_be = _all_before(step.module, place, syntax.text(name)) if perhaps else []
            return [(step.module.scope_of(v), v) for v in may_be]
        if isinstance(name, ast.Attribute):
            if (made := _renewed(program, step.module, place, name.value, name.attr)) is not None:
                return made
            if program.is_self(step.module.scope_of(name), name.value) is None:
                held = _field(program, step.module, place, name.value, name.attr)
            elif i == 0 or not isinstance(call := chain.steps[i - 1].node, ast.Call):
                return []
            else:
                i -= 1
                step, place = chain.steps[i], call
                if not isinstance(call.func, ast.Attribute):
                    return []
                if (made := _renewed(program, step.module, call, call.func.value, name.attr)) is not None:
                    return made
                if program.is_self(step.module.scope_of(call), call.func.value) is not None:
                    continue  # `self.run()`: the same object
                held = _field(program, step.module, call, call.func.value, name.attr)
            if held is None:
                return list(_perhaps_held(program, chain, i, place, name)) if perhaps else []
            name, place, own = held
            if own is not None:
                return [(own, name)]
            continue
        if (outside := _outside(chain, i, name)) is not None:
            i, place = outside, chain.steps[outside].node
            continue
        if step.called is None or i == 0 or chain.steps[i - 1].value:
            return []
        if name.id not in {p.arg for p in step.called.parameters}:
            return []
        call_ = chain.steps[i - 1].node
        given = program.arguments(step.called, call_) if isinstance(call_, ast.Call) else None
        found = given.get(name.id) if given is not None else None
        if found is None or given is None or not _complete(step.called, given):
            return []
        name, place = found, call_
        i -= 1
    return []


def _outside(chain: Chain, i: int, name: ast.Name) -> int | None:
    """The step of a way whose body binds a name that a step reads from outside of its function, and no other body does."""
    module = chain.steps[i].module
    scope = module.scope_of(name)
    owner = scope.binder(name.id)
    if owner is None or owner is scope or owner.is_class:
        return None
    bound = (b for b in owner.bindings[name.id] if not isinstance(b, ast.arg))
    if any(module.function_around(b) is not owner.function for b in bound):
        return None  # a function that says `global`
    for j in range(i - 1, -1, -1):
        if chain.steps[j].module is module and chain.steps[j].function is owner.function:
            return j
    return None


def _perhaps_held(
    program: Program, chain: Chain, i: int, place: ast.AST, name: ast.Attribute
) -> Iterator[tuple[Scope, ast.expr]]:
    """What objects were made with of which a way's step may run one: `if load: trainer = Trainer(load_best())`."""
    step = chain.steps[i]
    holder = name.value
    if isinstance(place, ast.Call) and place is step.node and isinstance(place.func, ast.Attribute):
        holder = place.func.value  # `self.model` in a method of it
    for made in _all_before(step.module, place, holder.id) if isinstance(holder, ast.Name) else ():
        held = _field(program, step.module, place, made, name.attr)
        if held is None:
            continue
        value, there, own = held
        if own is not None:
            yield own, value
        else:
            at = replace(step, node=there)
            yield from latest(program, Chain((*chain.steps[:i], at)), value, perhaps=True)


def _unmoved(value: ast.expr) -> ast.expr:
    """What `model.to(device)` gives is the model."""
    inner = syntax.chained(value, MOVING)
    return inner if isinstance(inner, (ast.Name, ast.Attribute)) else value


Assigning = ast.Assign | ast.AnnAssign | ast.AugAssign


@kept
def _assigned(function: ast.AST) -> dict[str, list[tuple[Assigning, ast.Attribute]]]:
    """The statements in a function that assign attributes, by the name of the attribute."""
    found: dict[str, list[tuple[Assigning, ast.Attribute]]] = {}
    for stmt in syntax.walk(function):
        if isinstance(stmt, Assigning):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            first = {t.attr: t for t in reversed(targets) if isinstance(t, ast.Attribute)}
            for name, target in first.items():
                found.setdefault(name, []).append((stmt, target))
    return found


@kept
def _renewed(
    program: Program, module: Module, node: ast.AST, holder: ast.expr, field: str
) -> list[tuple[Scope, ast.expr]] | None:
    """What a method that is called on an object before a node surely gives a field of it: `trainer.load_best()`, which makes
    `self.model` anew. Empty where one may do so or not; None where none does."""
    cls = program.is_self(module.scope_of(node), holder)
    if cls is None:
        values = _before(module, node, syntax.text(holder)) if isinstance(holder, ast.Name) else None
        made = values[0] if values and len(values) == 1 else None
        found = program.definitions(module.scope_of(made), made.func, guess=False) if isinstance(made, ast.Call) else []
        cls = found[0] if len(found) == 1 and isinstance(found[0], Class) else None
    if cls is None:
        return None
    stmt: ast.AST = module.statement(node)
    while (parent := module.parents.get(stmt)) is not None and not isinstance(
        stmt, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        for before in reversed(module.beside(stmt)[0]):
            given = [g for m in _called_on(before, holder) for g in _gives(program, cls, m, field)]
            if given:
                call = before.value if isinstance(before, (ast.Expr, ast.Assign)) else None
                function, value = given[0]
                sure = len(given) == 1 and isinstance(call, ast.Call)
                return [(function.scope, value)] if sure and value is not None else []
        stmt = parent
    return None


def _called_on(stmt: ast.AST, holder: ast.expr) -> list[str]:
    """The methods of an object that a statement calls."""
    written = syntax.text(holder)
    calls = (n for n in syntax.every(stmt, ast.Call) if isinstance(n.func, ast.Attribute))
    return [c.func.attr for c in calls if isinstance(c.func, ast.Attribute) and syntax.text(c.func.value) == written]


def _gives(program: Program, cls: Class, method: str, field: str) -> list[tuple[Function, ast.expr | None]]:
    """What a method gives a field anew; None where it may not come to that."""
    found: list[tuple[Function, ast.expr | None]] = []
    for function in program._method(cls, method):
        for stmt, target in _assigned(function.node).get(field, ()):
            if program.is_self(function.scope, target.value) is not None and not _again(stmt, syntax.text(target)):
                found.append((function, stmt.value if stmt in function.node.body else None))
    return found


def _field(
    program: Program, module: Module, node: ast.AST, holder: ast.expr, field: str
) -> tuple[ast.expr, ast.AST, Scope | None] | None:
    """What an object, where a node stands, was made with: the argument that its constructor keeps under a name, with the
    call that makes it; or what the constructor makes itself, with its scope. None where that is not decided."""
    if isinstance(holder, ast.Name):
        values = _before(module, node, holder.id)
        holder = values[0] if values and len(values) == 1 else holder
    if not isinstance(holder, ast.Call):
        return None
    found = program.definitions(module.scope_of(holder), holder.func, guess=False)
    if len(found) != 1 or not isinstance(found[0], Class) or program.is_network(found[0]):
        return None  # a part of a model is that model's
    init, kept = None, []
    for cls in program.family_up(found[0]):
        for name, methods in cls.methods.items():
            for method in methods:
                for stmt, target in _assigned(method.node).get(field, ()):
                    if not _again(stmt, syntax.text(target)):
                        init = method if name == "__init__" else None
                        kept.append(stmt.value)
    if init is None or len(kept) != 1 or kept[0] is None:
        return None
    value: ast.AST = kept[0]
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # `model.to(device)`
        value = value.func.value
    if isinstance(value, ast.Name) and value.id in {p.arg for p in init.parameters}:
        given = program.arguments(init, holder)
        arg = given.get(value.id) if given is not None else None
        return (arg, holder, None) if arg is not None else None
    return kept[0], holder, init.scope


def _complete(function: Function, given: dict[str, ast.expr]) -> bool:
    """Whether a call gives a function all that it asks for: else it fails there."""
    a = function.node.args
    positional = [*a.posonlyargs, *a.args]
    required = {p.arg for p in positional[: len(positional) - len(a.defaults)][1 if function.bound else 0 :]}
    return required <= given.keys()


def _before(module: Module, node: ast.AST, name: str) -> list[ast.expr] | None:
    """The values of the nearest assignment before a node, in the blocks around it; None where what stands there may have
    assigned it or not."""
    return _found_before(module, module.statement(node), name)


@kept  # many ways come by one place
def _found_before(module: Module, stmt: ast.AST, name: str) -> list[ast.expr] | None:
    while True:
        holder = module.parents.get(stmt)
        if holder is None or isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        found = _last(module.beside(stmt)[0], name)
        if found is None or found:
            return found
        if isinstance(holder, (ast.For, ast.While, ast.AsyncFor)) and _binds(holder, name):
            return None  # the turn before may have
        stmt = holder


def _all_before(module: Module, node: ast.AST, name: str) -> list[ast.expr]:
    """The values of all assignments in a function that may be the last one before a node."""
    function = module.function_around(node)
    return [
        stmt.value
        for stmt in syntax.every(module.around(node), ast.Assign)
        if module.function_around(stmt) is function
        and any(syntax.text(t) == name for t in stmt.targets)
        and not _again(stmt, name)
        and may_follow(module, stmt, node)
    ]


def _last(block: list[ast.stmt], name: str) -> list[ast.expr] | None:
    for stmt in reversed(block):
        if _again(stmt, name):
            continue
        if isinstance(stmt, ast.Assign) and any(syntax.text(t) == name for t in stmt.targets):
            return [stmt.value]
        if isinstance(stmt, ast.If) and stmt.orelse:
            both = _last(stmt.body, name), _last(stmt.orelse, name)
            if both[0] and both[1]:
                return [*both[0], *both[1]]
        if _binds(stmt, name):
            return None
    return []


def _again(stmt: ast.AST, name: str) -> bool:
    """`model = DistributedDataParallel(model)`, `model = model.cuda() if gpu else model`: what runs the same model."""
    if not isinstance(stmt, ast.Assign) or not any(syntax.text(t) == name for t in stmt.targets):
        return False
    return _of_same(stmt.value, name)


def _of_same(value: ast.AST, name: str) -> bool:
    """Whether a value is what a name holds, wrapped or a part of it: either way of a choice is."""
    if isinstance(value, ast.IfExp):
        return _of_same(value.body, name) and _of_same(value.orelse, name)
    given: list[ast.expr] = []
    while isinstance(value, (ast.Call, ast.Attribute)) and syntax.text(value) != name:
        given += value.args if isinstance(value, ast.Call) else []
        value = value.func if isinstance(value, ast.Call) else value.value
    return any(syntax.text(_unmoved(v)) == name for v in given) or syntax.text(value) == name


def _binds(stmt: ast.AST, name: str) -> bool:
    """Whether a statement may give a name another object."""
    names = [n for n in syntax.every(stmt, ast.Name) if isinstance(n.ctx, ast.Store)]
    fields = [n for n in syntax.every(stmt, ast.Attribute) if isinstance(n.ctx, ast.Store)]
    stored = [n for n in (*names, *fields) if syntax.text(n) == name]
    kept = {n for s in syntax.every(stmt, ast.Assign) if stored and _again(s, name) for n in syntax.walk(s)}
    return any(n not in kept for n in stored)
