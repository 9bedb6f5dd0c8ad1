"""A method that scales the loss and is overridden: the step of their class must see scaled gradients from either.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import Function, dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import method_called, walk
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.units.unscaled import is_scheduler
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP222",
        "A method that scales the loss is overridden by one with a plain backward",
        "backward",
        apex="Gradients are unscaled at once, so the step of the class serves scaled and plain backwards alike.",
        native="scaler.step divides by the scale: every backward before it must be scaled.",
        why="A subclass whose backward is left plain would step with gradients divided by the scale.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale",),
    ),
)


def apply(m: Migration) -> None:
    """Scale the backward of methods that override a scaling one, where they inherit the step."""
    if not m.scales:
        return
    for loss in m.unit.losses:
        method = m.project.function_of(loss.module, loss.call)
        if method is None or method.cls is None or not m.live(loss.module, loss.with_stmt):
            continue
        for cls in method.cls.descendants():
            other = cls.methods.get(method.name)
            if other is not None and other is not method and _inherits_step(m, other):
                _scale(m, other)
        for cls in method.cls.ancestry():
            other = cls.methods.get(method.name)
            if other is not None and other is not method and _plain(m, other) and _owns_step(m, other):
                raise Blocked(
                    loss.module,
                    loss.call,
                    "AMP222",
                    "amp.scale_loss",
                    f"{method.name} overrides a plain backward of {cls.name}, whose step serves both: give the class that "
                    "scales a step of its own, or the base class a scaler that is disabled",
                )


def _steppers(m: Migration) -> list[Function]:
    found = (m.project.function_of(s.module, s.call) for s in m.unit.steps if m.live(s.module, s.call))
    return [f for f in found if f is not None and f.cls is not None]


def _inherits_step(m: Migration, method: Function) -> bool:
    """Whether instances of a method's class are stepped by a method that they inherit, and do not override either, or by
    one of another object that their methods call."""
    cls = method.cls
    assert cls is not None
    steppers = _steppers(m)
    if any(f.cls is not cls and cls.method(f.name) is f for f in steppers):
        return True
    apart = [f for f in steppers if f.cls is not None and f.cls.family is not cls.family]
    own = (f for c in cls.ancestry() for f in c.methods.values() if cls.method(f.name) is f)
    return bool(apart) and any(_calls(m, f, apart) for f in own)


def _calls(m: Migration, method: Function, steppers: list[Function]) -> bool:
    """Whether a method calls one that steps; of an object of which nothing is known, one that is called so."""
    names = {f.name for f in steppers}
    for node in walk(method.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            known = m.project.resolved.get(node)
            if known and not set(steppers).isdisjoint(known):
                return True
            if not known and node.func.attr in names and not _its_own(m, method.module, node.func.value):
                return True
    return False


def _its_own(m: Migration, module: Module, receiver: ast.expr) -> bool:
    """Whether what is stepped is an optimizer itself, or the schedule of one."""
    written = ast.unparse(receiver)
    return m.project.slot(module, receiver) in m.unit.optimizer_slots or "optim" in written or is_scheduler(written)


def _owns_step(m: Migration, method: Function) -> bool:
    """Whether a class steps what a method of it gave gradients, for its subclasses as well: not where the method steps."""
    assert method.cls is not None
    above = list(method.cls.ancestry())
    return any(f.cls in above and f is not method for f in _steppers(m))


def _plain(m: Migration, method: Function) -> list[ast.Call]:
    """The plain backwards of a method."""
    scaled = {a for x in m.unit.losses for a in walk(x.with_stmt)}
    return [
        node
        for node in walk(method.node)
        if isinstance(node, ast.Call) and method_called(node) == "backward" and node not in scaled
        if not m.project.resolved.get(node) and m.live(method.module, node)
        if not isinstance(receiver := getattr(node.func, "value", None), ast.Call) or dotted(receiver.func) != "super"
    ]


def _scale(m: Migration, method: Function) -> None:
    module = method.module
    own = {m.project.function_of(x.module, x.call) for x in m.unit.losses}
    for call in _plain(m, method):
        if method in own:
            raise Blocked(
                module,
                call,
                "AMP222",
                "backward",
                f"{method.name} has scaled and plain backwards before a step that it inherits; scale both, or neither",
            )
        assert isinstance(call.func, ast.Attribute)
        receiver = call.func.value
        scaler = m.scaler.at(module, call)
        edits = m.edit(module)
        bare = isinstance(receiver, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        if bare:
            edits.insert("before", receiver, f"{scaler}.scale(")
            edits.insert("after", receiver, ")")
        else:  # parentheses around the receiver become those of the call
            edits.insert("before", call, f"{scaler}.scale")
        m.output.note(
            module,
            call,
            "AMP222",
            "backward",
            "scaled too: it overrides a method whose gradients go into the scaled step of its base class",
            "review",
        )
