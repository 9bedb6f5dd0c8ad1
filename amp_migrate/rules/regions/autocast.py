"""Forward and loss, which Apex ran in mixed precision everywhere, go under `torch.autocast`.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example, Review
from amp_migrate.reading.program.definitions import Function, dotted
from amp_migrate.reading.program.module import LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.hot import is_loss
from amp_migrate.reading.regions.no_grad import NO_GRAD, opens
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.regions.spans import Region, statements
from amp_migrate.reading.units.legacy import is_legacy
from amp_migrate.reading.units.unit import Blocked, NeverOn
from amp_migrate.reading.values.operations import LOSS_NAMES
from amp_migrate.rules.casts.no_casts import hand_to_callers, run_without, without_casts
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import forward, lazy, own_regions, shared_regions
from amp_migrate.rules.regions.bce import parts
from amp_migrate.rules.regions.none_in_sight import _framework_computes, none_in_sight

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"

CODES = (
    Code(
        "AMP501",
        "Forward and loss run under autocast",
        "torch.autocast",
        apex="O1 patches torch for the whole process, evaluation included.",
        native="Only code inside a torch.autocast region is cast.",
        why="Each forward of the model and the loss computed from it is put in a region, as tightly as a person would: not "
        "data loading, not backward, not the step.",
        links=(NATIVE,),
        examples=(
            Example(
                "output = model(input)\nloss = criterion(output, target)",
                'with torch.autocast("cuda", dtype=torch.float16):\n    output = model(input)\n    loss = criterion(output, target)',
            ),
        ),
    ),
    Code(
        "AMP502",
        "Nothing would run under autocast",
        "torch.autocast",
        apex="Casting is global: the forward may stand anywhere.",
        native="The forward must stand in a region.",
        why="Without a region the migrated program would compute in float32, and scale its loss for nothing: the unit is "
        "left as it is. Where only some of the program is out of reach of the switch, runs its model lazily, or runs it in a "
        "mode in which nothing made what a region would read, that is said of the place.",
        links=(NATIVE,),
    ),
    Code(
        "AMP507",
        "A network that initialize was not given runs under autocast too",
        "torch.autocast",
        apex="O1 patches torch for the whole process: a frozen teacher ran in mixed precision as well. O2 and O3 cast only "
        "the models they are given.",
        native="Only code inside a torch.autocast region is cast.",
        why="In a function that trains, its forward is put in a region unless the opt level is known to be O2 or O3: then a "
        "criterion with products of its own is computed outside, on float32.",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", NATIVE),
        examples=(
            Example(
                "with torch.no_grad():\n    target = teacher(x)",
                'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):\n    target = teacher(x)',
            ),
        ),
    ),
)


# What the audit found about the program with a region.
LEFT = "runs in float32: the region tried here was left out ({}); where it ran after initialize, put it in one by hand"


def apply(m: Migration) -> None:
    """Wrap every region of the unit."""
    if m.written_off:
        m.casts = False
        return
    unreached: list[Blocked] = []
    elsewhere: list[tuple[NeverOn, Module, Region]] = []  # in programs that never set mixed precision up
    outside: list[tuple[Module, Region]] = []  # to which no switch can be handed
    written = False
    bases = without_casts(m)
    without = run_without(m, bases)
    bare: dict[Function, None] = {}
    asks = any("_amp_stash" in loss.module.text for loss in m.unit.losses)
    if _only_in_framework(m):
        whole = [(s, r) for s in m.regions.scopes() for r in wanted(m, m.regions.read(s))]
        out_of_sight = [(s.module, r) for s, r in whole if not m.set_up.never(s)]
        methods = _methods(m, out_of_sight)
        if not methods or not all(m.scaler.near(module.scope_of(call)) for module, call in methods):
            forward.wrap(m, [], _run(m, out_of_sight))
            return
    for scope in m.regions.scopes():
        module = scope.module
        for region in wanted(m, m.regions.read(scope)) if not m.regions.within_callers(scope) else ():
            function = m.project.function_of(module, region.first)
            if _all_without(m, scope, region, bases):
                m.float32.add(region.first)
                continue
            if function is not None and function in without:
                bare[function] = None
                if not without[function]:
                    m.float32.add(region.first)
                continue
            early = (asks and function in m.unit.early) or m.set_up.passed_by(module, region.first)
            if early or m.switch.off_at(module, region.first):
                m.float32.add(region.first)
                continue
            try:
                header = m.output.regions[scope] = m.autocast(module, region.first)
            except Blocked as failure:
                if scope in m.unit.handed:
                    _uncast(m, scope, LEFT.format(m.unit.handed[scope]))
                if m.set_up.never(scope) or scope in m.unit.handed or _only_told(m, scope, region):
                    m.float32.add(region.first)
                    continue
                if not isinstance(failure, NeverOn) and _evaluates_by_method(m, scope, region):
                    continue
                if isinstance(failure, NeverOn):
                    elsewhere.append((failure, module, region))
                else:
                    unreached.append(failure)
                    outside.append((module, region))
                continue
            written = True
            begins = region.first if region.join is None else region.join.body[0]
            mended = m.unit.mended.get((module.display, begins.lineno), ())
            if "AMP532" in mended:
                header = _or_around(m, scope, header)
            uncached = "AMP536" in mended
            if uncached:
                header = f"{header[:-1]}, cache_enabled=False)"
            if m.regions.read(scope).trained:
                m.output.training.add(scope)
            edits = m.edit(module)
            if region.join is not None:
                last = region.join.items[-1]
                edits.insert("after", last.optional_vars or last.context_expr, f", {header}")
            else:
                edits.wrap(region.first, region.last, header)
            runs = _runs(m, scope, region)
            if uncached:
                runs += ", which keeps no half copies of weights here: they would be stale or without history in a later run"
            m.output.note(module, region.first, "AMP501", "torch.autocast", runs, "look" if uncached else "as-is")
            lazy.tell(m, module, region)
        for own in m.regions.read(scope).switched:
            unreached += own_regions.widen(m, module, own)
            written = True
        if beside := [s for s in m.regions.read(scope).companions if not m.set_up.passed_by(module, s)]:
            _companion(m, module, beside[0])
    hand_to_callers(m, bare, without)
    for scope, why in m.unit.uncast.items():
        _uncast(m, scope, LEFT.format(why))
    for scope, instead in m.unit.overridden.items():
        if _set_up_below(m, scope):
            continue  # as it was: an object that runs it never came by Apex
        name = f"{instead.cls.name}.{instead.name}" if instead.cls is not None else instead.name
        _uncast(m, scope, f"stays in float32: {name}, which scales, overrides it where mixed precision is on", "look")
    unreached += shared_regions.apply(m)
    wrapped = bool(unreached) or (bool(elsewhere) and not written)
    if wrapped:
        outside += [(module, region) for _, module, region in elsewhere if role(module) != "test"]
        forward.wrap(m, [*unreached, *(failure for failure, *_ in elsewhere)], _run(m, outside))
    else:
        none_in_sight(m, written)
    for _, module, region in elsewhere:
        if wrapped and role(module) == "test":
            m.float32.add(region.first)  # which sets nothing up itself
        elif not wrapped:  # by a forward or a method that takes its region along
            m.float32.add(region.first)
            _left_out(m, module, region.first)


def _runs(m: Migration, scope: Scope, region: Region) -> str:
    """What a region holds: a forward, a loss or both."""
    found, held = m.regions.read(scope), m.regions.held(scope, region)
    forward = bool(_calls(m, scope, region)) or any(s in held for s in found.companions)
    if not forward:  # of what is not seen to be the model, where no other region of the function has one
        forward = not any(_calls(m, scope, r) for r in found.found)
    nodes = [n for stmt in held for n in walk(stmt)]
    names = {
        dotted(n) or "" for n in nodes if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
    }
    loss = any(name in found.ends or LOSS_NAMES.search(name) for name in names)
    loss = loss or any(isinstance(n, ast.Call) and is_loss(n) for n in nodes)
    if not forward:
        return "the loss is computed under autocast"
    return "forward and loss run under autocast" if loss else "the forward runs under autocast"


def _or_around(m: Migration, scope: Scope, header: str) -> str:
    """An autocast call that leaves on what a region of the program's own around it switched on."""
    start, _, enabled = header[:-1].rpartition(" enabled=")
    if not start or enabled == "False":
        return header
    enabled = f"({enabled})" if isinstance(ast.parse(enabled, mode="eval").body, ast.IfExp) else enabled
    quote = m.style(scope.module).quote
    around = f"{m.torch(scope.module, scope)}.is_autocast_enabled({quote}{m.options.device}{quote})"
    return f"{start} enabled={enabled} or {around})"


