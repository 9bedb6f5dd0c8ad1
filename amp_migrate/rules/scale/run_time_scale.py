"""A loss scale known only at run time: "dynamic", None, a number or its string, decided by an expression.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize (loss_scale)
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update

It is read once, where the scaler is created, into None for a dynamic scale or a float for a static one: what `update`
takes (`held_scale.py`). No code of its own in the report: AMP110 and AMP114 speak of it.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.logic import bracketed, unbracketed
from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.home import Home, only_inside
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.switch.flags import flag_in_call
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.static_scale import copied, number, pinned
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.clamp import first_scale
from amp_migrate.rules.scale.guarded import asked_first, guarded

NAMESPACES = frozenset("args opt opts options hparams hps flags FLAGS".split())  # what argparse and absl hand out
SAVING = frozenset("save dump dumps safe_dump".split())
DYNAMIC = (None, "dynamic")


def preparation(m: Migration, home: Home, scale: ast.expr) -> tuple[list[str], str]:
    """The statements before the scaler's creation that read the scale, and what `init_scale` is given.

    Raises Blocked where the expression cannot be evaluated there.
    """
    init, module = home.init, home.scope.module
    quote = m.style(module).quote
    name = variable(m, home, scale)
    text = _at_home(m, home, scale)
    held = pinned(init)
    none = "None" if held is None else repr(held)
    start = f"{name} or {first_scale(m, home) or '2.0**16'}" if held is None else name
    if asked := asked_first(m, home, [scale]):
        text = guarded(text, asked, "None")
        lines = [f"{name} = {text}"]
        return [*lines, f"{name} = {none} if {name} in (None, {quote}dynamic{quote}) else float({name})"], start
    if isinstance(scale, ast.IfExp) and home.scope is init.site.scope:
        source, test = init.module.source, bracketed(scale.test, init.module.source(scale.test))
        if _dynamic(scale.body) and numeric(scale.orelse, scale.test):
            return [f"{name} = {none} if {test} else {_float(init.module, scale.orelse)}"], start
        if _dynamic(scale.orelse) and numeric(scale.body, scale.test):
            return [f"{name} = {_float(init.module, scale.body)} if {test} else {none}"], start
        text = source(scale)
    node = ast.parse(text, mode="eval").body
    if numeric(scale, None) or number(node) is not None:
        return [f"{name} = {_as_float(text)}"], name
    plain = isinstance(node, (ast.Name, ast.Attribute))  # read as often as it is written
    lines, read = ([], text) if plain else ([f"{name} = {text}"], name)
    return [*lines, f"{name} = {none} if {read} in (None, {quote}dynamic{quote}) else float({read})"], start


def variable(m: Migration, home: Home, scale: ast.expr) -> str:
    """The variable that holds the scale: the one the program has, where it may be set, else one of its own."""
    module, scope = home.init.module, home.scope
    own = isinstance(scale, ast.Attribute) and isinstance(scale.value, ast.Name) and scale.value.id == scope.self_name
    # Above the branch that it is read in, None stands for it: what has a value by then keeps it.
    kept = home.above is not None and not (isinstance(scale, ast.Name) and only_inside(home.init, home.inside, scale))
    kept = kept or _read_elsewhere(m, home, scale) or bool(asked_first(m, home, [scale]))
    if scope is home.init.site.scope and (own or home.kind != "self") and not kept:
        if isinstance(scale, ast.Name) and scope.lookup(scale.id) is scope and scale.id not in scope.imports:
            return scale.id
        if isinstance(scale, ast.Attribute) and isinstance(scale.value, ast.Name):
            if scale.value.id in NAMESPACES or scale.value.id == scope.self_name:
                return module.source(scale)
        if isinstance(scale, ast.Subscript) and isinstance(scale.slice, ast.Constant):
            return module.source(scale)
    names = ("loss_scale", "static_loss_scale", "native_loss_scale")
    if home.kind == "self":
        holder = f"{scope.self_name}."
        free = (n for n in names if not any(f"{holder}{n}" in t.text or f"def {n}" in t.text for t in m.unit.tied))
        return f"{holder}{next(free, names[-1])}"
    return unbound(scope, names)


def _read_elsewhere(m: Migration, home: Home, scale: ast.expr) -> bool:
    """Whether the program has another use for what decides the scale, in the name of a file or a line of a log: then it
    keeps the value it has."""
    if isinstance(scale, ast.Subscript):
        return _saved(m, home.init.module, scale)
    of_apex = {n for init in m.unit.inits for n in walk(init.call)}
    module, scope, reads = home.init.module, home.scope, list[tuple[Module, ast.expr]]()
    if isinstance(scale, ast.Name):
        owner = module.scope_of(scale).lookup(scale.id)
        reads = [(module, n) for n in module.loads[scale.id] if module.scope_of(n).lookup(scale.id) is owner]
    elif isinstance(scale, ast.Attribute):
        reads = [(t, n) for t in m.unit.tied for n in t.named.get(scale.attr, ()) if isinstance(n, ast.Attribute)]
    later = (  # in the same scope, what stands above has read it already
        (t, n) for t, n in reads if t.scope_of(n) is not scope or n.lineno > home.anchor.lineno or _repeats(t, n, scope)
    )
    return any(node not in of_apex and m.live(t, node) for t, node in later)


def _saved(m: Migration, module: Module, item: ast.Subscript) -> bool:
    """Whether the settings that a scale is an item of are put whole into a checkpoint or a file: `{"config": settings}`."""
    root: ast.expr = item
    while isinstance(root, ast.Subscript):
        root = root.value
    slot = m.project.slot(module, root)
    reached = m.project.reaches({slot}) if slot is not None else set()
    for other in m.unit.tied:
        for name in {s.name for s in reached}:
            for node in (*other.loads.get(name, ()), *other.named.get(name, ())):
                around = other.parents.get(node)
                kept = isinstance(around, ast.Dict) and node in around.values
                saves = isinstance(around, ast.Call) and called_name(around) in SAVING
                kept = kept or (saves and not m.project.resolved.get(around))  # type: ignore[call-overload]
                if kept and m.project.slot(other, node) in reached:
                    return True
    return False


def _repeats(module: Module, node: ast.AST, scope: Scope) -> bool:
    """Whether a node stands in a loop of its scope."""
    inside = takewhile(lambda a: a is not scope.node, module.ancestors(node))
    return any(isinstance(a, LOOP_NODES) for a in inside)


def reaches(m: Migration, home: Home, name: str, scale: ast.expr, there: Scope) -> bool:
    """Whether the variable set at the scaler's creation is the same variable in another scope."""
    if isinstance(scale, (ast.Name, ast.Attribute, ast.Subscript)) and name == home.init.module.source(scale):
        return visible(m.project, name, home.init.site.scope, there)
    if home.kind == "self":
        return visible(m.project, home.scope.self_name or "self", home.scope, there)
    return home.scope in list(there.chain())


