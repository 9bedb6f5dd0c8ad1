"""Parts of a wrapped network that one of the calls which train it gives no gradient: it runs in several modes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.taking_part import trained
from amp_migrate.audit.sites.unused import has_parameters, in_sight
from amp_migrate.audit.sites.wrapped_runs import Call


@dataclass(frozen=True)
class LeftOut:
    """A part, the network that has it, and the call that leaves it out; `found`: whether torch finds out, which looks at the
    last forward before a backward: it uses all that the others do."""

    part: str
    network: Class
    module: Module
    call: ast.Call
    found: bool


def left_out(review: Review, groups: list[list[Call]], classes: list[Class]) -> LeftOut | None:
    """The first such part of a network that runs so; `classes`: those that it may be of, where these are seen.

    Where its class is out of sight, all networks that take what it is called with have to show one at the same call."""
    if not classes:
        named = [call for group in groups for _, call in group if any(k.arg for k in call.keywords)]
        classes = [c for c in review.after.classes if named and review.after.is_network(c) and _takes(review, c, named)]
    for group in groups:
        found = [_in_group(review.after, cls, group) for cls in classes if in_sight(review.after, cls)]
        if found and len(found) == len(classes) and (first := found[0]) is not None and None not in found:
            return first
    return None


def _in_group(program: Program, cls: Class, group: list[Call]) -> LeftOut | None:
    """What calls with one backward leave out."""
    parts = list(dict.fromkeys(_parts(program, cls)))
    known = [s.intersection(parts) for _, call in group if (s := trained(program, cls, call)) is not None]
    used = frozenset[str]().union(*known)
    if len(known) < len(group) or not used:
        return None
    out = next((p for p in parts if p not in used and not _frozen(program, p)), None)
    return LeftOut(out, cls, *group[-1], used <= known[-1]) if out is not None else None


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
