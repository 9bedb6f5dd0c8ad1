"""A region that asks a field of its object is on for each object that runs where Apex was on, not only for the one that was
set up: O1 was a matter of the process.

Followed: the switch `self.scaler.is_enabled()` or `self.amp` of a class whose new objects have it off, and calls of its
methods on objects that are seen to be made. Not proved: objects that come from out of sight, and those in containers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.ways.chains import Chain, Step
from amp_migrate.audit.ways.latest import latest
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.audit.ways.within import may_follow
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not any(s.patches for s in both.removed):
        return
    for change in review.changes.values():
        module = change.after
        told: set[Function | None] = set()
        for forward, region, function in both.in_written_regions(module):
            if region.enabled is None or function in told:
                continue
            for field in _fields(review, region.module, region.enabled):
                doubt = _off(both, module, forward.call, field)
                if doubt is not None:
                    told.add(function)
                    yield doubt


def _fields(review: Review, module: Module, enabled: ast.expr) -> Iterator[tuple[Class, str]]:
    """The fields of its own object that a switch asks, which only methods called later turn on."""
    for node in syntax.walk(enabled):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = review.after.is_self(module.scope_of(node), node.value)
            if owner is not None and review.values_after.fields(node.attr):
                yield owner, node.attr


def _off(both: Mixed, module: Module, call: ast.Call, field: tuple[Class, str]) -> Doubt | None:
    """What is to be said of a forward that an object runs of which the switch is never turned on."""
    review, (cls, name) = both.review, field
    turning = _turning(both, cls, name)
    if not turning:
        return None
    family = review.after.family(cls)
    turned = [t for f in turning for t in _outside(review, f, family)]
    entries = _entries(both, module, call, family) - turning
    for entry in sorted(entries, key=lambda f: (f.module.path, f.node.lineno)):
        for where, use, mine in _outside(review, entry, family):
            if any(mine & theirs for _, _, theirs in turned):
                continue
            around = where.function_around(use)
            before = [(m, t) for m, t, _ in turned if m is where and m.function_around(t) is around]
            sure = next((t for m, t in before if may_follow(m, t, use) and not may_follow(m, use, t)), None)
            if sure is not None:
                made = min(mine, key=lambda c: (c.lineno, c.col_offset))
                message = (
                    f"{syntax.text(use.func)}() at {where.path}:{review.line(where, use)} runs {syntax.text(call.func)} for the "
                    f"object made at line {review.line(where, made)}, of which nothing sets {name}: it is off there. O1 held for "
                    f"the whole process from {syntax.text(sure.func)}() at line {review.line(where, sure)} on, whichever object "
                    "that set up; this runs in float32 now. Give both objects one switch to keep its precision"
                )
                return review.doubt(module, call, "AMP531", "a call of the model", message, "review")
    return None


def _entries(both: Mixed, module: Module, call: ast.Call, family: list[Class]) -> set[Function]:
    """The methods of the class on ways to a forward: each may be called from outside."""
    found: set[Function] = set()
    for chain in both.after.chains.to(module, call):
        for step in reversed(chain.steps):
            if step.function is None or step.function.owner not in family:
                break
            found.add(step.function)
    return found


def _turning(both: Mixed, cls: Class, name: str) -> set[Function]:
    """The methods that turn a field of their object on where they set Apex up, and those of the class that call them; empty
    where `__init__` does, or code outside of the class."""
    review = both.review
    program, family = review.after, review.after.family(cls)
    found: set[Function] = set()
    off = False
    for module, target, value, _ in review.values_after.fields(name):
        owner = program.is_self(module.scope_of(target), target.value)
        function = module.function_around(target)
        if owner is None or function is None:
            if owner is None and module in {c.module for c in family}:
                return set()
            continue
        if owner not in family:
            continue
        if function.name == "__init__":
            off = True
            if value is None or not _is_off(review, module, value):
                return set()
        elif _set_up(both, function):
            found.add(function)
    todo = list(found) if off else []
    while todo:
        function = todo.pop()
        for module, call in program.callers(function):
            around = module.function_around(call)
            if around is None or around.owner not in family or around in found:
                continue
            if isinstance(call.func, ast.Attribute) and program.is_self(module.scope_of(call), call.func.value):
                if around.name == "__init__":
                    return set()
                found.add(around)
                todo.append(around)
    return found if off else set()


def _is_off(review: Review, module: Module, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return syntax.is_false(value)
    name = review.after.dotted(module.scope_of(value), value.func)
    return name in GRAD_SCALER and syntax.is_false(argument(value, "enabled", GRAD_SCALER[name]))


def _set_up(both: Mixed, function: Function) -> bool:
    """Whether a function, before, set Apex up for all that runs later."""
    change = both.review.changes.get(function.module.path)
    old = change.function_before(function) if change is not None else None
    return old is not None and any(s.usually_patches and s.module.function_around(s.call) is old for s in both.removed)


def _outside(
    review: Review, function: Function, family: list[Class]
) -> Iterator[tuple[Module, ast.Call, set[ast.Call]]]:
    """The calls of a method on objects of its class that are seen to be made, with where these are made."""
    for module in review.after.having(function.name):
        for call, holder in module.method_calls(function.name):
            if not review.after.is_self(module.scope_of(call), holder):
                made = _objects(review, module, call, holder)
                if made and all(_is_of(review, m, c, family) for m, c in made):
                    yield module, call, {c for _, c in made}


def _objects(review: Review, module: Module, call: ast.Call, holder: ast.expr) -> list[tuple[Module, ast.Call]]:
    """The calls that make the object a method is called on; empty where that is not decided."""
    place = Chain((Step(module, module.function_around(call), call),))
    found: list[tuple[Module, ast.AST]] = [(s.module, v) for s, v in latest(review.after, place, holder)]
    if not found:
        found = [(o.module, o.node) for o in review.values_after.of(module, holder)]
    made = [(m, v) for m, v in found if isinstance(v, ast.Call)]
    return made if len(made) == len(found) else []


def _is_of(review: Review, module: Module, made: ast.Call, family: list[Class]) -> bool:
    """Whether a call may make an object of a class."""
    scope = module.scope_of(made)
    classes = set(review.after.definitions(scope, made.func, guess=False))
    nodes = {o.node for o in review.values_after.origins(scope, made.func)}
    return any(c in classes or c.node in nodes for c in family)
