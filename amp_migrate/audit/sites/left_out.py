"""Parts of a wrapped network that one of the calls which train it gives no gradient: it runs in several modes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.sites.taking_part import trained
from amp_migrate.audit.sites.unused import has_parameters, in_sight
from amp_migrate.audit.sites.writers import gradients_off
from amp_migrate.audit.values.names import last_name


@dataclass(frozen=True)
class LeftOut:
    """A part, the network that has it, and the call that leaves it out; `alone`: whether its backward follows no other call."""

    part: str
    network: Class
    module: Module
    call: ast.Call
    alone: bool


def left_out(review: Review, module: Module, wrap: ast.Call, classes: list[Class]) -> LeftOut | None:
    """The first such part of what a call wraps; `classes`: those that it may be of, where these are seen.

    Where its class is out of sight, all networks that take what it is called with have to show one at the same call."""
    groups = list(_backwards(review, module, wrap))
    if not classes:
        named = [call for group in groups for _, call in group if any(k.arg for k in call.keywords)]
        classes = [c for c in review.after.classes if named and review.after.is_network(c) and _takes(review, c, named)]
    for group in groups:
        found = [_in_group(review.after, cls, group) for cls in classes if in_sight(review.after, cls)]
        if found and len(found) == len(classes) and (first := found[0]) is not None and None not in found:
            return first
    return None


def _in_group(program: Program, cls: Class, group: list[tuple[Module, ast.Call]]) -> LeftOut | None:
    """What calls with one backward leave out."""
    sets = [trained(program, cls, call) for _, call in group]
    used = {name for s in sets if s is not None for name in s}
    if None in sets or not used:
        return None
    module, call = group[-1]
    for part in _parts(program, cls):
        if part not in used and not _frozen(program, part):
            return LeftOut(part, cls, module, call, len(group) == 1 and not _repeated(module, call))
    return None


def _parts(program: Program, cls: Class) -> Iterator[str]:
    """The fields of a network that hold something with parameters, as what makes them, or who asks for them, shows."""
    for c in program.family_up(cls):
        for function in (f for functions in c.methods.values() for f in functions):
            for stmt in syntax.every(function.node, ast.Assign):
                for target in (n for t in stmt.targets for n in syntax.every(t, ast.Attribute)):
                    if syntax.text(target.value) == "self" and isinstance(target.ctx, ast.Store):
                        one = stmt.targets == [target] and isinstance(stmt.value, ast.Call)
                        made = one and isinstance(stmt.value, ast.Call) and has_parameters(program, c, stmt.value)
                        if made or f".{target.attr}.parameters()" in c.module.text:
                            yield target.attr


def _frozen(program: Program, part: str) -> bool:
    """Whether a line, or a loop over the parameters of a part, sets whether it wants gradients."""
    sets = re.compile(rf"\b{re.escape(part)}\b[^\n]*(?:\n[^\n]*)?requires_grad")
    return any(sets.search(m.text) for m in program.modules.values() if part in m.words)


def _takes(review: Review, cls: Class, calls: list[ast.Call]) -> bool:
    """Whether the forward of a network has the parameters that calls name."""
    wanted = {k.arg for call in calls for k in call.keywords if k.arg is not None}
    return any(wanted <= {p.arg for p in f.parameters} for f in review.after._method(cls, "forward"))


def _backwards(review: Review, module: Module, wrap: ast.Call) -> Iterator[list[tuple[Module, ast.Call]]]:
    """The calls of what is wrapped that train it, those before one backward of a function together."""
    by_function: dict[Function, list[ast.Call]] = {}
    for there, call in runs_of(review, module, wrap):
        function = there.function_around(call)
        if function is not None and not gradients_off(review.after, there, call):
            by_function.setdefault(function, []).append(call)
    for function, calls in by_function.items():
        group: list[tuple[Module, ast.Call]] = []
        ends = [c for c in syntax.every(function.node, ast.Call) if syntax.last(c.func) == "backward"]
        for call in sorted([*calls, *ends], key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):
            if call not in ends:
                group.append((function.module, call))
            elif group:
                yield group
                group = []


def runs_of(review: Review, module: Module, wrap: ast.Call) -> Iterator[tuple[Module, ast.Call]]:
    """The calls, in sight, of the object that a call makes, by its name and those that functions know it by."""
    stmt, wrapped = module.statement(wrap), argument(wrap, "module", 0)
    targets = stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is wrap else []
    names = {name for t in targets if (name := last_name(t)) is not None}
    if not names or wrapped is None:
        return
    near = {module: names}
    owner = review.after.class_around(module.scope_of(wrap))
    if owner is not None and any(isinstance(t, ast.Attribute) for t in targets):
        near |= {c.module: names for c in review.after.family(owner)}
    todo = list(near)
    for there in todo:
        for callee, inner in _handed(review.after, there, near[there]):
            todo += [callee] if inner not in near.get(callee, ()) else []
            near[callee] = near.get(callee, set()) | {inner}
    made = review.values_after.of(module, wrapped)
    for there, called in near.items():
        for name in sorted(called):
            for call in there.calls_named.get(name, ()):
                if isinstance(call.func, (ast.Name, ast.Attribute)) and not review.after.callees(there, call):
                    if made & review.values_after.of(there, call.func):
                        yield there, call


def _handed(program: Program, module: Module, names: set[str]) -> Iterator[tuple[Module, str]]:
    """The functions that what has one of some names is handed to, by their files, and as which parameter."""
    for call in module.calls():
        if any(last_name(v) in names for v in syntax.given(call) if isinstance(v, (ast.Name, ast.Attribute))):
            for callee in program.callees(module, call):
                for inner, value in (program.arguments(callee, call) or {}).items():
                    if isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in names:
                        yield callee.module, inner


def _repeated(module: Module, call: ast.Call) -> bool:
    """Whether a loop that no backward stands in runs a call."""
    for around in module.ancestors(call):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return not any(syntax.last(c.func) == "backward" for c in syntax.every(around, ast.Call))
    return False
