"""Which branches die with Apex: availability guards, and the pairs `if fp16: (Apex) else: (plain)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Literal

from amp_migrate.reading.conditions.assertions import asserted
from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import dotted, literal
from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import WITH_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import methods_called, walk
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.sites.apex import imports_apex
from amp_migrate.reading.switch.apart import apart_sides, falling, fold_apart
from amp_migrate.reading.switch.legacy_folds import WITHOUT_EFFECT, same_legacy
from amp_migrate.reading.units.unit import Loss, Unit
from amp_migrate.reading.values.absent import asks_for, optional_optimizers


def guard_folds(project: Project, module: Module) -> Folds:
    """Branches decided by Apex being installed: the migrated code always takes the Apex side. To be added to freely."""
    found = project.once(_GuardFolds).of(module)
    return Folds(dict(found.splices), set(found.deleted))


class _GuardFolds:
    """These branches by module: the same for every unit."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._found: dict[Module, Folds] = {}

    def of(self, module: Module) -> Folds:
        if module not in self._found:
            self._found[module] = _guard_folds(self.project, module)
        return self._found[module]


def _guard_folds(project: Project, module: Module) -> Folds:
    available = availability(project, module)
    folds = Folds()
    if "apex" not in module.text and not available.flags and not available.modules:
        return folds
    for node in module.of(ast.If, ast.Assert, ast.Expr):
        if isinstance(node, ast.If):
            value = available.value(node.test)
            if value is not None:
                folds.splices[node] = guard_branch(project, module, node, apex_in_body=value)
            elif available.rest(node.test) is None:
                folds.splices[node] = "orelse"
        elif isinstance(node, ast.Assert | ast.Expr):
            test = asserted(project, node)
            if test is not None and available.value(test) is True:
                folds.deleted.add(node)
    return folds


def guard_branch(project: Project, module: Module, node: ast.If, *, apex_in_body: bool) -> Literal["body", "orelse"]:
    """Which branch of an availability test stays: the Apex one, unless it is about other parts of Apex than amp and
    the other branch already does the same without."""
    mine, other = (node.body, node.orelse) if apex_in_body else (node.orelse, node.body)
    names = [
        project.qualify(module, n) or "" for s in mine for n in walk(s) if isinstance(n, (ast.Name, ast.Attribute))
    ]
    uses = {n for n in names if n.startswith("apex.")}
    native = bool(other) and not any(
        (project.qualify(module, n) or "").startswith("apex.")
        for s in other
        for n in walk(s)
        if isinstance(n, (ast.Name, ast.Attribute))
    )
    runs = other and not any(isinstance(s, ast.Raise) for s in other)
    if uses and native and runs and not any(n.startswith("apex.amp") for n in uses):
        return "orelse" if apex_in_body else "body"
    return "body" if apex_in_body else "orelse"


def pair_folds(unit: Unit, module: Module, folds: Folds) -> dict[ast.If, dict[ast.Call, ast.expr]]:
    """Fold `if flag: Apex else: plain` where both branches do the same; returned with, for every `master_params` call
    of a folded pair, the parameters that the plain branch names instead."""
    for loss in unit.losses:
        if loss.module is module and isinstance(loss.with_stmt, WITH_NODES) and len(loss.with_stmt.items) == 1:
            folds.splices[loss.with_stmt] = "body"
    if "_amp_stash" in module.text:
        for node in module.of(ast.If):
            if node not in folds.splices and asks_too_early(unit, module, node.test):
                folds.splices[node] = "orelse"
    aliases = {loss.with_stmt: loss for loss in unit.losses if loss.module is module}
    masters = [
        s.call
        for s in unit.sites
        if s.module is module and s.short in ("master_params", "clip_master_grads") and s.call is not None
    ]
    folds.deleted |= {s.stmt for s in unit.sites if s.module is module and s.short in WITHOUT_EFFECT}
    idle = _only_for([loss for loss in unit.losses if loss.module is module])
    pairs: dict[ast.If, dict[ast.Call, ast.expr]] = {}
    candidates: dict[ast.If, None] = {}
    for start in [*aliases, *masters]:
        for parent in module.ancestors(start):
            if parent in module.scopes:
                break
            if isinstance(parent, ast.If) and parent.orelse and parent not in folds.splices:
                candidates[parent] = None
    # Inner pairs first: an outer one compares what they leave.
    for node in sorted(candidates, key=lambda n: -n.col_offset):
        if _may_be_without(unit, module, node):
            continue
        apex = _holds(node.body, aliases, masters)
        other = _holds(node.orelse, aliases, masters)
        if apex == other:
            continue
        mine, plain = (node.body, node.orelse) if apex else (node.orelse, node.body)
        matches: dict[ast.Call, ast.expr] = {}
        if _same([s for s in mine if s not in idle], plain, aliases, masters, folds, matches):
            folds.splices[node] = "body" if apex else "orelse"
            pairs[node] = matches
        elif "step" in methods_called(plain):  # its own backward and step: a whole copy of the training step in float32
            folds.plain.update(plain)
    for node, side in apart_sides(unit.project, module, [*aliases, *masters]):
        in_body = _holds(node.body, aliases, masters)
        if node in folds.splices or in_body == _holds(side, aliases, masters) or _may_be_without(unit, module, node):
            continue
        one, two = (falling(s) for s in ((node.body, side) if in_body else (side, node.body)))
        matches = {}
        if _same([s for s in one if s not in idle], two, aliases, masters, folds, matches):
            pairs |= dict.fromkeys(fold_apart(module, folds, node, side, apex_in_body=in_body), matches)
    return pairs


