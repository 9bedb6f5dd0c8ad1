"""Attributes that are read as they were, `self.amp` or `hasattr(self, "amp")`, and that nothing gives the object any more.

A read raises then. Where the attribute is asked for by name the answer is another, in silence: `hasattr` is false in every
run, and `getattr` gives its default. Of an attribute that is still set somewhere nothing is said here.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.options import declared
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import attributes
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.fields import gives, made_here, one_object
from amp_migrate.audit.values.names import OPTIONS, last_name
from amp_migrate.audit.ways.installed import tries_apex

# What layers of torch's have of themselves, of which a program may make any.
OF_LAYERS = frozenset(
    "weight bias eps affine elementwise_affine normalized_shape num_features momentum running_mean running_var "
    "num_batches_tracked track_running_stats in_features out_features in_channels out_channels num_embeddings embedding_dim "
    "training".split()
)


def no_longer_given(review: Review) -> Iterator[Doubt]:
    lost = _lost(review)
    yield from _only_none(review, lost)
    for module in review.after.modules.values() if lost else ():
        for node, receiver, attr in _asked(module, lost.keys()):
            cls = review.after.is_self(module.scope_of(node), receiver)
            made = {cls} if cls is not None else made_here(review, module.scope_of(node), receiver)
            if made:
                classes = {c for one in made for c in one_object(review, one)}
                if lost[attr].isdisjoint(c.qualname for c in classes) or gives(review, classes, attr, strangers=False):
                    continue
            elif not _unset(review, attr) or (isinstance(node, ast.Call) and syntax.text(receiver) not in lost[attr]):
                continue
            elif not isinstance(node, ast.Call):
                if not _as_it_was(review, module, node, attr):
                    continue
                if last_name(receiver) not in OPTIONS and review.after.dotted(module.scope_of(node), receiver) is None:
                    message = (
                        f"nothing in sight sets an attribute {attr} any more: see what {syntax.text(receiver)} is here"
                    )
                    yield review.doubt(module, node, "AMP131", syntax.text(node), message, "review")
                continue
            message = f"{_answer(node)}: nothing sets {syntax.text(receiver)}.{attr} any more"
            yield review.doubt(module, node, "AMP131", syntax.text(node), message)


def _only_none(review: Review, lost: Iterable[str]) -> Iterator[Doubt]:
    """Attributes that something was put into, and that hold None in every run now, though what they held is still used."""
    for attr in lost:
        before = [value for m in review.before.having(attr) for _, value, _ in attributes(m).get(attr, ())]
        after = [value for m in review.after.having(attr) for _, value, _ in attributes(m).get(attr, ())]
        if not after or not all(map(syntax.is_none, after)) or all(map(syntax.is_none, before)):
            continue
        for module in review.after.having(attr):
            used = (n for n in module.loads.get(attr, ()) if isinstance(module.parents.get(n), ast.Attribute))
            told = (n for n in used if isinstance(n, ast.Attribute) and _as_it_was(review, module, n, attr))
            if (node := next(told, None)) is not None:
                message = (
                    f"nothing in sight sets {syntax.text(node)} to anything but None any more: see what is to be done here "
                    "where it was set"
                )
                yield review.doubt(module, node, "AMP131", syntax.text(node), message, "review")


def _as_it_was(review: Review, module: Module, node: ast.expr, attr: str) -> bool:
    """Whether a file read this before: `self.scaler.scale` is the migration's own."""
    before = review.before.modules.get(module.path)
    return before is not None and syntax.text(node) in map(syntax.text, before.loads.get(attr, ()))


def _unset(review: Review, attr: str) -> bool:
    """Whether nothing in sight gives anything an attribute: no statement, no class, no parser of options; nor a layer of torch's."""
    if attr in OF_LAYERS:
        return False
    if attr in declared(review.after) or review.after.methods_named(attr):
        return False
    if any(attr in cls.scope.bindings for cls in review.after.classes):
        return False
    return not any(attributes(module).get(attr) for module in review.after.having(attr))


def _asked(module: Module, names: Collection[str]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Reads of attributes of these names: of what, and which. What is read under a `hasattr` is told at that."""
    by_name = set[tuple[str, str]]()
    for call in (*module.calls_named.get("hasattr", ()), *module.calls_named.get("getattr", ())):
        name = call.args[1] if len(call.args) > 1 and isinstance(call.func, ast.Name) else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value in names:
            by_name.add((syntax.text(call.args[0]), name.value))
            yield call, call.args[0], name.value
    for attr in names:
        for node in module.loads.get(attr, ()):
            if isinstance(node, ast.Attribute) and (syntax.text(node.value), attr) not in by_name:
                yield node, node.value, attr


def _lost(review: Review) -> dict[str, set[str]]:
    """Attributes that a file no longer sets, and of what: the classes, or what stands before the dot."""
    found: dict[str, set[str]] = {}
    for change in review.changes.values():
        after = attributes(change.after)
        for attr, stores in attributes(change.before).items():
            still = after.get(attr, ())
            stores = [s for s in stores if not _without_apex(change.before, s[0])]
            if len(stores) > len(still):
                holders = _holders(review.before, change.before, stores) - _holders(review.after, change.after, still)
                found.setdefault(attr, set()).update(holders)
    return {attr: holders for attr, holders in found.items() if holders}


def _without_apex(module: Module, store: ast.AST) -> bool:
    """Whether a store is one of runs alone that fail to import Apex: what reads the attribute in the others has it from
    elsewhere, from a file of settings."""
    handlers = (a for a in module.ancestors(store) if isinstance(a, ast.ExceptHandler))
    tries = (stmt for h in handlers if isinstance(stmt := module.parents.get(h), ast.Try) and tries_apex(stmt))
    return any(module.function_around(stmt) is module.function_around(store) for stmt in tries)


def _holders(program: Program, module: Module, stores: Iterable[tuple[ast.Attribute, object, object]]) -> set[str]:
    found = set[str]()
    for store, _, _ in stores:
        owner = program.is_self(module.scope_of(store), store.value)
        found.add(owner.qualname if owner is not None else syntax.text(store.value))
    return found


def _answer(asked: ast.expr) -> str:
    if not isinstance(asked, ast.Call):
        return "read here"
    if syntax.text(asked.func) == "hasattr":
        return "false in every run"
    return "its default in every run" if len(asked.args) > 2 else "an AttributeError in every run"
