"""A method that sets mixed precision up and that users may leave out: `context.configure_amp(model, optimizer)`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler

The class keeps a flag, False from the beginning and True once the method ran, and scales only then; its step is the same
for both. It steps through the scaler, so that there must be one from the beginning: a disabled one. No code of its own in
the report: AMP110 speaks of it.
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.reading.program.tree import methods_called, walk
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.left_out import left_out
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.run_time_scale import variable

CODES: tuple[Code, ...] = ()


def apply(m: Migration) -> None:
    """Create a disabled scaler where the flag is first set."""
    if not m.scales:
        return
    for plan in m.scalers:
        begun: set[Function] = set()
        creators = [f for home in plan.homes if (f := m.project.functions.get(home.scope.node)) is not None]
        for home in plan.homes:
            function = m.project.functions.get(home.scope.node)
            if home.kind != "self" or home.carrier or function is None or function.cls is None:
                continue
            made = function.cls.method("__init__")
            if made is None or made is function or made in begun or m.project.calls.get(function):
                continue
            stmt = _flag_at_first(m, made)
            if stmt is not None and any(
                _leads_to(m, made.module, s, f) for f in creators for s in made.scope.body if s.lineno < stmt.lineno
            ):
                continue  # one is there by then
            if stmt is None or not any(function.cls.shares_instances(keeper) for keeper in plan.settled):
                continue
            begun.add(made)
            disabled(m, home, made, stmt, plan)


def disabled(
    m: Migration,
    home: Home,
    made: Function,
    stmt: ast.stmt,
    plan: ScalerPlan,
    said: str = "",
) -> None:
    """Give an object a disabled scaler, and the settings beside it, where its constructor has a statement; or a switch
    that is off."""
    module, name = made.module, made.scope.self_name or "self"
    kept = f"{name}.{plan.base_name}"
    if plan.optional and _is_begun(m, made.node, plan):
        return
    if plan.optional:
        m.edit(module).insert_after(stmt, f"{kept} = False")
        m.output.note(module, stmt, "AMP110", "torch.autocast", f"{kept} is False {_until(home, made.scope)}", "as-is")
        return
    m.edit(module).insert_after(stmt, f"{kept} = {m.scaler_off(module, made.scope)}")
    m.until_then.append((module, stmt, name))
    scale = static_scale(home.init)
    if isinstance(scale, ast.expr):  # what `update` is given
        held = variable(m, home, scale)
        holder, _, attribute = held.partition(".")
        if holder == home.scope.self_name and not _sets(made, attribute):
            m.edit(module).insert_after(stmt, f"{name}.{attribute} = None")
    m.output.done(
        module, stmt, "AMP110", "amp.initialize", said or f"a disabled scaler {_until(home, made.scope)}", "look"
    )


def _is_begun(m: Migration, place: ast.AST, plan: ScalerPlan) -> bool:
    """Whether an earlier unit has said there that a switch is off, which this one turns on as well; this one says so then."""
    m.output.begun.add((place, plan.base_name))
    return (place, plan.base_name) in m.earlier.begun


def _until(home: Home, scope: Scope) -> str:
    """Until when an object has what does nothing."""
    line = (home.init.call if home.init.site.scope is home.scope else home.anchor).lineno
    where = f"line {line}" if home.scope.module is scope.module else f"{home.scope.module.display}:{line}"
    return f"until {where}" if home.scope is scope else f"until {home.scope.name} runs ({where})"


def _sets(made: Function, attribute: str) -> bool:
    """Whether a constructor gives its object an attribute, itself or by one of a base."""
    constructors = (
        [c.methods["__init__"] for c in made.cls.ancestry() if "__init__" in c.methods] if made.cls else [made]
    )
    return any(
        isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and n.attr == attribute
        for function in constructors
        for n in function.inside
    )


def _class_default(m: Migration, cls: ClassInfo, plan: ScalerPlan, home: Home) -> None:
    """Give the objects of a class without a constructor of its own a disabled scaler, or a switch that is off."""
    if plan.optional and _is_begun(m, cls.node, plan):
        return
    body = [s for s in cls.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    value = "False" if plan.optional else m.scaler_off(cls.module, cls.scope)
    m.edit(cls.module).insert_before(body[0], f"{plan.base_name} = {value}")
    message = f"{plan.base_name} is {'False' if plan.optional else 'a disabled scaler'} {_until(home, cls.scope)}"
    m.output.note(cls.module, body[0], "AMP110", "torch.autocast", message, "look")


def asked_before(m: Migration) -> None:
    """A method that may run before the one that creates the scaler, as nothing orders them, finds a disabled one: it did
    without Apex. The same with a switch that tells methods without a scaler."""
    for plan in [*(m.scalers if m.scales else ()), *m.switch.plans]:
        homes: dict[Function, list[tuple[Home, Function]]] = {}  # by the constructor that may give the object one first
        for home in plan.created:
            function = m.project.functions.get(home.scope.node)
            if home.kind != "self" or function is None or function.cls is None or not plan.keeps(function.cls):
                continue
            made = function.cls.method("__init__")
            if made is not None:
                homes.setdefault(made, []).append((home, function))
            elif _wanted(m, plan, home, function):
                _class_default(m, function.cls, plan, home)
        for made, those in homes.items():
            _from_the_beginning(m, plan, made, those)


def _from_the_beginning(m: Migration, plan: ScalerPlan, made: Function, homes: list[tuple[Home, Function]]) -> None:
    """Have a constructor give its object a disabled scaler before anything that it runs may create one, where it needs one."""
    then = () if plan.optional else m.until_then
    own = [other.anchor for other in plan.created if other.scope is made.scope]
    if any(module is made.module and _inside(module, stmt, made) for module, stmt, _ in then):
        return
    if any(anchor in made.scope.body for anchor in own):
        return  # the constructor has made one already
    if _always_made(m, [home for home, _ in homes], made, {m.project.functions.get(s.node) for s in plan.methods}):
        return
    creators = [function for _, function in homes if function is not made]
    asked = [
        (home, f)
        for home, f in homes
        if f is not made and (made not in m.project.callers(f) or left_out(m.project, home))
    ]
    if any(_made_below(m, made, function) for _, function in asked):
        return
    needing = [home for home, function in asked if _wanted(m, plan, home, function)]
    if needing:
        disabled(m, needing[0], made, _place_for(m, made, creators, own), plan)


def _wanted(m: Migration, plan: ScalerPlan, home: Home, creator: Function) -> bool:
    """Whether a method may read what its object keeps before, or without, the one that creates it."""
    if left_out(m.project, home):
        return True
    cls, readers = creator.cls, (m.project.functions.get(scope.node) for scope in plan.methods)
    return cls is not None and any(
        f is not None and f.cls is not None and f.cls.shares_instances(cls) and not _after(m, f, creator, frozenset())
        for f in readers
    )


def _after(m: Migration, reader: Function, creator: Function, seen: frozenset[Function]) -> bool:
    """Whether a method is only called by, or below a call of, the one that creates the scaler."""
    calls = m.project.calls.get(reader, [])
    if reader is creator or reader in seen:
        return True
    if not calls or is_public(m.project, reader):
        return False
    first: dict[Scope, int] = {}
    for caller in m.project.callers(creator):
        for module, call in m.project.calls.get(caller, ()) if isinstance(caller, Function) else ():
            scope = module.scope_of(call)
            first[scope] = min(call.lineno, first.get(scope, call.lineno))
    for module, call in calls:
        scope = module.scope_of(call)
        outer = m.project.functions.get(scope.node)
        if first.get(scope, call.lineno) < call.lineno:
            continue
        if outer is None or not _after(m, outer, creator, seen | {reader}):
            return False
    return True


def _always_made(
    m: Migration, homes: list[Home], function: Function, readers: set[Function | None], deep: int = 0
) -> bool:
    """Whether a method comes by a statement that creates the scaler, whatever it is given, before it reads one."""
    anchors = [home.anchor for home in homes if not home.stays]
    for stmt in function.scope.body:
        if stmt in anchors:
            return True
        called = [f for n in walk(stmt) if isinstance(n, ast.Call) for f in m.project.callees(function.module, n)]
        plain = isinstance(stmt, (ast.Expr, ast.Assign)) and isinstance(stmt.value, ast.Call)
        if plain and deep < 3 and called and all(_always_made(m, homes, f, readers, deep + 1) for f in called):
            return True
        if any(isinstance(n, ast.Return) for n in walk(stmt)) or not readers.isdisjoint(called):
            return False
    return False


def _made_below(m: Migration, made: Function, creator: Function) -> bool:
    """Whether every class below one creates the scaler before it has the constructor of that class run.

    Raises Blocked where only some do: a disabled one would take the place of theirs.
    """
    assert made.cls is not None
    below = [c.methods["__init__"] for c in made.cls.descendants() if c is not made.cls and "__init__" in c.methods]
    early = [f for f in below if _before(m, f, creator, made)]
    if early and len(early) < len(below):
        message = (
            "is created before the constructor of the base runs, which other classes have run first; create it there"
        )
        raise Blocked(early[0].module, early[0].node, "AMP110", "amp.initialize", f"the scaler {message}")
    return bool(early)


def _before(m: Migration, function: Function, creator: Function, base: Function) -> bool:
    """Whether a constructor comes to a statement that creates the scaler before one that runs another constructor."""
    for stmt in function.scope.body:
        if _leads_to(m, function.module, stmt, base):
            return False
        if _leads_to(m, function.module, stmt, creator):
            return True
    return False


def _inside(module: Module, stmt: ast.stmt, made: Function) -> bool:
    return module.scope_of(stmt) is made.scope


def _place_for(m: Migration, made: Function, creators: list[Function], own: list[ast.stmt]) -> ast.stmt:
    """The statement of a constructor that stores the optimizer; else its last one that does not leave it. Where the
    constructor itself may set mixed precision up, or creates one of its `own`, the last one before that.

    Raises Blocked where the constructor begins with that.
    """
    stored = {s.name for s in m.unit.optimizer_slots}
    body = [s for s in made.scope.body if not isinstance(s, (ast.Return, ast.Raise))] or made.scope.body
    creating = {a for anchor in own for a in (anchor, *made.module.ancestors(anchor))}
    makes = (s in creating or any(_leads_to(m, made.module, s, creator) for creator in creators) for s in body)
    first = next((i for i, made_there in enumerate(makes) if made_there), len(body))
    if not first:
        message = "the scaler is created under a condition, and nothing stands before that in the constructor"
        raise Blocked(made.module, body[0], "AMP110", "amp.initialize", message)
    for stmt in body[:first]:
        if isinstance(stmt, ast.Assign) and any(
            isinstance(t, ast.Attribute) and t.attr in stored for t in stmt.targets
        ):
            return stmt
    return body[first - 1]


def _leads_to(m: Migration, module: Module, stmt: ast.stmt, creator: Function) -> bool:
    """Whether a statement may call the method that creates the scaler, itself or through others."""
    todo, seen = [n for n in walk(stmt) if isinstance(n, ast.Call)], set[Function]()
    while todo:
        for function in m.project.callees(module, todo.pop()):
            if function is creator:
                return True
            if function not in seen and function.cls is not None:
                seen.add(function)
                if creator in _called(m, function):
                    return True
    return False


def _called(m: Migration, function: Function) -> list[Function]:
    calls = (n for s in function.scope.body for n in walk(s) if isinstance(n, ast.Call))
    return [f for call in calls for f in m.project.callees(function.module, call)]


def _flag_at_first(m: Migration, made: Function) -> ast.stmt | None:
    """`self.use_amp = False` in a constructor, where a scaled loss stands beside a plain backward under that flag."""
    flags: set[str] = set()
    for loss in m.unit.losses:
        for parent in loss.module.ancestors(loss.with_stmt):
            if (
                isinstance(parent, ast.If)
                and m.live(loss.module, parent)
                and "backward" in methods_called(parent.orelse)
            ):
                flags |= {n.attr for n in walk(parent.test) if isinstance(n, ast.Attribute)}
    for stmt in made.scope.body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant) and not stmt.value.value:
            target = stmt.targets[0]
            if isinstance(target, ast.Attribute) and target.attr in flags:
                return stmt
    return None
