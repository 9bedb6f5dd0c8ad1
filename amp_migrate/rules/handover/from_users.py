"""What others set mixed precision up for takes the scaler from them, an optional parameter, told in the docstring: a library,
or a file whose callers are out of sight.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.from_users import HANDED, FromUsers, in_package
from amp_migrate.reading.scaler.threads import Thread
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.switch.flag import distinct
from amp_migrate.reading.switch.flags import guard_parts
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.rules.handover.docstrings import KEPT, USERS, document
from amp_migrate.rules.handover.scaler_passing import add_keyword, add_optional
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP228",
        "Users of a library hand the scaler over",
        "GradScaler",
        apex="Users call amp.initialize and hand the optimizer over; the library scales, for the state is global.",
        native="A GradScaler is an object: who makes it hands it over. The library, or the file whose callers are out of sight, "
        "takes it as an optional parameter, and without one makes one that is disabled. The same parameter is added to a "
        "function that saves or loads the state of amp where nothing in sight calls it.",
        why="A caller that did call amp.initialize must make a GradScaler now and hand it over: without, it trains in float32, "
        "as one that did not call it did.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",),
        examples=(
            Example(
                "def fit(model, optimizer, loader):\n    ...\n        loss = criterion(model(x), y)\n"
                "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()",
                "def fit(model, optimizer, loader, scaler=None):\n    if scaler is None:\n"
                '        scaler = torch.amp.GradScaler("cuda", enabled=False)\n    ...\n'
                '        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n'
                "            loss = criterion(model(x), y)\n"
                "        scaler.scale(loss).backward()",
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    """Write the parameters, what stands for a scaler that is left out, and the docstrings."""
    for plan in m.scalers if m.scales else ():
        if isinstance(plan, FromUsers):
            if m.unit.losses and not _casts(m) and not all(in_package(m.project, f.module) for f in plan.entries):
                raise plan.failure  # a helper for the backward: its program has the rest
            for function, kept in plan.entries.items():
                _enter(m, plan, function, kept)
            for thread in filter(plan.stays_open, list(plan.threads.values())):
                _stay_open(m, plan, thread)


def _stay_open(m: Migration, plan: FromUsers, thread: Thread) -> None:
    """A last parameter, None by default, for a function that is handed the scaler in sight: who calls it out of sight goes on as
    before."""
    function, name = thread.function, thread.name
    add_optional(m, function, f"{name}=None")
    _stand_in(m, function, name, switch := _switch(m, function))
    document(m, function, name, USERS)
    for module, call in thread.calls:
        if (call, name) not in plan.given:  # it may run several functions
            plan.given.add((call, name))
            add_keyword(m, module, call, name, "None" if call in thread.without else plan.at(module, call))
    trains = any(m.project.function_of(x.module, x.call) is function for x in m.unit.losses)
    message = (
        f"{function.name} takes {name}, None by default, which every call in sight hands over; without it, "
        f"{_without(switch, anew=True, does='trains' if trains else 'runs')}"
    )
    m.output.note(function.module, function.node, "AMP228", "GradScaler", message, "look")


def _enter(m: Migration, plan: FromUsers, function: Function, kept: ast.stmt | None) -> None:
    module, name, scope = function.module, plan.base_name, function.scope
    add_optional(m, function, f"{name}=None")
    switch = _switch(m, function)
    if kept is None:
        called = function.name
        _stand_in(m, function, name, switch)
    else:
        assert function.cls is not None
        called = function.cls.name
        line = f"{scope.self_name}.{name} = {_own(m, function, switch)} if {name} is None else {name}"
        if m.unit.losses or _sets_up_base(kept):
            m.edit(module).insert_after(_last(function, kept, switch), line)
        else:
            m.edit(module).insert_before(kept, line)
    document(m, function, name, USERS if m.unit.losses else KEPT)
    if not m.unit.losses:
        message = (
            f"nothing in sight {'calls' if kept is None else 'makes an object of'} {called}, which saves or loads the state of amp: "
            f"it takes {name} now, None by default, and does that with the scaler's. Who uses it hands over the scaler of that "
            "program; without it, the state is that of a disabled one, which is empty"
        )
        m.output.note(module, function.node, "AMP228", "GradScaler", message, "look")
        return
    message = (
        f"{called} takes {name}, None by default: whoever called amp.initialize before now makes a torch.amp.GradScaler and "
        f"hands it over, {called}(..., {name}={name}); without it, {_without(switch, anew=kept is None)}"
    )
    outside = "what else runs the model" if _casts(m) else "what computes the loss is out of sight, and"
    message += f"; {outside} belongs under torch.autocast where the scaler is enabled"
    if not in_package(m.project, module):
        message += ". If a file of yours does, rewrite it together with this one instead"
    m.output.note(module, function.node, "AMP228", "GradScaler", message, "review")


def _stand_in(m: Migration, function: Function, name: str, switch: str | None) -> None:
    """A scaler of its own where a function is called without one."""
    lines = f"if {name} is None:\n{m.style(function.module).indent}{name} = {_own(m, function, switch)}"
    m.edit(function.module).before.setdefault(function.scope.first, []).insert(0, lines)


def _own(m: Migration, function: Function, switch: str | None) -> str:
    """What makes it: one that is disabled, but for the switch."""
    off = m.scaler_off(function.module, function.scope)
    if switch is None:
        return off
    return off.replace("enabled=False", f"enabled={as_bool(m.project, function.scope, switch)}")


def _without(switch: str | None, anew: bool, does: str = "trains") -> str:
    """What becomes of a call that hands none over."""
    if switch is None:
        return f"it {does} in float32"
    return f"it makes one of its own where {switch}" + (", anew in each call" if anew else "")


def _casts(m: Migration) -> bool:
    """Whether anything that computes the losses is in sight."""
    return any(m.regions.read(scope).found or m.regions.read(scope).native for scope in m.regions.scopes())


def _sets_up_base(stmt: ast.stmt) -> bool:
    """Whether a statement is `super().__init__(...)`, or that of a base by its name."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and called_name(call) == "__init__"


def _switch(m: Migration, function: Function) -> str | None:
    """What decides in the library whether the loss is scaled, as it reads in the function; None where nothing does, or
    only what asks Apex."""
    texts: set[str] = set()
    for loss in m.unit.losses:
        scope = loss.module.scope_of(loss.call)
        parts: list[str] = []
        for _, found in guard_parts(m.project, loss.module, loss.with_stmt):
            parts += found or [HANDED]
        if not parts or not all(visible(m.project, p, scope, function.scope) for p in parts):
            return None
        if any(HANDED in p or "_amp_stash" in p for p in parts):
            return None
        texts.add(" and ".join(distinct(parts)))
    return texts.pop() if len(texts) == 1 else None


def _last(function: Function, kept: ast.stmt, switch: str | None) -> ast.stmt:
    """The statement of `__init__` after which it has both the optimizer and what the switch asks for."""
    asked = {ast.unparse(n) for n in walk(ast.parse(switch or "None")) if isinstance(n, (ast.Attribute, ast.Name))}
    last = kept
    for stmt in function.node.body:
        if stmt.lineno > kept.lineno:
            stored = (
                n for n in walk(stmt) if isinstance(n, (ast.Attribute, ast.Name)) and isinstance(n.ctx, ast.Store)
            )
            if any(ast.unparse(n) in asked for n in stored):
                last = stmt
    return last