def _only_in_framework(m: Migration) -> bool:
    """Whether a framework runs the forward that is trained, which then takes its region along wherever it is called."""
    if not m.unit.inits or is_legacy(m.unit) or not _framework_computes(m.unit.losses) or not forward.possible(m):
        return False
    found = [m.regions.read(s) for s in (*m.regions.scopes(), *shared_regions.scopes(m))]
    return not m.computed_apart and not any((r.trained and r.found) or r.native for r in found)


def _methods(m: Migration, outside: list[tuple[Module, Region]]) -> list[tuple[Module, ast.Call]]:
    """Calls of other methods of a model than its forward: `model.infer(x)`."""
    return [(module, call) for module, call in _run(m, outside) if m.regions.forwards.by_method(module, call)]


def _run(m: Migration, regions: list[tuple[Module, Region]]) -> list[tuple[Module, ast.Call]]:
    """The calls that run a model in some regions."""
    return [(module, c) for module, r in regions for c in _calls(m, module.scope_of(r.first), r)]


def _calls(m: Migration, scope: Scope, region: Region) -> list[ast.Call]:
    """The calls that run a model in a region."""
    stmts = statements(m.regions.view(scope), region)
    nodes = [n for stmt in stmts for n in walk(stmt) if isinstance(n, ast.Call)]
    forwards = m.regions.forwards
    return [c for c in nodes if m.regions.is_forward(scope.module, c) or forwards.by_method(scope.module, c)]


