"""The condition under which mixed precision is on, and whether a piece of code can evaluate it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.reading.conditions.conjunctions import conjunction, conjuncts
from amp_migrate.reading.conditions.tests import Availability, availability
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import Function, is_none, unpacks
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, methods_called, walk
from amp_migrate.reading.sites.apex import apex_imports
from amp_migrate.reading.switch.apart import apart_sides
from amp_migrate.reading.switch.elsewhere import expanded, in_call, through_field, visible
from amp_migrate.reading.switch.flag import Flag, distinct
from amp_migrate.reading.switch.given_again import stored_fields
from amp_migrate.reading.units.numbered_levels import number_of
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values

DEPTH = 4  # calls followed up


def init_flag(project: Project, init: Init) -> Flag:
    """When an `initialize` call switches mixed precision on, as its own arguments say: `enabled` and `opt_level`. A loss scale
    that is dynamic is so at O0, too: the scaler does not ask for the level then."""
    at_level = _of_level(project, init)
    flag = Flag(init.site.scope, None) if at_level is None else _besides(project, init, at_level)
    if at_level == [] or init.only("loss_scale") != "dynamic" or init.together:
        return flag
    known = init.constants("opt_level")
    if (known is not None and "O0" not in known) or "apex.amp" in project.module_attributes.values():
        return flag  # at which no run in sight is; or the scaler takes the place of amp, as a field that is asked for
    scaling = _besides(project, init)
    return flag.with_scaling(scaling) if _scales_wherever(project, init, scaling) else flag


def _of_level(project: Project, init: Init) -> list[str] | None:
    level = init.arguments.get("opt_level")
    return _level_parts(project, init.module, level) if level is not None else []


def _besides(project: Project, init: Init, at_level: Sequence[str] = ()) -> Flag:
    """What the arguments of a call ask besides its level, with what that comes to."""
    module, scope = init.module, init.site.scope
    parts: list[str] = []
    enabled = init.arguments.get("enabled")
    if enabled is not None:
        literal = init.literal("enabled")
        if literal is ...:
            parts += conjunction(module, availability(project, module), enabled) or []
        elif not literal:
            return Flag(scope, None)
    parts += at_level
    parts += [p for chosen in chosen_parts(project, module, init.call) for p in chosen or ()]
    parts = [*import_parts(project, init), *_halving_parts(project, init), *parts]
    return Flag(scope, distinct(parts or _asked_to_scale(project, init)))


def _scales_wherever(project: Project, init: Init, scaling: Flag) -> bool:
    """Whether a program scales its losses wherever it comes by `initialize`: none has a plain backward beside it, under a test
    that the set-up does not stand under, such as one of the level."""
    flag = _around(project, init, scaling)
    return all(
        parts is not None
        and all(
            _is_asked(project, part, there, flag) or _is_asked_by_callers(project, part, there, init.site.scope)
            for part in parts
        )
        for there, parts in _beside_plain(project, init)
    )


def plain_at_o0(project: Project, init: Init) -> bool:
    """Whether a program asks for the level before it comes by `initialize`, or scales a loss: at O0 its backward is a plain one."""
    flag = Flag(init.site.scope, distinct(_of_level(project, init) or ()))
    besides = _around(project, init, _besides(project, init)).parts
    asked = [(init.site.scope, besides), *_beside_plain(project, init)]
    return any(_is_asked(project, part, there, flag) for there, parts in asked for part in parts or ())


def _beside_plain(project: Project, init: Init) -> Iterator[tuple[Scope, Sequence[str] | None]]:
    """What is asked before a loss is scaled that has a plain backward on the other side."""
    for module, stmt in init.scaling:
        for parts in _other_than_plain(project, module, stmt):
            yield module.scope_of(stmt), parts


def _other_than_plain(project: Project, module: Module, stmt: ast.stmt) -> Iterator[list[str] | None]:
    """The same of one loss: what each `if` asks, also where the two sides are written apart."""
    for guard, parts in guard_parts(project, module, stmt):
        if "backward" in methods_called(guard.orelse if module.inside_of(stmt, guard.body) else guard.body):
            yield parts
    for node, side in apart_sides(project, module, [stmt]):
        inside = module.inside_of(stmt, node.body)
        if "backward" in methods_called(side if inside else node.body):
            yield conjunction(module, availability(project, module), node.test, negate=not inside)


def _is_asked(project: Project, part: str, there: Scope, flag: Flag) -> bool:
    """Whether a condition is one of those of a flag, as it reads in another scope."""
    wanted = ast.unparse(ast.parse(part))
    for own in flag.parts or ():
        text = own if visible(project, own, flag.scope, there) else through_field(project, own, flag.scope, there)
        if text is not None and ast.unparse(ast.parse(text)) == wanted:
            return True
    return False


def _is_asked_by_callers(project: Project, part: str, there: Scope, home: Scope, depth: int = 0) -> bool:
    """The same of what stands around all calls of a function: `if args.fp16: model, optimizer = wrap(model, optimizer)`."""
    function = project.functions.get(home.node)
    calls = project.calls.get(function, ()) if function is not None and depth < DEPTH else ()
    for module, call in calls:
        scope = module.scope_of(call)
        asked = tuple(asked_around(project, module, call))
        if not _is_asked(project, part, there, Flag(scope, asked)):
            if not _is_asked_by_callers(project, part, there, scope, depth + 1):
                return False
    return bool(calls)


def chosen_parts(project: Project, module: Module, node: ast.AST) -> list[list[str] | None]:
    """What the choices in a statement ask that have an expression as one side: `FP16_Optimizer(optimizer) if half else optimizer`."""
    found: list[list[str] | None] = []
    child = node
    for around in module.around(node):
        if isinstance(around, ast.IfExp) and child is not around.test:
            negate = child is around.orelse
            found.append(conjunction(module, availability(project, module), around.test, negate=negate))
        child = around
    return found


def _halving_parts(project: Project, init: Init) -> list[str]:
    """What a program asks for before it makes the model half that an FP16_Optimizer trains, where that itself is under no
    switch: over float32 weights it only scales, which changes nothing."""
    if not init.halving or asked_around(project, init.module, init.stmt):
        return []
    asked = [asked_around(project, module, call) for module, call in init.halving]
    scopes = [module.scope_of(call) for module, call in init.halving]
    if any(parts != asked[0] for parts in asked):
        return []
    seen = all(visible(project, part, scope, init.site.scope) for part in asked[0] for scope in scopes)
    return asked[0] if seen else []


def flag_around(project: Project, init: Init) -> Flag:
    """When an `initialize` call switches mixed precision on, with the tests that it stands under; not whether its file is the
    one that is run, which says another thing in each file, and is so wherever the call is come by."""
    return where_half(project, init, _around(project, init, init_flag(project, init)))


def where_half(project: Project, init: Init, flag: Flag) -> Flag:
    """The same as it casts where the model of an FP16_Optimizer is made half in more runs than it is trained."""
    half = _asked_to_halve(project, init)
    if flag.parts is None or not half or not half < {*flag.parts}:
        return flag
    own = init_flag(project, init).parts or ()
    wider = tuple(p for p in flag.parts if p in half or p in own)
    return Flag(flag.scope, wider).with_scaling(flag.of_scaler)


def _asked_to_halve(project: Project, init: Init) -> set[str]:
    """What a program asks for before it makes half, in more runs than it trains, the model that an FP16_Optimizer trains: whoever
    only predicts has half weights, too."""
    asked = [{*asked_around(project, module, call)} for module, call in init.halving]
    here = all(module.scope_of(call) is init.site.scope for module, call in init.halving)
    return asked[0] if asked and here and all(parts == asked[0] for parts in asked) else set()


def _around(project: Project, init: Init, flag: Flag) -> Flag:
    for _, parts in guard_parts(project, init.module, init.stmt):
        flag = flag.joined([part for part in parts or [] if "__name__" not in part])
    return flag


def _asked_to_scale(project: Project, init: Init) -> list[str]:
    """What a program asks for before it scales a loss, where the set-up asks for Apex alone: it is the switch that people set.
    Where it is off, a machine without Apex went on in float32, and one with Apex trained unscaled halves, or nothing (O2)."""
    guards = guard_parts(project, init.module, init.stmt)
    if any(parts != [] for _, parts in guards) or not any(identifiers(guard.test) for guard, _ in guards):
        return []
    asked = [_asked_before(project, init, module, stmt) for module, stmt in init.scaling]
    return asked[0] if asked and all(parts == asked[0] for parts in asked) else []


def _asked_before(project: Project, init: Init, module: Module, stmt: ast.stmt) -> list[str]:
    """What stands around a statement that scales a loss and has a plain backward on its other side, as it reads at the set-up;
    nothing where it cannot be read there."""
    scope, home = module.scope_of(stmt), init.site.scope
    asked = [part for parts in _other_than_plain(project, module, stmt) for part in parts or ()]
    if not all(visible(project, part, scope, home) for part in asked):
        function = project.functions.get(scope.node)
        calls = project.calls.get(function, ()) if function is not None else ()
        if function is None or len(calls) != 1 or calls[0][0].scope_of(calls[0][1]) is not home:
            return []
        seen = flag_in_call(project, Flag(scope, distinct(asked)), function, *calls[0], home)
        asked = [*(seen.parts or ())] if seen is not None else []
    return asked if all(_settled(project, init, part) for part in asked) else []


def _settled(project: Project, init: Init, part: str) -> bool:
    """Whether a condition is what it is at the set-up for the whole run: what it names is bound above alone, its fields are set
    there, or where files are loaded before."""
    home, tree = init.site.scope, ast.parse(part)
    for name in identifiers(tree):
        owner = home.lookup(name)
        bound = owner.bindings.get(name, ()) if owner is not None else ()
        if any(getattr(b, "lineno", 0) > init.stmt.lineno for b in bound):
            return False
    before = imported(project, init.module) - {init.module}
    for module in project.modules:
        for node in stored_fields(project, module, tree):
            scope = module.scope_of(node)
            above = scope is home and node.lineno < init.stmt.lineno
            if not above and not (scope.is_module and module in before):
                return False
    return True


def _asks_for_amp(project: Project, module: Module, test: ast.expr, part: str) -> bool:
    """Whether a conjunct only asks whether `amp` is there: `import_parts` says what that comes to."""
    for node in walk(test):
        if isinstance(node, ast.Name) and (project.qualify(module, node) or "").startswith("apex"):
            if part in (node.id, f"{node.id} is not None", f"{node.id} != None"):
                return True
    return False


def import_parts(project: Project, init: Init) -> list[str]:
    """What `if amp:` asks where `amp` is imported only under a switch and is None otherwise."""
    available = availability(project, init.module)
    asks = any(
        available.is_switch(n)
        for guard, _ in guard_parts(project, init.module, init.site.stmt)
        for n in walk(guard.test)
        if isinstance(n, ast.Name) and (project.qualify(init.module, n) or "").startswith("apex")
    )
    if not asks:
        return []
    for module in dict.fromkeys([init.module, *(m for calls in project.calls.values() for m, _ in calls)]):
        for node in apex_imports(module):
            scope = module.scope_of(node)
            if not scope.is_function:
                continue
            parts: list[str] = []
            for guard, inner in guard_parts(project, module, node):
                if any(_sets_none(s) for s in guard.orelse) or any(_sets_none(s) for s in guard.body):
                    parts += inner or []
            if parts and all(visible(project, p, scope, init.site.scope) for p in parts):
                return parts
    return []


def _sets_none(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and is_none(stmt.value)


def _level_parts(project: Project, module: Module, level: ast.expr) -> list[str] | None:
    levels = {str(value).upper() for value in project.once(Values).fixed(module, level) or ()}
    if levels and (levels == {"O0"} or "O0" not in levels):
        return None if "O0" in levels else []
    if isinstance(level, ast.IfExp):
        return _choice(project, module, level)
    if isinstance(level, ast.Name):
        value = single_assignment(module, level)
        if isinstance(value, ast.IfExp) and all(isinstance(x, ast.Constant) for x in (value.body, value.orelse)):
            return _choice(project, module, value)
    if (number := number_of(level)) is not None:
        return [f"{module.source(number)} != 0"]
    quote = '"' if module.prefers_double else "'"
    return [f"{module.source(level)} != {quote}O0{quote}"]


def _choice(project: Project, module: Module, level: ast.IfExp) -> list[str] | None:
    """`"O1" if use_fp16 else "O0"` is on when use_fp16 is."""
    on, off = (_level_parts(project, module, x) for x in (level.body, level.orelse))
    available = availability(project, module)
    if on == [] and off is None:
        return conjunction(module, available, level.test) or []
    if on is None and off == []:
        return conjunction(module, available, level.test, negate=True) or []
    if on == [] and off == []:
        return []
    return [f'({module.source(level)}) != "O0"']


def guard_parts(project: Project, module: Module, stmt: ast.stmt) -> list[tuple[ast.If, list[str] | None]]:
    """The `if`s around a statement, innermost first, with what each asks beyond Apex being installed."""
    available: Availability = availability(project, module)
    found: list[tuple[ast.If, list[str] | None]] = []
    for guard, holds, _ in branches_around(module, stmt, module.scopes):
        if isinstance(guard, ast.If):
            parts = conjunction(module, available, guard.test, negate=not holds)
            if parts is not None:
                parts = [p for p in parts if not _asks_for_amp(project, module, guard.test, p)]
            found.append((guard, parts))
    return found


def asked_around(project: Project, module: Module, node: ast.AST) -> list[str]:
    """All that the `if`s around a node ask, as far as it can be told."""
    return [part for _, parts in guard_parts(project, module, module.statement(node)) for part in parts or ()]


def flag_in_call(
    project: Project, flag: Flag, function: Function, module: Module, call: ast.Call, scope: Scope
) -> Flag | None:
    """A flag of a function as it reads in a scope that calls it; None where it cannot be read there."""
    if flag.scaling is not None:
        both = (Flag(flag.scope, flag.parts), flag.scaling)
        casts, scaling = (flag_in_call(project, f, function, module, call, scope) for f in both)
        return casts.with_scaling(scaling) if casts is not None and scaling is not None else None
    if flag.parts is None:
        return Flag(scope, None)
    given = {k: module.source(v) for k, v in project.arguments(function, call)}
    if not unpacks(call):
        given = {**function.constant_defaults, **given}
    parts: list[str] = []
    for part in flag.parts:
        if visible(project, part, function.scope, scope):
            parts.append(part)
            continue
        translated = in_call(project, expanded(function.scope, part), given, function.scope, scope)
        if translated is None:
            return None
        for text in _conjuncts(scope.module, translated):
            known = _constant(project, scope, text)
            if known is False:
                return Flag(scope, None)
            parts += [text] if known is None else []
    return Flag(scope, distinct(parts))


def _conjuncts(module: Module, text: str) -> list[str]:
    """The conditions that an expression joins by `and`, each as it can be joined again."""
    parts = conjuncts(ast.parse(text, mode="eval").body)
    looser = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
    return [f"({module.written(part)})" if isinstance(part, looser) else module.written(part) for part in parts]


def _constant(project: Project, scope: Scope, text: str) -> bool | None:
    """What a condition on literals comes to: `"O1" != "O0"`; None where it holds anything else."""
    node = scope.module.imagine(text, scope)
    if any(isinstance(n, (ast.Name, ast.Attribute)) for n in walk(node)):
        return None
    return project.once(Values).truth(scope.module, node)
