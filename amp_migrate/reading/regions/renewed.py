"""Networks that a function makes anew beside those that are trained, where only the weights of these are made half: by hand
for an `FP16_Optimizer`, or by O2 and O3. A copy read from a checkpoint for an evaluation computes in float32 there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.handed_back import SAME_OBJECT_METHODS
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.regions.parts import only_own
from amp_migrate.reading.sites.half_casts import cast_to_half
from amp_migrate.reading.units.legacy_models import HALVERS
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.reaching import reaching_at
from amp_migrate.reading.values.sources import Sources

SETS_UP = HALVERS | {"initialize"}
# Methods that give the network back, in no other dtype.
PLACING = SAME_OBJECT_METHODS - frozenset("half double apply type".split())

_CLASS = re.compile(r"_*[A-Z]\w*[a-z]")
_OF_NETWORKS = frozenset("parameters named_parameters cuda to half float eval train forward modules state_dict".split())


def never_cast(unit: Unit, module: Module, called: ast.expr) -> bool:
    """Whether a variable that is called holds a network which its own function made, and nothing made half since; or all that
    call the function give it such a one."""
    return bool(unit.inits) and only_own(unit) and _never_cast(unit, module, called, frozenset())


def _never_cast(unit: Unit, module: Module, called: ast.expr, seen: frozenset[Scope]) -> bool:
    if isinstance(called, ast.Call):
        return _is_new(unit, module, called, _taken(module, called))
    if not isinstance(called, ast.Name):
        return False
    scope = module.scope_of(called)
    if scope.params and called.id in scope.params and len(scope.bindings.get(called.id, ())) == 1:
        return scope not in seen and _given_new(unit, scope, called, seen | {scope})
    if called.id not in scope.bindings:
        function = unit.project.functions.get(scope.node)
        calls = unit.project.calls.get(function, ()) if function is not None else ()
        if function is None or not calls or unit.project.once(Sources).is_value(function):
            return False
        return all(_new_outside(unit, m, call, scope, called.id) for m, call in calls)
    return called.id not in scope.params and _new_at(unit, scope, called, called.id)


def runs_new(unit: Unit, module: Module, call: ast.Call, is_model: Callable[[Module, ast.expr], bool]) -> bool:
    """Whether a call runs a function which runs a network that it has from around it, and that is such a one by then."""
    if not unit.inits or not only_own(unit):
        return False
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id not in f.scope.bindings
        and f.module.scope_of(n) is f.scope
        and is_model(f.module, n.func)
        and _new_outside(unit, module, call, f.scope, n.func.id)
        for f in unit.project.resolved.get(call, ())
        for n in f.inside
    )


def _new_outside(unit: Unit, module: Module, call: ast.Call, inner: Scope, name: str) -> bool:
    """Whether a name that a function has from around it holds a new network where a call in that body runs the function."""
    owner = inner.lookup(name)
    if owner is None or owner is not module.scope_of(call) or name in owner.params:
        return False
    own = all(owner.module.scope_of(b) is owner for b in owner.bindings[name])
    return own and _new_at(unit, owner, call.func, name)


def _new_at(unit: Unit, scope: Scope, use: ast.expr, name: str) -> bool:
    made = _made(unit, scope, use, name, set())
    return bool(made) and all(s is not None and not _cast_below(unit, scope, s.lineno, use, name) for s in made)


def _given_new(unit: Unit, scope: Scope, use: ast.Name, seen: frozenset[Scope]) -> bool:
    """Whether a parameter is a new network in every call of its function, all of which are in sight, and stays float32 there."""
    function = unit.project.functions.get(scope.node)
    calls = unit.project.calls.get(function, ()) if function is not None else ()
    if function is None or not calls or unit.project.once(Sources).is_value(function):
        return False
    given = [(m, dict(unit.project.arguments(function, call)).get(use.id)) for m, call in calls]
    new = all(value is not None and _never_cast(unit, m, value, seen) for m, value in given)
    return new and not _cast_below(unit, scope, getattr(scope.node, "lineno", 0), use, use.id)


def _made(unit: Unit, scope: Scope, use: ast.expr, name: str, seen: set[ast.AST]) -> set[ast.Assign | None]:
    """The statements that make what a variable holds, through those that wrap it; None for one that is another network, or
    is not seen to be made here."""
    found: set[ast.Assign | None] = set()
    for binding in reaching_at(scope, use, name):
        if binding in seen:
            continue
        seen.add(binding)
        stmt = scope.module.parents.get(binding)
        if not isinstance(stmt, ast.Assign) or stmt.targets != [binding]:
            return {None}
        taken = _taken(scope.module, stmt.value)
        own = [n for n in taken if isinstance(n, ast.Name) and n.id == name]
        if own:
            found |= _made(unit, scope, own[0], name, seen)
        else:
            found.add(stmt if _is_new(unit, scope.module, stmt.value, taken) else None)
    return found


def _taken(module: Module, value: ast.expr) -> list[ast.Name | ast.Attribute]:
    """The variables that a value is made of, but for those of which it takes the state or the settings alone."""
    named = (n for n in walk(value) if isinstance(n, (ast.Name, ast.Attribute)))
    return [n for n in named if getattr(module.parents.get(n), "attr", "") not in ("state_dict", "config")]


def _is_new(unit: Unit, module: Module, call: ast.expr, taken: list[ast.Name | ast.Attribute]) -> bool:
    """Whether a call makes a network of float32 weights: out of none that is there already, in no function that makes half."""
    if not isinstance(call, ast.Call) or any(unit.holds_model(module, n) for n in taken if n is not call.func):
        return False
    while isinstance(call.func, ast.Attribute) and call.func.attr in PLACING and isinstance(call.func.value, ast.Call):
        if _casts(module, call):
            return False
        call = call.func.value  # `Net().to(device)`
    functions = unit.project.resolved.get(call, [])
    made = _constructs(unit, module, call) or any(
        isinstance(n, ast.Call) and _constructs(unit, f.module, n) for f in functions for n in f.inside
    )
    return made and not any(_makes_half(unit, f) for f in functions)


def _constructs(unit: Unit, module: Module, call: ast.Call) -> bool:
    """Whether a call makes a network: of a class of the program's, or of one out of sight by `from_pretrained` or its name, which
    wraps none."""
    cls = unit.project.find_class(module, call.func)
    if cls is not None or called_name(call) == "from_pretrained":
        return cls is None or cls.is_module
    if not _CLASS.match(called_name(call)) or unit.project.resolved.get(call):
        return False
    return not any(_may_be_network(module, n) for n in _taken(module, call) if n is not call.func)


def _may_be_network(module: Module, taken: ast.Name | ast.Attribute) -> bool:
    """Whether a variable that a constructor takes is used as networks are, in the function around it."""
    scope, text = module.scope_of(taken), ast.unparse(taken)
    for node in walk(scope.node):
        if isinstance(node, ast.Attribute) and node.attr in _OF_NETWORKS and ast.unparse(node.value) == text:
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == text:
            return True
    return False


def _cast_below(unit: Unit, scope: Scope, line: int, use: ast.expr, name: str) -> bool:
    """Whether something below a line, where a network is made or taken, and above its use makes it half or may do so, and nothing
    below that makes it float32 again."""
    cast = back = 0
    for node in walk(scope.node):
        if not isinstance(node, ast.Call) or not line < node.lineno < use.lineno:
            continue
        given = (node.func, *node.args, *(k.value for k in node.keywords))
        if not any(isinstance(n, ast.Name) and n.id == name for value in given for n in _roots(value)):
            continue
        if _casts(scope.module, node) or any(_makes_half(unit, f) for f in unit.project.resolved.get(node, ())):
            cast = max(cast, node.lineno)
        elif made_float(scope.module, node, name) and scope.module.statement(node) in scope.body:
            back = max(back, node.lineno)
    return cast > back


def made_float(module: Module, call: ast.Call, name: str) -> bool:
    """Whether a statement makes a network of a variable float32, and keeps it there: `net = net.float().eval()`."""
    stmt, root = module.parents.get(call), call.func
    methods = list[str]()
    while isinstance(root, (ast.Attribute, ast.Call)):
        methods += [root.attr] if isinstance(root, ast.Attribute) else []
        root = root.value if isinstance(root, ast.Attribute) else root.func
    if not isinstance(root, ast.Name) or root.id != name or "float" not in methods or not PLACING.issuperset(methods):
        return False
    kept = isinstance(stmt, ast.Assign) and [getattr(t, "id", None) for t in stmt.targets] == [name]
    return kept or isinstance(stmt, ast.Expr)


def _roots(value: ast.expr) -> Iterator[ast.expr]:
    """An expression, what a method in it is called on, and the items of a list."""
    yield value
    if isinstance(value, ast.Attribute):
        yield from _roots(value.value)
    elif isinstance(value, ast.Call):
        yield from _roots(value.func)
    for item in value.elts if isinstance(value, (ast.List, ast.Tuple)) else ():
        yield from _roots(item)


def _makes_half(unit: Unit, function: Function) -> bool:
    """Whether a function makes a network half, itself or through those it calls."""

    def below(f: Function) -> list[Function]:
        return [g for n in f.inside if isinstance(n, ast.Call) for g in unit.project.resolved.get(n, ())]

    return any(isinstance(n, ast.Call) and _casts(f.module, n) for f in reached([function], below) for n in f.inside)


def _casts(module: Module, call: ast.Call) -> bool:
    return called_name(call) in SETS_UP or cast_to_half(module, call)