def asks_too_early(unit: Unit, module: Module, test: ast.expr) -> bool:
    """Whether a test asks if `initialize` prepared an optimizer, `hasattr(optimizer, "_amp_stash")`, in a function that only
    runs before: it did not."""
    asked = any(
        isinstance(part, ast.Call)
        and dotted(part.func) == "hasattr"
        and [literal(a) for a in part.args[1:]] == ["_amp_stash"]
        for part in conjuncts(test)
    )
    return asked and unit.project.function_of(module, test) in unit.early


def _may_be_without(unit: Unit, module: Module, node: ast.If) -> bool:
    """Whether a test asks for an optimizer that some callers leave out: for them the plain branch stays."""
    function = unit.project.function_of(module, node)
    if function is None:
        return False
    names = optional_optimizers(unit.project, function, unit.optimizer_slots)
    return any(asks_for(node.test, name) is not None for name in names)


def _holds(block: Sequence[ast.stmt], aliases: dict[ast.stmt, Loss], masters: list[ast.Call]) -> bool:
    return any(n in aliases or n in masters for s in block for n in walk(s))


def _only_for(losses: Sequence[Loss]) -> set[ast.stmt]:
    """Statements beside scaled losses that only say how these are to be scaled: `delay = (i + 1) % steps != 0`."""
    asked: set[ast.AST] = set()
    for loss in losses:
        options = [*loss.call.args[2:], *(k.value for k in loss.call.keywords if k.arg not in ("loss", "optimizers"))]
        asked.update(n for option in options for n in walk(option))
    found: set[ast.stmt] = set()
    for loss in losses:
        module, scope = loss.module, loss.module.scope_of(loss.call)
        for stmt in module.block(loss.with_stmt):
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
            if isinstance(stmt, ast.Assign) and isinstance(target, ast.Name) and pure(stmt.value):
                loads = scope.reads(target.id)
                if loads and asked.issuperset(loads):
                    found.add(stmt)
    return found


def _same(
    mine: Sequence[ast.stmt],
    plain: Sequence[ast.stmt],
    aliases: dict[ast.stmt, Loss],
    masters: list[ast.Call],
    folds: Folds,
    matches: dict[ast.Call, ast.expr],
) -> bool:
    left = _flatten(mine, folds, aliases, {})
    right = _flatten(plain, folds, aliases, {})
    if len(left) != len(right):
        return False
    return all(_equal(a, b, names, masters, matches) for (a, names), (b, _) in zip(left, right, strict=True))


def _flatten(
    block: Sequence[ast.stmt], folds: Folds, aliases: dict[ast.stmt, Loss], names: dict[str, ast.expr]
) -> list[tuple[ast.stmt, dict[str, ast.expr]]]:
    out: list[tuple[ast.stmt, dict[str, ast.expr]]] = []
    for stmt in block:
        if stmt in folds.deleted or isinstance(stmt, ast.Pass) or imports_apex(stmt) or _import_guard(stmt):
            continue
        loss = aliases.get(stmt)
        if loss is not None and isinstance(stmt, WITH_NODES):
            inner = {**names, loss.alias: loss.loss} if loss.alias else names
            out += _flatten(stmt.body, folds, aliases, inner)
        elif stmt in folds.splices:
            out += _flatten(getattr(stmt, folds.splices[stmt]), folds, aliases, names)
        else:
            out.append((stmt, names))
    return out


def _import_guard(stmt: ast.stmt) -> bool:
    """A `try` that imports Apex and does nothing but complain where it is missing: it goes with the import."""
    return (
        isinstance(stmt, ast.Try)
        and all(imports_apex(s) for s in stmt.body)
        and not stmt.orelse
        and not stmt.finalbody
        and all(isinstance(s, (ast.Raise, ast.Expr, ast.Pass)) for h in stmt.handlers for s in h.body)
    )


def _equal(
    a: object, b: object, names: dict[str, ast.expr], masters: list[ast.Call], matches: dict[ast.Call, ast.expr]
) -> bool:
    """Structural equality, reading the scaled loss as the loss and `master_params(o)` as `model.parameters()`."""
    if isinstance(a, ast.Name) and a.id in names and isinstance(a.ctx, ast.Load):
        return _equal(names[a.id], b, {}, masters, matches) or (isinstance(b, ast.Name) and b.id == a.id)
    if isinstance(a, ast.Call) and isinstance(a.func, ast.Attribute) and isinstance(b, ast.Call):
        same = same_legacy(a, a.func, b, masters)
        if same is not None:
            matches.update(same[1])
            return all(_equal(x, y, names, masters, matches) for x, y in same[0])
    if isinstance(a, ast.Call) and a in masters:
        if isinstance(b, ast.Call) and isinstance(b.func, ast.Attribute) and b.func.attr == "parameters":
            matches[a] = b
            return True
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y, names, masters, matches) for x, y in zip(a, b, strict=True))
    if isinstance(a, ast.AST) and isinstance(b, ast.AST):
        if type(a) is not type(b):
            return False
        return all(
            _equal(getattr(a, f, None), getattr(b, f, None), names, masters, matches)
            for f in a._fields
            if f not in ("ctx", "type_comment")
        )
    return a == b
