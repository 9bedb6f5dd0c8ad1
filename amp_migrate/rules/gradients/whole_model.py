"""Whether an optimizer has every parameter of a model that can get a gradient, whichever function made it and its groups.

Then what clips the parameters of the model where there is no mixed precision clips just those that the optimizer steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.gradients.conditions import called, leave_none_out
from amp_migrate.rules.migration import Migration

ADDING = ("add_module", "register_module", "register_parameter")
ADDS = ("append", "extend", "insert")
Chosen = tuple[ast.expr, list[ast.expr]]  # a model, and what is asked of each of its parameters


class Held(NamedTuple):
    """Parameters of a model that an optimizer was made with."""

    module: Module
    model: ast.expr
    unfrozen: bool  # those that are frozen then are left out
    part: bool  # others may be left out, too


def steps_whole(m: Migration, module: Module, optimizer: ast.expr, model: ast.expr) -> bool:
    """Whether all that an optimizer may be was made with the parameters of a model, and of nothing else."""
    values = m.project.once(Values)
    made = [v for v in values.may_be(module, optimizer) if v.constant is not None]
    every = [held(m.project, v.module, v.node) if isinstance(v.node, ast.Call) else None for v in made]
    if not made or any(v.kind != "call" for v in made) or not _known(m.project, module, model):
        return False
    if any("add_param_group" in each.text for each in m.unit.reach):
        return False
    return all(one is not None and _same(m.project, (module, model), one[:2]) and stays_whole(m, one) for one in every)


def stays_whole(m: Migration, one: Held) -> bool:
    """Whether what an optimizer was made with is all of the model that ever gets a gradient."""
    return not one.part and not _grows(m.project, one.module, one.model) and not (one.unfrozen and _thawed(m))


def _known(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether all that a model may be is made in sight; where it is None there are no parameters, nor a run."""
    found = [v for v in project.once(Values).may_be(module, model) if v.constant is not None]
    return bool(found) and all(v.kind in ("call", "instance") for v in found)


def _same(project: Project, one: tuple[Module, ast.expr], two: tuple[Module, ast.expr]) -> bool:
    """Whether two expressions are one model: made by the same calls, as far as these run in one process with the first, and
    out of one variable."""
    values, near = project.once(Values), in_process(project, (one[0],))
    made = [{v for given in _given(project, *pair, near) for v in values.may_be(*given)} for pair in (one, two)]
    if made[0] != made[1] or not made[0]:
        return False
    from_ = [project.origins([slot]) if (slot := project.slot(*pair)) is not None else set() for pair in (one, two)]
    return bool(from_[0] & from_[1])


def _given(
    project: Project, module: Module, model: ast.expr, near: frozenset[Module], depth: int = 5
) -> Iterator[tuple[Module, ast.expr]]:
    """What the calls of one process give a parameter; any other expression stands for itself."""
    owner = module.scope_of(model).lookup(model.id) if isinstance(model, ast.Name) else None
    function = project.functions.get(owner.node) if owner is not None else None
    name = model.id if isinstance(model, ast.Name) else ""
    if owner is None or function is None or name not in owner.params or len(owner.bindings[name]) > 1:
        yield module, model
    else:
        for where, call in project.calls.get(function, ()):
            given = dict(project.arguments(function, call)).get(name) if where in near else None
            if given is not None and depth:
                yield from _given(project, where, given, near, depth - 1)