def _at_home(m: Migration, home: Home, scale: ast.expr) -> str:
    """The expression as it reads where the scaler is created."""
    init = home.init
    text = init.module.source(scale)
    if home.scope is init.site.scope:
        if only_inside(init, home.climbed, scale):
            message = f"{text} decides the loss scale and is only set under the switch; set it above"
            raise Blocked(init.module, scale, "AMP114", "amp.initialize", message)
        return text
    if (source := copied(init, scale)) is not None:
        text = init.module.source(source)
    if visible(m.project, text, init.site.scope, home.scope):
        return text
    function = m.project.functions.get(init.site.scope.node)
    for module, call in m.project.calls.get(function, []) if function is not None else ():
        if module.statement(call) is home.anchor and function is not None:
            moved = flag_in_call(m.project, Flag(function.scope, (text,)), function, module, call, home.scope)
            if moved is not None and moved.parts:
                return unbracketed(moved.parts[0])
    if isinstance(known := init.only("loss_scale"), (int, float)):
        return repr(float(known))  # as all calls in sight pass it
    raise Blocked(
        init.module,
        scale,
        "AMP114",
        "amp.initialize",
        f"{text} decides the loss scale, and {home.scope.name or 'the module'}, where the scaler is created, cannot see "
        "it; hand it there",
    )


def _dynamic(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in DYNAMIC


def numeric(node: ast.expr, test: ast.expr | None) -> bool:
    """Whether an expression is a number: by its form, or because the test before it compares it with one."""
    if number(node) is not None:
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int"):
        return True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.dump(test.operand) == ast.dump(node)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and number(test.comparators[0]) is not None:
        return ast.dump(test.left) == ast.dump(node)
    return test is not None and ast.dump(test) == ast.dump(node)


def _as_float(text: str) -> str:
    """A number as `update` takes it: `int(...)` is none."""
    called = ast.parse(text, mode="eval").body
    whole = isinstance(called, ast.Call) and called_name(called) == "int"
    return f"float({text})" if whole else text


def _float(module: Module, node: ast.expr) -> str:
    known = number(node)
    if known is not None:
        return repr(known)
    text = module.source(node)
    return text if isinstance(node, ast.Call) and text.startswith("float(") else f"float({text})"
