"""Functions that read gradients and that nothing in sight calls: `wrapper.clip_grad_norm(1.0)`, between the `backward` and
the `step` of the same wrapper. Whoever calls one has run the scaled backward and has not stepped yet."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.uses import reads_by_name
from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.view import Block, Node
from amp_migrate.reading.units.unit import Step, Unit
from amp_migrate.reading.values.sources import Sources

View = Callable[[Scope], Block]


def entry_readers(unit: Unit, reader: GradientReader, view: View) -> Iterator[tuple[Function, list[Node]]]:
    """Such methods of the classes whose methods scale, and such functions that ask for `master_params`, each with its
    statements that read gradients."""
    scaling = {f for f in unit.functions() if f.cls is not None}
    classes = {f.cls for f in scaling if f.cls is not None}
    masters = {unit.project.function_of(s.module, s.node) for s in unit.sites if s.short == "master_params"}
    stepping = {unit.project.function_of(s.module, s.call) for s in unit.steps}
    # Of a program of many units each asks: without a class of its own it looks at no more than what it names.
    named = [f for f in masters if f is not None] if not classes and len(masters) < 2 else None
    for function in unit.project.functions.values() if named is None else named:
        cls = function.cls
        if cls is None:
            if function not in masters or function.scope.parent is not function.module.root:
                continue
        elif not any(_has(other, function) for other in classes):
            continue
        if function.name.startswith("__") or unit.project.calls.get(function) or function in stepping:
            continue
        steppers = [f for f in stepping if f is not None and _beside(function, f)]
        if steppers and all(_runs_backward(reader, view, f) for f in steppers):
            continue  # nothing comes between a backward and a step in one function
        if _runs_backward(reader, view, function):
            continue
        reading = [n for n in view(function.scope).nodes if reader.reads(function.module, n)]
        # What calls a function that is a value is a reader itself.
        if reading and not unit.project.once(Sources).is_value(function) and not _only_multiplies(function):
            yield function, reading


def _beside(function: Function, other: Function) -> bool:
    """Whether two methods may be of one object; functions are all beside one another."""
    if function.cls is None:
        return True
    return other.cls is not None and _related(function.cls, other.cls)


def _only_multiplies(function: Function) -> bool:
    """Whether all that is done to gradients is `p.grad.mul_(factor)`, which the scale makes no difference to."""
    parents = function.module.parents
    found = [n for n in function.inside if isinstance(n, ast.Attribute) and n.attr == "grad"]
    for node in found:
        outer = parents.get(node)
        if isinstance(outer, ast.Attribute) and outer.attr == "data":
            outer = parents.get(outer)
        if isinstance(outer, ast.Attribute) and outer.attr in ("mul_", "div_"):
            continue
        if not isinstance(outer, ast.Compare) or not all(ast.unparse(c) == "None" for c in outer.comparators):
            return False
    return bool(found) and not any(isinstance(n, ast.Call) and reads_by_name(called_name(n)) for n in function.inside)


def stepped_by(unit: Unit, function: Function, step: Step) -> bool:
    """Whether a step is made in a method of the same class, of an optimizer that both know as the same attribute."""
    other = unit.project.function_of(step.module, step.call)
    name = function.scope.self_name
    return (
        other is not None
        and function.cls is not None
        and other.cls is not None
        and _related(function.cls, other.cls)
        and name == other.scope.self_name
        and step.name.startswith(f"{name}.")
    )


def clips(function: Function) -> bool:
    """Whether a method clips gradients, or changes them in another way: after the step that would be to no effect. One
    that only looks at them might as well be called there."""
    return any(_changes(n) for n in function.inside)


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = called_name(node)
        return "clip" in name or (name.endswith("_") and ".grad" in ast.unparse(node.func))
    return isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store)


def _runs_backward(reader: GradientReader, view: View, function: Function) -> bool:
    nodes = view(function.scope).walk()
    return any(reader.backward(n) or reader.scaled(n) for n in nodes)


def _has(scaling: ClassInfo, function: Function) -> bool:
    """Whether a method may be one of an object that scales: not what a base class has for those that do not."""
    return scaling.method(function.name) is function or (
        function.cls is not None and function.cls is not scaling and scaling in function.cls.ancestry()
    )


def _related(one: ClassInfo, other: ClassInfo) -> bool:
    """Whether an object may be of both classes: one of them is the other's base."""
    return one in other.ancestry() or other in one.ancestry()