def _grows(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether a model is given further parts below where its parameters are taken: `model.head = nn.Linear(8, 2)`."""
    for where, given in _given(project, module, model, in_process(project, (module,))):
        text, scope = where.source(given), where.scope_of(given)
        for node in where.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                holders = [t.value for t in node.targets if isinstance(t, ast.Attribute)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
                holders = [node.func.value]
            else:
                continue
            below = node.lineno > given.lineno and where.scope_of(node) is scope
            if below and any(where.source(holder) == text for holder in holders):
                return True
    return False


def _thawed(m: Migration) -> bool:
    """Whether parameters may get a gradient which were frozen before."""
    for module in m.unit.reach:
        for node in module.nodes if "requires_grad" in module.text else ():
            if isinstance(node, ast.Assign):
                value: ast.expr | None = node.value
                asked = any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)
            elif isinstance(node, ast.Call):
                value = node.args[0] if node.args else None
                asked = isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_"
            else:
                continue
            if asked and not (isinstance(value, ast.Constant) and value.value is False):
                return True
    return False


def held(project: Project, module: Module, call: ast.Call) -> Held | None:
    """The model whose parameters are all that an optimizer is constructed with."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    if given is None or _added_to(module, given):
        return None
    value = single_assignment(module, given) if isinstance(given, ast.Name) else given
    whole = _all_of(module, value) if value is not None else None
    if whole is not None:
        return whole
    found = project.once(Values).may_be(module, given)
    if len(found) != 1:
        return None
    (one,) = found
    return _all_of(one.module, one.node) if isinstance(one.node, ast.expr) else None


def _added_to(module: Module, node: ast.expr) -> bool:
    """Whether a list gets more than what its variable is given."""
    found = (method.value for name in ADDS for _, method in module.method_calls.get(name, ()))
    lists = [n for n in found if isinstance(n, ast.Name) and isinstance(node, ast.Name) and n.id == node.id]
    return any(module.scope_of(n).lookup(n.id) is module.scope_of(node).lookup(n.id) for n in lists)


def beside(project: Project, module: Module, call: ast.Call, whole: tuple[Module, ast.expr]) -> ast.expr | None:
    """A model of which an optimizer is constructed with parameters beside those of another one."""
    slot = project.slot(*whole)
    origins = project.origins([slot]) if slot is not None else set()

    def part(node: ast.expr) -> bool:
        """Whether a model is the whole one, or a part of it by whichever name."""
        value = single_assignment(module, node) if isinstance(node, ast.Name) else None
        slots = (project.slot(module, n) for n in (*walk(node), *(walk(value) if value is not None else ())))
        return any(origins & project.origins([s]) for s in slots if s is not None)

    models = list(_taken_from(project, module, call))
    others = [model for model in models if not part(model)]
    return others[0] if 0 < len(others) < len(models) else None


def _taken_from(project: Project, module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The models whose parameters stand in the arguments of a call, in what its variables are given and what is added there."""
    waiting: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
    seen: set[Slot] = set()
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            yield node.value
            continue
        waiting += ast.iter_child_nodes(node)
        slot = project.slot(module, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if slot is None or slot in seen:
            continue
        seen.add(slot)
        waiting += (a.value for a in project.once(Occurrences, module).assigned_to([slot]))
        waiting += (a.value for a in module.of(ast.AugAssign) if project.slot(module, a.target) == slot)
        added = (c for name in ADDS for c in module.method_calls.get(name, ()))
        waiting += (arg for each, method in added if project.slot(module, method.value) == slot for arg in each.args)


def _all_of(module: Module, node: ast.expr) -> Held | None:
    """The model of which an expression gives parameters, and which of them."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return _groups(module, node)
    chosen = _chosen(module, node)
    return _together(module, [chosen]) if chosen is not None else None


def _groups(module: Module, node: ast.List | ast.Tuple) -> Held | None:
    parts = [
        value
        for group in node.elts
        if isinstance(group, ast.Dict)
        for key, value in zip(group.keys, group.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "params"
    ]
    if len(parts) != len(node.elts) or not parts:
        return None
    chosen = [c for p in parts if (c := _chosen(module, p)) is not None]
    if len(chosen) == len(parts):
        return _together(module, chosen)
    lists = [p for p in parts if isinstance(p, ast.Name)]
    return _sorted_into(module, lists) if not chosen and len(lists) == len(parts) else None


def _together(module: Module, groups: list[Chosen]) -> Held | None:
    """What groups of the parameters of one model hold: all of it where their conditions leave none out."""
    model = groups[0][0]
    if any(ast.dump(other) != ast.dump(model) for other, _ in groups):
        return None
    whole = leave_none_out([[c for c in asked if not _asks_grad(c)] for _, asked in groups])
    return Held(module, model, any(_asks_grad(c) for _, asked in groups for c in asked), not whole)


def _chosen(module: Module, node: ast.expr) -> Chosen | None:
    """The model of `model.parameters()` or `named_parameters()`, also of `list()`, `filter()`, a comprehension or a name for
    it, and all that is asked of a parameter which is taken."""
    if isinstance(node, ast.Name):
        value = single_assignment(module, node) if not _added_to(module, node) else None
        return _chosen(module, value) if isinstance(value, (ast.Call, ast.ListComp)) else None
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        loop = node.generators[0]
        parameter, source = _parameter(loop.target), _chosen(module, loop.iter)
        given = node.elt.elts[-1] if isinstance(node.elt, ast.Tuple) and len(node.elt.elts) == 2 else node.elt
        if source is None or len(node.generators) != 1 or parameter is None or ast.unparse(given) != parameter:
            return None
        names = {parameter: "p"} | (
            {ast.unparse(loop.target.elts[0]): "n"} if isinstance(loop.target, ast.Tuple) else {}
        )
        return source[0], source[1] + [called(c, names) for test in loop.ifs for c in conjuncts(test)]
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "list" and len(node.args) == 1:
        return _chosen(module, node.args[0])
    if isinstance(node.func, ast.Name) and node.func.id == "filter" and len(node.args) == 2:
        test, source = node.args[0], _chosen(module, node.args[1])
        if source is None or not isinstance(test, ast.Lambda) or len(test.args.args) != 1:
            return None
        return source[0], source[1] + [called(c, {test.args.args[0].arg: "p"}) for c in conjuncts(test.body)]
    named = isinstance(node.func, ast.Attribute) and node.func.attr in ("parameters", "named_parameters")
    bare = not node.args and not node.keywords
    return (node.func.value, []) if isinstance(node.func, ast.Attribute) and named and bare else None


def _parameter(target: ast.expr) -> str | None:
    """What a loop over parameters, or names and parameters, calls each."""
    last = target.elts[-1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target
    return last.id if isinstance(last, ast.Name) else None


def _asks_grad(test: ast.expr) -> bool:
    return isinstance(test, ast.Attribute) and test.attr == "requires_grad" and isinstance(test.value, ast.Name)


def _sorted_into(module: Module, lists: list[ast.Name]) -> Held | None:
    """The model whose parameters a loop sorts into lists, each into one of them."""
    names = {n.id for n in lists}
    scope = module.scope_of(lists[0])
    empty = [single_assignment(module, n) for n in lists]
    if len(names) != len(lists) or not all(isinstance(e, ast.List) and not e.elts for e in empty):
        return None
    puts = [
        n
        for n in module.nodes
        if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load) and module.scope_of(n) is scope
    ]
    loops = {p for put in puts for p in module.ancestors(put) if isinstance(p, ast.For)}
    if len(loops) != 1:
        return None
    loop = loops.pop()
    inside = {id(n) for n in walk(loop)}
    source, parameter = _chosen(module, loop.iter), _parameter(loop.target)
    free = [p for p in puts if id(p) not in inside and not any(p is name for name in lists)]
    if source is None or source[1] or parameter is None or free or loop.orelse:
        return None
    return Held(module, source[0], True, False) if _each_put(loop.body, names, parameter) else None


def _each_put(body: list[ast.stmt], names: set[str], parameter: str) -> bool:
    """Whether every way through statements puts a parameter into one of the lists, unless it is frozen."""
    for stmt in body:
        if isinstance(stmt, ast.Expr) and _puts(stmt.value, names, parameter):
            return True
        if isinstance(stmt, ast.If):
            frozen = isinstance(stmt.test, ast.UnaryOp) and _asks_grad(stmt.test.operand)
            if frozen and len(stmt.body) == 1 and isinstance(stmt.body[0], ast.Continue) and not stmt.orelse:
                continue
            if _each_put(stmt.body, names, parameter) and _each_put(stmt.orelse, names, parameter):
                return True
        if any(isinstance(n, (ast.Continue, ast.Break, ast.Return)) for n in walk(stmt)):
            return False
    return False


def _puts(call: ast.expr, names: set[str], parameter: str) -> bool:
    put = isinstance(call, ast.Call) and dotted(call.func) in {f"{name}.append" for name in names}
    return isinstance(call, ast.Call) and put and [ast.unparse(a) for a in call.args] == [parameter]
