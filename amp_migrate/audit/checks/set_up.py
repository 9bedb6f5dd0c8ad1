"""The scaler that a function makes where it set Apex up is on in every run in which it did.

Proves, for a function that set Apex up under several conditions or in several calls and makes scalers in their place: no
values of what the conditions ask for set Apex up and leave all these scalers off; and of a scaler that stands in place of a
set-up, that no other one takes its name before anything uses it. Cannot prove it of a scaler that is made
elsewhere, or under conditions that were not asked before: those are compared forward by forward (`precision.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review, calls_in, names_called
from amp_migrate.audit.sites.setups import INITIALIZE, SetUp, argument
from amp_migrate.audit.ways.chains import Chain, Step
from amp_migrate.audit.ways.formulas import (
    Formula,
    atoms,
    conjunction,
    disjunction,
    example,
    flags_told,
    minimal,
    negation,
)
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `switch.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        yield from _lost(review, change)
        removed = [s for s in both.removed if s.module is change.before and _scales(s)]
        scalers = _scalers(review, change) if removed else {}
        for function, setups in _by_function(change.before, removed).items():
            made = scalers.get(function, [])
            off = _off(both, change.after, setups, made) if made else None
            if off is not None:
                where = f"Apex was set up here also where {off}, and the scaler made in its place is off then"
                always = "Apex was set up here, and the scaler made in its place is off in every run"
                message = (
                    f"{where if off else always}: the loss is not scaled, and regions that ask this scaler are off"
                )
                yield review.doubt(change.after, made[0], "AMP532", "GradScaler", message, "refuse")


def _lost(review: Review, change: Change) -> Iterable[Doubt]:
    """Scalers that others replace before anything uses them: those of two set-ups that come to one step, under one name."""
    module = change.after
    for call, name in calls_in(review.after, module, GRAD_SCALER):
        later = _replaced(module, call)
        enabled = argument(call, "enabled", GRAD_SCALER[name])
        if later is None or _was_one(review, change, call) or (enabled is not None and syntax.is_false(enabled)):
            continue
        if not isinstance(later, ast.Call) or _left_off(review, module, call, later):
            first, second = review.line(module, call), review.line(module, later)
            message = (
                f"mixed precision is set up twice for one step (lines {first} and {second}): what the first asks for, "
                f"{syntax.text(call)}, would be lost to the second, {syntax.text(later)}. Set it up in one place, for both ways"
            )
            yield review.doubt(module, call, "AMP532", "GradScaler", message, "refuse")


def _left_off(review: Review, module: Module, call: ast.Call, later: ast.Call) -> bool:
    """Whether a scaler has other settings than the one that takes its name, or is on in runs in which that is off."""
    name = review.after.dotted(module.scope_of(later), later.func)
    if name not in GRAD_SCALER:
        return True
    kept = [
        sorted(syntax.text(a) for a in (*c.args, *c.keywords) if getattr(a, "arg", "") != "enabled")
        for c in (call, later)
    ]
    if kept[0] != kept[1]:
        return True
    predicates, on = mixed(review).after.predicates, list[Formula]()
    for each in (call, later):
        place = predicates.places(Chain((Step(module, module.function_around(each), each),)))[-1]
        enabled = argument(each, "enabled", GRAD_SCALER[name])
        on.append(True if enabled is None else predicates.of(enabled, place))
    return example(conjunction([on[0], negation(on[1])])) is not None


def _scalers(review: Review, change: Change) -> dict[Function | None, list[ast.Call]]:
    """The scalers that a file makes now, by the function (before) in which they stand."""
    found: dict[Function | None, list[ast.Call]] = {}
    for call, _ in calls_in(review.after, change.after, GRAD_SCALER):
        if not _replaced(change.after, call) and not _was_one(review, change, call):
            function = change.after.function_around(call)
            found.setdefault(function and change.function_before(function), []).append(call)
    return found


def _was_one(review: Review, change: Change, call: ast.Call) -> bool:
    """Whether a scaler was made there before: that of a native path beside Apex's."""
    old = change.was(change.after.statement(call))
    return old is not None and not names_called(review.before, change.before, old).isdisjoint(GRAD_SCALER)


def _replaced(module: Module, call: ast.Call) -> ast.expr | None:
    """What the variable that takes a scaler is given in its place before anything reads it."""
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return None
    name = syntax.text(stmt.targets[0])
    for later in module.following(stmt):
        anew = isinstance(later, ast.Assign) and [syntax.text(t) for t in later.targets] == [name]
        read = later.value if anew and isinstance(later, ast.Assign) else later
        if any(_reads(n, name, called=not anew) for n in syntax.walk(read)):
            return None
        if anew and isinstance(later, ast.Assign):
            return later.value
    return None


def _reads(node: ast.AST, name: str, *, called: bool) -> bool:
    """Whether a run may read a variable at a node, or end there; `called`: what is called may read a field."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return syntax.text(node) == name
    calls = called and isinstance(node, ast.Call) and "." in name
    return calls or isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom))


def _scales(setup: SetUp) -> bool:
    """Whether a set-up brings a loss scale: it is given an optimizer, and no scale of 1, as O3 has it by itself."""
    scale = argument(setup.call, "loss_scale", 99)
    given = argument(setup.call, "optimizers", 1)
    if setup.name != INITIALIZE or setup.off or given is None or (isinstance(given, ast.List) and not given.elts):
        return False
    if scale is None or (isinstance(scale, ast.Constant) and scale.value is None):
        return not (setup.known and setup.levels <= {"O0", "O3"})
    return not isinstance(scale, ast.Constant) or scale.value not in (1, "1", "1.0")


def _by_function(module: Module, setups: list[SetUp]) -> dict[Function | None, list[SetUp]]:
    found: dict[Function | None, list[SetUp]] = {}
    for setup in setups:
        found.setdefault(module.function_around(setup.call), []).append(setup)
    return found


def _off(both: Mixed, module: Module, setups: list[SetUp], made: list[ast.Call]) -> str | None:
    """The runs in which Apex was set up and no scaler is enabled; "" where that is all of them, None where there are none."""
    ons = [both.on(s, Chain((Step(s.module, s.module.function_around(s.call), s.call),))) for s in setups]
    scalers: list[Formula] = []
    for call in made:
        way = Chain((Step(module, module.function_around(call), call),))
        predicates = both.after.predicates
        enabled = argument(
            call, "enabled", GRAD_SCALER[both.review.after.dotted(module.scope_of(call), call.func) or ""]
        )
        switch = True if enabled is None else predicates.of(enabled, predicates.places(way)[-1])
        scalers.append(conjunction([predicates.given(way, loops=False), switch]))
    before, now = disjunction(ons), disjunction(scalers)
    if now is False:
        wanted = both.review.wish.dtype == "float16" and example(before) is not None
        return "" if wanted else None
    if not atoms(now) <= atoms(before):
        return None
    missed = conjunction([before, negation(now)])
    found = example(missed)
    return " and ".join(flags_told(minimal(missed, found))) if found else None