def _only_told(m: Migration, scope: Scope, region: Region) -> bool:
    """Whether all that runs a model in a region is what the audit asked for."""
    calls = _calls(m, scope, region)
    return bool(calls) and all(m.regions.forwards.only_told(scope.module, call) for call in calls)


def _evaluates_by_method(m: Migration, scope: Scope, region: Region) -> bool:
    """Whether a region runs the model by other methods than its forward, or what has the models as parts, and trains nothing. It
    is told to run in float32: an evaluation that loses half precision is no reason to leave the program, or to wrap the
    forward."""
    calls = _calls(m, scope, region)
    if m.regions.read(scope).trained or not calls:
        return False
    whole = [m.project.slot(scope.module, c.func) in m.regions.forwards.wholes for c in calls]
    if not all(w or m.regions.forwards.by_method(scope.module, c) for w, c in zip(whole, calls, strict=True)):
        return False
    m.float32.add(region.first)
    goes_by = "the forward of a model that initialize was given" if whole[0] else "the model's forward"
    message = (
        f"{ast.unparse(calls[0].func)} runs in float32 but where what calls it is under autocast: it does not go by {goes_by}, "
        "and whether mixed precision is on cannot be told here; hand a switch there and put it in a region where "
        "Apex's precision and speed are wanted"
    )
    m.output.note(scope.module, calls[0], "AMP502", "torch.autocast", message, "review")
    return True


def _set_up_below(m: Migration, scope: Scope) -> bool:
    """Whether only classes that derive from the one around a method set mixed precision up, each for its own objects."""
    cls = m.project.class_around(scope)
    below = {c for c in cls.descendants() if c is not cls} if cls is not None else set()
    around = [m.project.class_around(init.site.scope) for init in m.unit.inits]
    return bool(around) and all(c in below for c in around)


def _all_without(m: Migration, scope: Scope, region: Region, bases: set[ast.AST]) -> bool:
    """Whether casts are disabled in all of a region; where they are in its first statement only, that switches autocast off."""
    if not bases.isdisjoint(scope.module.ancestors(region.first)):
        return True
    whole = region.join in bases or all(s in bases for s in m.regions.held(scope, region))
    return region.first in bases and whole


