"""An attribute that is newly read of another object, `self.trainer.scaler`, was given to it by then.

Proved, where the object's class is of the program and its `__init__` does not assign the attribute: each way from the start
of a process to the read comes after a call of a method that does. `assigned.py` asks the same of names and of `self`. Nor is
a scaler made that reaches nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.chains import Chain, comes_after
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, flags_told, minimal, negation
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP131: see `assigned.py`

Store = tuple[Module, ast.Attribute]


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        yield from _lost(review, change)
        for stmt in [*change.added, *change.rewritten]:
            old = change.rewritten.get(stmt)
            known = syntax.text(old) if old is not None else ""
            for node in syntax.own_line(stmt):
                if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                    continue
                if not isinstance(node.value, (ast.Name, ast.Attribute)) or syntax.text(node) in known:
                    continue
                stores = _stores(review, change.after, node)
                if stores and (when := _missed(both, change.after, node, stores)) is not None:
                    text = syntax.text(node)
                    where = ", ".join(sorted({f"{m.path}:{review.line(m, s)}" for m, s in stores}))
                    message = f"{text} has no value here{when}: it is assigned at {where} only"
                    verdict: Verdict = "review" if when.endswith("object") else "refuse"
                    yield review.doubt(change.after, node, "AMP131", text, message, verdict)


def _lost(review: Review, change: Change) -> Iterator[Doubt]:
    """A scaler that a function makes for itself, and neither uses nor hands on: who steps with one has another, or none."""
    module = change.after
    if "GradScaler" not in module.text:
        return
    for stmt in [*change.added, *change.rewritten]:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        function = module.function_around(stmt)
        made = stmt.value
        if function is None or not isinstance(made, ast.Call):
            continue
        name = stmt.targets[0].id
        if review.after.dotted(function.scope, made.func) not in GRAD_SCALER or name in function.scope.outer:
            continue
        reads = (n for n in syntax.every(function.node, ast.Name) if isinstance(n.ctx, ast.Load))
        if not any(n.id == name for n in reads):
            message = (
                f"{name} is made here and handed to nobody: what is to scale and step with it elsewhere cannot get it"
            )
            yield review.doubt(module, stmt, "AMP131", name, message, "review")


def _stores(review: Review, module: Module, node: ast.Attribute) -> list[Store]:
    """Where the attribute of another object is assigned, if only methods called later do so; else nothing."""
    program = review.after
    scope = module.scope_of(node)
    if program.is_self(scope, node.value) or program.dotted(scope, node) is not None:
        return []
    stores = [(m, target) for m, target, _, _ in review.values_after.fields(node.attr)]
    if not stores:
        return []
    classes: list[Class] = []
    for origin in review.values_after.of(module, node.value):
        if not isinstance(origin.node, ast.Call) or origin.path:
            return []
        made = program.definitions(origin.module.scope_of(origin.node), origin.node.func, guess=False)
        classes += [d for d in made if isinstance(d, Class)]
        if not made or not classes:
            return []
    found: list[Store] = []
    for cls in classes:
        family = program.family_up(cls)
        if any(node.attr in c.methods or node.attr in c.scope.bindings for c in family):
            return []
        for where, target in stores:
            owner = program.is_self(where.scope_of(target), target.value)
            function = where.function_around(target)
            if owner is None or (owner in family and (function is None or function.name == "__init__")):
                return []
            if owner in family and function is not None:
                if _from_init(review, function, family):
                    return []
                found.append((where, target))
    return found


def _from_init(review: Review, function: Function, family: list[Class], depth: int = 0) -> bool:
    """Whether `__init__` of a class runs a method, so that each new object has what that assigns."""
    for module, call in review.after.callers(function):
        around = module.function_around(call)
        if around is None or around.owner not in family:
            continue
        if around.name == "__init__" or (
            depth < 4 and around is not function and _from_init(review, around, family, depth + 1)
        ):
            return True
    return False


def _missed(both: Mixed, module: Module, node: ast.Attribute, stores: list[Store]) -> str | None:
    """The runs that come to a read and by no assignment before it, spelled; None where there are none, or it cannot be told."""
    chains, predicates = both.after.chains, both.after.predicates
    ways = [way for where, target in stores for way in chains.to(where, target)]
    for chain in chains.to(module, node):
        if chain.open:
            if _on_new(chain, ways):
                return f" in {chain.start.function.name}() of a new object" if chain.start.function is not None else ""
            continue
        if not chains.certain(chain):
            continue
        before: list[Formula] = []
        for way in ways:
            comes = _precedes(way, chain)
            if comes is None:
                return None
            if comes:
                before.append(predicates.given(way, loops=False))
        missed = conjunction([predicates.given(chain), negation(disjunction(before))])
        found = example(missed)
        if found is not None:
            said = flags_told(minimal(missed, found))
            return f" where {' and '.join(said[:3])}" if said else ""
    return None


def _on_new(chain: Chain, ways: list[Chain]) -> bool:
    """Whether a way starts with a method that whoever made the object may call, and that assigns nothing itself."""
    start = chain.start.function
    return start is not None and start.owner is not None and not any(w.start.function is start for w in ways)


def _precedes(way: Chain, chain: Chain) -> bool | None:
    """Whether a way of one process comes before another; None where that cannot be told."""
    after = comes_after(chain, way)
    if after is not None:
        return after
    if way.start.module is chain.start.module and way.start.function is chain.start.function:
        return True
    return None if way.open else False
