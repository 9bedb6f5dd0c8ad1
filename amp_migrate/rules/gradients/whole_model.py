"""Whether an optimizer has every parameter of a model that can get a gradient, whichever function made it and its groups.

Then what clips the parameters of the model where there is no mixed precision clips just those that the optimizer steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.migration import Migration

ADDING = ("add_module", "register_module", "register_parameter")
Held = tuple[Module, ast.expr, bool]  # a model, and whether parameters that are frozen then are left out


def steps_whole(m: Migration, module: Module, optimizer: ast.expr, model: ast.expr) -> bool:
    """Whether all that an optimizer may be was made with the parameters of a model, and of nothing else."""
    values = m.project.once(Values)
    made = [v for v in values.may_be(module, optimizer) if v.constant is not None]
    held = [_held(m.project, v.module, v.node) if isinstance(v.node, ast.Call) else None for v in made]
    if not made or any(v.kind != "call" for v in made) or not _known(m.project, module, model):
        return False
    if any("add_param_group" in each.text for each in m.unit.reach):
        return False
    return all(
        one is not None
        and _same(m.project, (module, model), one[:2])
        and not _grows(m.project, *one[:2])
        and not (one[2] and _thawed(m))
        for one in held
    )


def _known(project: Project, module: Module, model: ast.expr) -> bool:
    found = project.once(Values).may_be(module, model)
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


def _held(project: Project, module: Module, call: ast.Call) -> Held | None:
    """The model whose parameters are all that an optimizer is constructed with."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    if given is None:
        return None
    found = project.once(Values).may_be(module, given)
    if len(found) != 1:
        return None
    (value,) = found
    return _all_of(value.module, value.node) if isinstance(value.node, ast.expr) else None


def _all_of(module: Module, node: ast.expr) -> Held | None:
    """The model of which an expression gives all parameters, or all that are not frozen."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "filter" and node.args[1:]:
        test = node.args[0].body if isinstance(node.args[0], ast.Lambda) else None
        inner = _all_of(module, node.args[1]) if test is not None and _asks_grad(test) else None
        return (*inner[:2], True) if inner is not None else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "list"
        and len(node.args) == 1
    ):
        return _all_of(module, node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        bare = not node.args and not node.keywords
        return (module, node.func.value, False) if bare and node.func.attr == "parameters" else None
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        tests: list[ast.expr] = []
        found = _chosen(module, node, tests)
        return found if not tests else None
    return _groups(module, node) if isinstance(node, (ast.List, ast.Tuple)) else None


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
    if all(isinstance(p, ast.Name) for p in parts):
        return _sorted_into(module, [p for p in parts if isinstance(p, ast.Name)])
    if len(parts) == 1:
        return _all_of(module, parts[0])
    tests: list[ast.expr] = []
    models = [_chosen(module, p, tests) if isinstance(p, (ast.ListComp, ast.GeneratorExp)) else None for p in parts]
    if len(parts) != 2 or len(tests) != 2 or models[0] is None or models[1] is None:
        return None
    alike = ast.dump(models[0][1]) == ast.dump(models[1][1]) and models[0][2] == models[1][2]
    return models[0] if alike and _opposite(*tests) else None


def _chosen(module: Module, node: ast.ListComp | ast.GeneratorExp, tests: list[ast.expr]) -> Held | None:
    """`p for n, p in model.named_parameters() if ...`: the model; what is asked beside `p.requires_grad` goes to `tests`,
    which takes one question."""
    loop, most = node.generators[0], len(tests) + 1
    parameter = _parameter(loop.target)
    if len(node.generators) != 1 or parameter is None or not isinstance(node.elt, ast.Name):
        return None
    asked = [c for test in loop.ifs for c in _conjuncts(test)]
    rest = [c for c in asked if not _asks_grad(c)]
    model = _iterated(module, loop.iter)
    if model is None or node.elt.id != parameter or len(rest) > 1 or (rest and most > 2):
        return None
    tests += rest
    return (module, model, len(rest) < len(asked))


def _iterated(module: Module, node: ast.expr) -> ast.expr | None:
    """The model of `model.parameters()` or `model.named_parameters()`, also of `list()` of it or by another name."""
    if isinstance(node, ast.Name):
        value = single_assignment(module, node)
        return _iterated(module, value) if isinstance(value, ast.Call) else None
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "list" and len(node.args) == 1:
        return _iterated(module, node.args[0])
    named = isinstance(node.func, ast.Attribute) and node.func.attr in ("parameters", "named_parameters")
    bare = not node.args and not node.keywords
    return node.func.value if isinstance(node.func, ast.Attribute) and named and bare else None


def _parameter(target: ast.expr) -> str | None:
    """What a loop over parameters, or names and parameters, calls each."""
    last = target.elts[-1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target
    return last.id if isinstance(last, ast.Name) else None


def _conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _conjuncts(value)
    else:
        yield test


def _asks_grad(test: ast.expr) -> bool:
    return isinstance(test, ast.Attribute) and test.attr == "requires_grad" and isinstance(test.value, ast.Name)


def _opposite(one: ast.expr, two: ast.expr) -> bool:
    return any(
        isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.Not) and ast.dump(a.operand) == ast.dump(b)
        for a, b in ((one, two), (two, one))
    )


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
    model, parameter = _iterated(module, loop.iter), _parameter(loop.target)
    free = [p for p in puts if id(p) not in inside and not any(p is name for name in lists)]
    if model is None or parameter is None or free or loop.orelse:
        return None
    return (module, model, True) if _each_put(loop.body, names, parameter) else None


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
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "append"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in names
        and [ast.unparse(a) for a in call.args] == [parameter]
    )