def _uncast(m: Migration, scope: Scope, message: str, review: Review = "review") -> None:
    """Tell of a function that gets no region, and why."""
    module = scope.module
    call = next((c for c, s in module.calls if s is scope and m.regions.is_forward(module, c)), None)
    if call is not None:
        m.output.note(module, call, "AMP502", "torch.autocast", message, review)


def _left_out(m: Migration, module: Module, stmt: ast.stmt) -> None:
    """Say so where code to which no switch can be handed does run in a program that sets mixed precision up: something
    calls both, and not before that."""
    function = m.project.function_of(module, stmt)
    calls = m.project.calls.get(function, ()) if function is not None else ()
    if calls and all(m.set_up.apart(where, call) for where, call in calls):
        return  # each runs before anything is set up, or where nothing is
    callers = m.project.callers(function)
    for init in m.unit.inits:
        both = callers & m.project.callers(m.project.functions.get(init.site.scope.node))
        if both:
            m.output.note(
                module,
                stmt,
                "AMP502",
                "torch.autocast",
                "stays outside of any region: what calls this is handed nothing that tells whether mixed precision is on; hand "
                "it a switch and put it in a region where Apex's mixed precision is wanted",
                "review",
            )
            return


def _companion(m: Migration, module: Module, stmt: ast.stmt) -> None:
    """Say that a network which was not given to initialize is under autocast as well."""
    call = next(n for n in walk(stmt) if m.regions.companions.runs(module, n))
    assert isinstance(call, ast.Call)
    asked = [f"O{n}" for n in (2, 3) if any(f"O{n}" in i.levels for i in m.unit.inits)]
    asked = [] if _made_half(m, module, call.func) else asked
    else_ = f" ({' and '.join(asked)} left it in float32)" if asked else ""
    m.output.note(
        module,
        call,
        "AMP507",
        "torch.autocast",
        f"initialize was not given {module.source(call.func)}; O1 ran it in mixed precision all the same, so its forward is "
        f"under autocast{else_}",
    )


def _made_half(m: Migration, module: Module, network: ast.expr) -> bool:
    """Whether the program makes a network half itself: `teacher.half()`."""
    slots = m.project.slots(module, [network])
    kept = {*slots, *m.project.origins(slots)}
    return any(
        m.project.slot(other, f.value) in kept
        for other in m.unit.modules
        for _, f in other.method_calls.get("half", ())
    )


def wanted(m: Migration, found: Regions) -> list[Region]:
    """The regions to write in a scope, without what autocast refuses."""
    return [part for region in chosen(m, found) for part in parts(m, found, region)]


def covered(m: Migration, found: Regions, regions: list[Region]) -> set[ast.stmt]:
    """The statements of a scope that some regions cover."""
    view = m.regions.view(found.scope)
    return {s for r in regions for s in ([r.join] if r.join is not None else statements(view, r))}


def chosen(m: Migration, found: Regions) -> list[Region]:
    """What runs in mixed precision in a scope: with --eval fp32, only what trains."""
    if m.options.eval == "autocast":
        return found.found
    return [r for r in found.found if found.trained and not _evaluates(m, found, r)]


def _evaluates(m: Migration, found: Regions, region: Region) -> bool:
    """Whether a region in a function that also trains belongs to an evaluation: it needs no gradients, and the loop it
    stands in, or where there is none the scope, scales no loss."""
    module = found.scope.module
    around = [region.first, *module.ancestors(region.first)]
    if not any(isinstance(a, WITH_NODES) and opens(a, *NO_GRAD) for a in around):
        return False
    loop = next((a for a in around if isinstance(a, LOOP_NODES)), found.scope.node)
    scaled = [x.call for x in m.unit.trained if x.module is module and module.scope_of(x.call) is found.scope]
    if loop is found.scope.node:
        return all(any(isinstance(a, LOOP_NODES) for a in module.ancestors(call)) for call in scaled)
    return not any(loop in module.ancestors(call) for call in scaled)
