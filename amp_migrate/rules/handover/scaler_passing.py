"""Hand the scaler to the functions and objects that need it: a parameter next to the optimizer, an attribute beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.findings import Code
from amp_migrate.reading.conditions.assignment import Paths, place_above
from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.threads import Thread
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.handover.docstrings import ALWAYS_ON, SCALER, SWITCH, Told, document
from amp_migrate.rules.handover.given_none import needs_one, off_where_none, unpacked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup import inherited_readers
from amp_migrate.rules.setup.initialize import create_switch
from amp_migrate.rules.setup.until_configured import asked_before

CODES = (
    Code(
        "AMP220",
        "The scaler is passed along",
        "GradScaler",
        apex="State is global.",
        native="A GradScaler is an object: functions that scale, step or ask whether it is enabled are given it.",
        why="A parameter next to the optimizer and self.scaler beside self.optimizer are what people write by hand.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",),
    ),
)


NAMED = 10**6  # the position of a parameter that is passed by name


def apply(m: Migration) -> None:
    """Emit what reaching the scaler asked for; runs after every rule that asks."""
    for plan in m.switch.plans:
        create_switch(m, plan)
    asked_before(m)
    inherited_readers.apply(m)
    for held in m.held.values():
        held.keep(m)
    for plan in m.scalers if m.scales else ():
        for scope, reads in plan.reads.items():
            _assigned_on_every_path(m, plan, scope, reads)
    plans: list[ScalerPlan] = [*m.scalers, *m.held.values()] if m.scales else []
    for plan in [*plans, *m.switch.plans]:
        done: set[Function] = set()
        while len(done) < len(plan.threads):
            for function, thread in list(plan.threads.items()):
                if function not in done:
                    done.add(function)
                    if not plan.stays_open(thread):  # see `from_users.py`
                        _parameter(m, plan, thread)
        for stmt, (module, target, value) in plan.attributes.items():
            m.edit(module).insert_after(stmt, f"{target} = {value}")


def _assigned_on_every_path(m: Migration, plan: ScalerPlan, scope: Scope, reads: list[tuple[Module, ast.AST]]) -> None:
    """Where a path leads past the creation of the scaler to code that reads it, as one without `initialize` led past that
    to code which did without Apex: a disabled one stands above."""
    module = scope.module
    homes = [h for h in plan.created if h.scope is scope and h.kind == "local" and not h.carrier and h.above is None]
    if not homes or scope.is_class:
        return
    stmts = {module.statement(n) for n in _in_scope(m, scope, reads)}
    loops = [p for h in homes if isinstance(p := module.parents.get(h.anchor), ast.For)]
    written = m.edit(module).statements
    before = {h.anchor for h in homes if not h.after}
    before |= {loop for loop in loops if loop in written and written[loop].kind == "splice"}  # see `leave_loop`
    paths = Paths(before, {h.anchor for h in homes if h.after}, stmts)
    paths.block(scope.body, frozenset())
    holders = [module.block(h.anchor) for h in homes]
    unassigned = [s for s in paths.unassigned if not any(_needs(scope, s, holder) for holder in holders)]
    if unassigned:
        above = place_above(module, scope.body, [*unassigned, *(h.anchor for h in homes)])
        m.edit(module).insert_before(above, f"{plan.name_in(scope)} = {m.scaler_off(module, scope)}")


def _needs(scope: Scope, stmt: ast.stmt, block: list[ast.stmt]) -> bool:
    """Whether a statement reads a name that only one block assigns: where that did not run it failed before too."""
    within = {n for s in block for n in walk(s)}
    read = {n.id for n in walk(stmt) if isinstance(n, ast.Name) and n not in within} - set(scope.params)
    return any(scope.bindings.get(name) and all(b in within for b in scope.bindings[name]) for name in read)


def _in_scope(m: Migration, scope: Scope, reads: list[tuple[Module, ast.AST]]) -> Iterator[ast.AST]:
    """Where code that reads something runs, as seen in the body of a scope: there, or in a call of a function that does."""

    def above(place: tuple[Module, ast.AST]) -> Sequence[tuple[Module, ast.AST]]:
        inner = place[0].scope_of(place[1])
        function = m.project.functions.get(inner.node) if inner is not scope else None
        return m.project.calls.get(function, ()) if function is not None else ()

    return (node for module, node in reached(reads, above) if module.scope_of(node) is scope)


def _parameter(m: Migration, plan: ScalerPlan, thread: Thread) -> None:
    function = thread.function
    module = function.module
    if thread.default is not None:
        _optional(m, plan, thread)
        return
    position, anchor = _place(m, function)
    calls = [c for other in thread.group for c in plan.threads[other].calls]
    bound = any(m.project.partial_of(where, call) for where, call in calls)
    if bound:
        position, anchor = 0, None  # what `partial` binds comes first
    edits = m.edit(module)
    if thread.replaces is not None:
        _take_the_place(m, plan, thread, thread.replaces)
        return
    if plan in m.scalers:
        document(m, function, thread.name, _told(plan), anchor.arg if anchor is not None else None)
    text = thread.name
    if plan in m.scalers and _typed(function):
        text += f": {m.torch(module, module.root)}.amp.GradScaler"
    apart = [c for other in thread.group for c in plan.threads[other].apart]
    if apart:
        text = f"{thread.name}=None"
    if apart and plan.may_be_off:
        off_where_none(m, function, thread.name)
    places = {0 if anchor is None else _place(m, other)[0] for other in thread.group}
    starred = any(isinstance(a, ast.Starred) for _, call in calls for a in call.args)
    # Where the optimizer may be left out, what is given by position stays where it is.
    last = not bound and any(_has_default_beside(m, other) for other in thread.group)
    if apart or starred or last or len(places) > 1 or not _takes_one_more(function):
        position = NAMED
        _by_name(m, function, text)
    elif anchor is None:
        arguments = function.by_place
        first = arguments[len(arguments) - len(function.positional) :]
        if first:
            edits.insert("before", first[0], f"{text}, ")
        elif arguments:
            edits.insert("after", arguments[-1], f", {text}")
        else:
            edits.insert("within", function.node.args, f", {text}")
    else:
        edits.insert("after", anchor, f"{_separator(function.module, function.node.args.args, anchor)}{text}")
    for where, call in thread.calls:
        _argument(m, plan, where, call, position, thread)
    for forwarding in thread.forwards:
        told = f"hands what it is given on to one that takes {plan.what}: whoever calls it hands that over, too"
        m.output.note(forwarding.module, forwarding.node, "AMP220", "GradScaler", f"{forwarding.name} {told}")
    message = f"{function.name} takes {plan.what} as a parameter"
    if apart:
        _left_to_others(m, plan, function, thread)
        return
    if thread.misfits and calls:
        at = ", ".join(f"{where.display}:{call.lineno}" for where, call in thread.misfits[:3])
        message += (
            f", which every call in sight that fits it hands over; at {at} it is given too little or too much, which "
        )
        m.output.note(
            module, function.node, "AMP220", "GradScaler", f"{message}raises TypeError, as it did", about=function.name
        )
    elif calls and (is_offered(function) or is_public(m.project, function)):
        none = ", or None where they pass None as the optimizer" if thread.without else ""
        message += f", which every call in sight hands over{none}; any other must too"
        m.output.note(module, function.node, "AMP220", "GradScaler", message, about=function.name)
    elif calls:
        m.output.note(module, function.node, "AMP220", "GradScaler", message, "as-is")
    else:
        message += "; nothing in sight calls it, so whoever does must hand it over"
        m.output.note(module, function.node, "AMP220", "GradScaler", message, "review", function.name)


def _left_to_others(m: Migration, plan: ScalerPlan, function: Function, thread: Thread) -> None:
    """Tell of a parameter that a test, an example or a notebook may leave out, or runs without mixed precision, and of those
    that trained with Apex."""
    for where, call in thread.apart:
        if m.project.may_name_apex(where) and not plan.passed_by(where, call):
            message = (
                f"without {thread.name}={thread.name} what {function.name} runs is float32 here, whatever was initialized: hand it "
                "a GradScaler where it is to train in mixed precision"
            )
            m.output.manual(where, call, "AMP213", "GradScaler", message)
    places = ", ".join(f"{where.display}:{call.lineno}" for where, call in thread.apart[:3])
    message = f"{function.name} takes {plan.what} as a parameter; left out, as in {places}, nothing that it runs is under autocast"
    m.output.note(function.module, function.node, "AMP220", "GradScaler", message)


def _told(plan: ScalerPlan) -> Told:
    """What a docstring says of a scaler: nothing of its being disabled where nothing switches it off."""
    return ALWAYS_ON if plan.homes and all(home.flag.of_scaler.always for home in plan.homes) else SCALER


def _optional(m: Migration, plan: ScalerPlan, thread: Thread) -> None:
    """A last parameter with a default, and the calls that can tell."""
    function = thread.function
    typed = plan.optional and _typed(function)
    add_optional(m, function, f"{thread.name}: bool = {thread.default}" if typed else f"{thread.name}={thread.default}")
    if plan.optional:
        m.output.switches[function] = thread.name
        calls = m.project.calls.get(function, ())
        m.output.passing |= {call for where, call in calls if m.set_up.never_at(where, call)}
        document(m, function, thread.name, SWITCH)
    elif plan in m.scalers:
        document(m, function, thread.name, _told(plan))
    for module, call in thread.calls:
        if (call, thread.name) in plan.given:
            continue  # it may run several functions
        plan.given.add((call, thread.name))
        m.output.given.add((call, thread.name))
        add_keyword(m, module, call, thread.name, plan.at(module, call))
    if not plan.optional:
        message = f"{function.name} takes the scaler where it takes an optimizer"
        m.output.note(function.module, function.node, "AMP220", "GradScaler", message, "as-is")
        return


def add_optional(m: Migration, function: Function, text: str) -> None:
    """One more parameter with a default, after all others."""
    arguments, parameters = function.node.args, function.by_place
    if arguments.kwonlyargs or arguments.vararg is not None or not arguments.args:
        _by_name(m, function, text)
    else:
        last = arguments.defaults[-1] if arguments.defaults else parameters[-1]
        separator = _separator(function.module, parameters, parameters[-1])
        m.edit(function.module).insert("after", last, f"{separator}{text}")


def is_offered(function: Function) -> bool:
    """Whether a function is part of what a class offers, also to code that is not here."""
    cls = function.cls
    return cls is not None and not function.name.startswith("_") and not cls.name.startswith("_")


def _typed(function: Function) -> bool:
    """Whether the parameters of a function are annotated, all of them."""
    own = function.parameters[len(function.by_place) - len(function.positional) :]
    return bool(own) and all(x.annotation is not None for x in own)


def add_keyword(m: Migration, module: Module, call: ast.Call, name: str, value: str) -> None:
    """One more argument for a call, by name and after all others."""
    argument = f"{name}={value}"
    anchors = [*call.args, *call.keywords]
    if not anchors:
        m.edit(module).insert("within", call, f", {argument}")
    elif call.keywords and call.keywords[-1].arg is None:
        m.edit(module).insert("before", call.keywords[-1], f"{argument}, ")
    else:
        m.edit(module).insert("after", anchors[-1], f"{_separator(module, anchors, anchors[-1])}{argument}")


def _take_the_place(m: Migration, plan: ScalerPlan, thread: Thread, old: str) -> None:
    """Where `amp` itself was passed, pass the scaler instead."""
    function = thread.function
    parameter = function.parameter(old)
    assert parameter is not None
    text = thread.name
    if parameter.annotation is not None:
        kept = function.module.source(parameter.annotation)
        known = kept in ("object", "Any", "typing.Any") or function.defaults.get(old) is not None
        text += f": {kept if known else f'{m.torch(function.module, function.module.root)}.amp.GradScaler'}"
    m.edit(function.module).replace(parameter, text)
    if needs_one(m, plan, thread, old):
        off_where_none(m, function, thread.name)
    document(m, function, thread.name, _told(plan), old=old)
    for module, call in thread.calls:
        sites = [call]
        if m.project.partial_of(module, call):  # `partial(train, model)(loader, amp)`
            later = [c for c, bound in m.project.through.items() if bound is call]
            sites = later or [ast.Call(call.func, call.args[1:], call.keywords)]
        given = [v for c in sites for p, v in m.project.arguments(function, c) if p == old]
        if unpacked(m, module, call, old):
            continue  # among what is handed on whole
        if not given and (call not in thread.without or function.defaults.get(old) is None):
            _argument(m, plan, module, call, NAMED, thread)
        for value in dict.fromkeys(given):
            keyword = module.parents.get(value)
            text = "None" if call in thread.without and is_none(value) else plan.at(module, call)
            if isinstance(keyword, ast.keyword):
                m.edit(module).replace(keyword, f"{thread.name}={text}")
            else:
                m.edit(module).replace(value, text)
    m.output.note(
        function.module,
        function.node,
        "AMP220",
        "GradScaler",
        f"{function.name} takes the scaler in place of amp",
        "as-is",
    )


def _separator(module: Module, siblings: Sequence[ast.AST], anchor: ast.AST) -> str:
    """A comma, and a new line where each argument stands on a line of its own."""
    rows = [getattr(n, "lineno", 0) for n in siblings]
    if len(rows) < 2 or len(set(rows)) < len(rows):
        return ", "
    line = module.lines[getattr(anchor, "lineno", 1) - 1]
    before = line[: getattr(anchor, "col_offset", 0)].decode()
    newline = "\r\n" if line.endswith(b"\r\n") else "\n"
    return f",{newline}{before if before.isspace() else ' ' * len(before)}"


def _place(m: Migration, function: Function) -> tuple[int, ast.arg | None]:
    """Position among positional parameters and the parameter to stand after: the optimizer, else the last required one."""
    arguments = function.by_place
    skip = len(arguments) - len(function.positional)
    required = len(arguments) - len(function.node.args.defaults)
    chosen: int | None = None
    for index, arg in enumerate(arguments):
        if any(s.holder is function.scope and s.name == arg.arg for s in m.unit.optimizer_slots) and index >= skip:
            chosen = index
    if chosen is None or chosen >= required:
        chosen = required - 1
    if chosen < 0:
        return 0, None
    return chosen - skip + 1, arguments[chosen]


def _has_default_beside(m: Migration, function: Function) -> bool:
    """Whether the optimizer, or each parameter where none is one, has a default."""
    arguments = function.by_place
    if not function.positional:
        return False
    required = len(arguments) - len(function.node.args.defaults)
    slots = {s.name for s in m.unit.optimizer_slots if s.holder is function.scope}
    optimizers = [i for i, arg in enumerate(arguments) if arg.arg in slots]
    if optimizers:
        return all(i >= required for i in optimizers)
    return required <= len(arguments) - len(function.positional)


def _takes_one_more(function: Function) -> bool:
    """Whether a function has positional parameters, or none at all, so that one more can stand among them."""
    a = function.node.args
    return bool(a.posonlyargs or a.args) or not (a.vararg or a.kwonlyargs or a.kwarg)


def _by_name(m: Migration, function: Function, parameter: str) -> None:
    """A parameter that is passed by name alone: after all that a call may give by position."""
    edits, a = m.edit(function.module), function.node.args
    if a.kwonlyargs:
        separator = _separator(function.module, function.parameters, a.kwonlyargs[-1])
        edits.insert("after", a.kw_defaults[-1] or a.kwonlyargs[-1], f"{separator}{parameter}")
    elif a.vararg is not None:
        edits.insert("after", a.vararg, f", {parameter}")
    elif a.args:
        last = a.defaults[-1] if a.defaults else a.args[-1]
        separator = _separator(function.module, function.by_place, a.args[-1])
        edits.insert("after", last, f"{separator}*{separator}{parameter}")
    elif a.posonlyargs:
        message = f"{function.name} takes nothing by name: give it a parameter for the scaler by hand"
        raise Blocked(function.module, function.node, "AMP213", "GradScaler", message)
    else:
        edits.insert("within", a, f", *, {parameter}")


def _argument(m: Migration, plan: ScalerPlan, module: Module, call: ast.Call, position: int, thread: Thread) -> None:
    name = thread.name
    if (call, name) in plan.given:
        return  # it may run several functions
    plan.given.add((call, name))
    value = "None" if call in thread.without else plan.at(module, call)
    edits = m.edit(module)
    if position == 0 and m.project.partial_of(module, call):
        edits.insert("after", call.args[0], f", {value}")
        return
    position += position < NAMED and m.project.passes_self(thread.function, call)
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    if not starred and len(call.args) >= position > 0:
        anchor = call.args[position - 1]
        edits.insert("after", anchor, f"{_separator(module, [*call.args, *call.keywords], anchor)}{value}")
        return
    if not starred and position == 0 and call.args:
        edits.insert("before", call.args[0], f"{value}, ")
        return
    add_keyword(m, module, call, name, value)
