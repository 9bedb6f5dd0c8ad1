"""Attributes that a migration reads of `self`, and that no class gives the objects which have the method."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Class, Function
from amp_migrate.audit.program.syntax import own_nodes
from amp_migrate.audit.program.targets import attributes
from amp_migrate.audit.review import Review

KNOWN = ("object", "torch.", "abc.", "typing.", "ABC", "Generic")
DYNAMIC = ("setattr", "__getattr__", "__getattribute__", "__dict__", "vars")


def never_given(review: Review) -> Iterator[Doubt]:
    """Reads of `self.x` that the migration wrote where no class of the object, nor anybody outside, assigns `x`."""
    told: set[tuple[str, str]] = set()
    for change in review.changes.values():
        for function in change.after.functions:
            cls = function.owner
            if cls is None or not function.parameters:
                continue
            for read in _new_reads(change, function):
                key = (cls.qualname, read.attr)
                if key in told or _gives(review, _one_object(review, cls), read.attr):
                    continue
                told.add(key)
                message = (
                    f"{syntax.text(read)} is read here, and neither {cls.name} nor a class that it shares objects with "
                    "assigns it"
                )
                yield review.doubt(change.after, read, "AMP131", syntax.text(read), message)


def _new_reads(change: Change, function: Function) -> Iterator[ast.Attribute]:
    """Attributes of the first parameter of a method, read in statements that are not what they were."""
    me = function.parameters[0].arg
    old = change.function_before(function)
    known = {n.attr for n in own_nodes(old.node) if isinstance(n, ast.Attribute)} if old is not None else set()
    for node in own_nodes(function.node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr not in known:
            if isinstance(node.value, ast.Name) and node.value.id == me and function.bound:
                if change.same.get(change.after.statement(node)) is None:
                    yield node


def _one_object(review: Review, cls: Class) -> set[Class]:
    """The classes that an object with this class among its own may have as well."""
    program = review.after
    found: set[Class] = set()
    below = [cls]
    for one in below:
        below += [s for s in program.subclasses(one) if s not in below]
        found.update(program.family_up(one))
    return found


def _gives(review: Review, classes: set[Class], name: str) -> bool:
    """Whether the classes define a name, or something assigns it to what may be an object of them."""
    for cls in classes:
        if name in cls.methods or any(word in cls.module.words for word in DYNAMIC):
            return True
        if any(not base.startswith(KNOWN) for base in review.after.external_bases(cls)):
            return True  # what makes the objects may be out of sight, too
        if name in cls.scope.bindings:
            return True
    for module in review.after.having(name):
        for store, _, _ in attributes(module).get(name, ()):
            owner = review.after.is_self(module.scope_of(store), store.value)
            if owner is None or owner in classes:
                return True
    return False
