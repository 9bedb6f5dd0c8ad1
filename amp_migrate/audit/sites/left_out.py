"""Parts of a wrapped network that one of the calls which train it gives no gradient: it runs in several modes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amp_migrate.audit.paths.facts import NOTHING, Facts, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.taking_part import known, trained
from amp_migrate.audit.sites.unused import has_parameters, in_sight
from amp_migrate.audit.sites.wrapped_runs import Call, Runs
from amp_migrate.audit.values.origins import in_order


@dataclass(frozen=True)
class LeftOut:
    """A part, the network that has it, and the call that leaves it out; `found`: whether torch finds out, which looks at the
    last forward before a backward: it uses all that the others do."""

    part: str
    network: Class
    module: Module
    call: ast.Call
    found: bool


def left_out(review: Review, seen: Runs, classes: list[Class]) -> LeftOut | None:
    """The first such part of a network that runs so; `classes`: those that it may be of, where these are seen.

    Where its class is out of sight, all networks that take what it is called with have to show one at the same call."""
    if not classes:
        named = [call for group in seen.groups for _, call in group if any(k.arg for k in call.keywords)]
        classes = [c for c in review.after.classes if named and review.after.is_network(c) and _takes(review, c, named)]
    out: LeftOut | None = None
    found = True
    for group in seen.groups:
        kinds = _kinds(review, group, classes)
        told = [_in_group(review.after, cls, making, group) for cls, making in kinds]
        parts = [t.part for t in told if t is not None and t.part]
        found = found and (len(group) == 1 or all(t is not None and t.found for t in told))
        if out is None and parts and len(parts) == len(told):
            out = told[0]
    return replace(out, found=found) if out is not None else None


def _kinds(review: Review, group: list[Call], classes: list[Class]) -> list[tuple[Class, ast.Call | None]]:
    """The classes that what some calls run may be of, each with the call that makes it, where that is seen."""
    module, call = group[0]
    made = [
        (cls, origin.node)
        for origin in in_order(review.values_after.of(module, call.func))
        if isinstance(origin.node, ast.Call)
        for cls in review.after.definitions(origin.module.scope_of(origin.node), origin.node.func, guess=False)
        if isinstance(cls, Class) and review.after.is_network(cls)
    ]
    return [*made] or [(cls, None) for cls in classes]


def _in_group(program: Program, cls: Class, making: ast.Call | None, group: list[Call]) -> LeftOut | None:
    """What calls with one backward leave out: no part where they use all; None where that cannot be told."""
    parts = list(dict.fromkeys(_parts(program, cls, making))) if in_sight(program, cls) else []
    sets: list[frozenset[str]] = []
    for number, (_, call) in enumerate(group):
        own = trained(program, cls, call)
        if own is None:
            return None
        before = (s for (m, earlier), s in zip(group[:number], sets, strict=True) if _leads_to(m, earlier, call))
        sets.append(own.intersection(parts).union(*before))
    used = frozenset[str]().union(*sets)
    part = next((p for p in parts if used and p not in used and not _frozen(program, p)), "")
    return LeftOut(part, cls, *group[-1], used <= sets[-1])


def _leads_to(module: Module, earlier: ast.Call, later: ast.Call) -> bool:
    """Whether a call is given what an earlier one gave: its backward comes by both."""
    stmt = module.parents.get(earlier)
    names = {n.id for t in stmt.targets for n in syntax.every(t, ast.Name)} if isinstance(stmt, ast.Assign) else set()
    given = {n.id for v in syntax.given(later) for n in syntax.every(v, ast.Name)}
    return not names.isdisjoint(given)


def _parts(program: Program, cls: Class, making: ast.Call | None) -> Iterator[str]:
    """The fields of a network that surely hold something with parameters, as what makes them, or who asks for them, shows."""
    for c in program.family_up(cls):
        for function in (f for functions in c.methods.values() for f in functions):
            of_object = making is not None and function in program.constructors(cls)
            facts = _made_with(program, function, making) if of_object and making is not None else NOTHING
            for stmt in syntax.every(function.node, ast.Assign):
                if not _sure(function, stmt, facts):
                    continue
                for target in (n for t in stmt.targets for n in syntax.every(t, ast.Attribute)):
                    if syntax.text(target.value) == "self" and isinstance(target.ctx, ast.Store):
                        one = stmt.targets == [target] and isinstance(stmt.value, ast.Call)
                        made = one and isinstance(stmt.value, ast.Call) and has_parameters(program, c, stmt.value)
                        if (made or f".{target.attr}.parameters()" in c.module.text) and not _shared(c, target.attr):
                            yield target.attr


def _made_with(program: Program, init: Function, making: ast.Call) -> Facts:
    """What is known in the constructor of an object, of its fields too: `self.with_head = with_head`."""
    given = known(program, init, making, NOTHING)
    kept: set[tuple[str, bool]] = set()
    for stmt in init.node.body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Name) and len(stmt.targets) == 1:
            for key, holds in given:
                if key.partition(" ")[0] == stmt.value.id:
                    kept.add((syntax.text(stmt.targets[0]) + key[len(stmt.value.id) :], holds))
    return given | kept


def _sure(function: Function, stmt: ast.stmt, facts: Facts) -> bool:
    """Whether a statement runs whenever its function does."""
    inner: ast.AST = stmt
    for around in function.module.ancestors(stmt):
        if around is function.node:
            break
        if isinstance(around, ast.If) and outcome(around.test, facts) is not (inner in around.body):
            return False
        inner = around
    return True


def _shared(cls: Class, part: str) -> bool:
    """Whether a part has its weight of another, and no bias beside."""
    source = cls.module.text
    tied = re.search(rf"\bself\.{part}(\.\w+)*\.weight\s*=[^=]|\.weight\s*=\s*self\.{part}\b", source)
    return tied is not None and "bias=False" in source


def _frozen(program: Program, part: str) -> bool:
    """Whether a line, or a loop over the parameters of a part, sets whether it wants gradients."""
    sets = re.compile(rf"\b{re.escape(part)}\b[^\n]*(?:\n[^\n]*)?requires_grad")
    return any(sets.search(m.text) for m in program.modules.values() if part in m.words)


def _takes(review: Review, cls: Class, calls: list[ast.Call]) -> bool:
    """Whether the forward of a network has the parameters that calls name."""
    wanted = {k.arg for call in calls for k in call.keywords if k.arg is not None}
    return any(wanted <= {p.arg for p in f.parameters} for f in review.after._method(cls, "forward"))
