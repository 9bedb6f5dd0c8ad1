"""Losses: which functions make a scaled loss, under which names, and which arguments become one."""

from __future__ import annotations

import ast
from functools import cached_property

from amp_migrate.reading.program.definitions import Function, dotted
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import children, reached, walk
from amp_migrate.reading.regions.forwards import Forwards
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.entries import DISPLAYS


class LossMakers:
    """Where the scaled losses of one unit come from."""

    def __init__(self, unit: Unit, forwards: Forwards) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self.forwards = forwards
        self.functions = self._functions_that_make_losses()

    def _functions_that_make_losses(self) -> dict[Function, set[str]]:
        """Functions whose result is (part of) a scaled loss, with the names they return it under."""
        found: dict[Function, set[str]] = {}
        queue = [(x.module, x.module.scope_of(x.call), names_in(x.loss)) for x in self.unit.trained]
        # What is handed to the function that scales it: `self.update(net, optimizer, loss)`.
        queue += [
            (module, module.scope_of(call), names_in(value))
            for target, names in self.receivers
            for module, call in self.project.calls.get(target, ())
            for parameter, value in self.project.arguments(target, call)
            if parameter in names
        ]
        while queue:
            module, scope, wanted = queue.pop()
            stored = [(n, _stored(n)) for n in _assignments(scope)]
            terms = _terms(stored, wanted)
            for node, names in stored:
                if not names & (wanted | terms):
                    continue
                for call in walk(node.value):
                    if not isinstance(call, ast.Call):
                        continue
                    for function in self.forwards.run_by(module, call):
                        if function in found:
                            continue
                        if not names & wanted and not self.forwards.has_forward(function):
                            continue  # a weight, or what is computed from what a forward gave
                        positions = _positions(node, wanted | terms) if call is node.value else None
                        found[function] = self._returned(function, positions)
                        queue.append((function.module, function.scope, found[function]))
        return found

    def _returned(self, function: Function, positions: set[int] | None) -> set[str]:
        names: set[str] = set()
        for node in walk(function.node):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            if isinstance(node.value, DISPLAYS) and positions is not None:
                for index, element in enumerate(node.value.elts):
                    names |= names_in(element) if index in positions else set()
            else:
                names |= names_in(node.value)
        return names

    def names(self, module: Module, loss: ast.expr) -> set[str]:
        """Names whose value a loss expression takes: not the functions it calls, and none where it holds the forward
        itself, which is put in a region where the loss is scaled."""
        if any(self.forwards.is_forward(module, n) for n in walk(loss)):
            return set()
        called = {id(n.func) for n in walk(loss) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        names: set[str] = set()
        stack: list[ast.AST] = [loss]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in called:
                names |= names_in(node)
            elif id(node) not in called:
                stack.extend(children(node))
        return names

    def passed(self, module: Module, scope: Scope) -> list[ast.expr]:
        """Arguments of this scope's calls that become a scaled loss in another function."""
        return [
            value
            for target, names in self.receivers
            for caller, call in self.project.calls.get(target, [])
            if caller is module and module.scope_of(call) is scope and scope.owner_class is not _keeper(target)
            for parameter, value in self.project.arguments(target, call)
            if parameter in names
        ]

    def feeding(self, scope: Scope) -> set[ast.Call]:
        """The calls of a scope whose values go into a loss that is scaled there."""
        losses = [x.loss for x in self.unit.trained if x.module.scope_of(x.call) is scope]
        stored = [(n, _stored(n)) for n in _assignments(scope)] if losses else []
        starts = (name for loss in losses for name in names_in(loss))
        wanted = set(reached(starts, lambda name: (x for n, kept in stored if name in kept for x in names_in(n.value))))
        values = [*losses, *(n.value for n, kept in stored if kept & wanted)]
        return {call for value in values for call in walk(value) if isinstance(call, ast.Call)}

    @cached_property
    def receivers(self) -> list[tuple[Function, set[str]]]:
        """Functions that are given a loss to scale, and the parameters that hold it: those that scale it themselves, and
        each `__init__` that keeps it for a method that does (`self.loss = loss`)."""
        found: list[tuple[Function, set[str]]] = []
        for loss in self.unit.trained:
            target = self.project.function_of(loss.module, loss.call)
            names = names_in(loss.loss)
            if target is None:
                continue
            if names & set(target.scope.params):
                found.append((target, names))
            init = target.cls.method("__init__") if target.cls is not None else None
            kept = {
                node.value.id
                for node in (walk(init.node) if init is not None else ())
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and _stored(node) & names
            }
            if init is not None and kept & set(init.scope.params):
                found.append((init, kept))
        return found


def _keeper(target: Function) -> Scope | None:
    """The class whose `__init__` a function is: what its own methods hand to a new object was scaled as they got it."""
    return target.cls.scope if target.name == "__init__" and target.cls is not None else None


def names_in(node: ast.AST) -> set[str]:
    """Variables an expression reads."""
    out: set[str] = set()
    for n in walk(node):
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load):
            name = dotted(n)
            if name:
                out.add(name)
    return out


def _positions(node: ast.Assign | ast.AugAssign, wanted: set[str]) -> set[int] | None:
    """Which elements of an unpacked result are wanted; None where all may be."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, DISPLAYS):
        return None
    return {i for i, e in enumerate(target.elts) if _stores(e) & wanted}


def _assignments(scope: Scope) -> list[ast.Assign | ast.AugAssign]:
    return [n for s in scope.body for n in walk(s) if isinstance(n, (ast.Assign, ast.AugAssign))]


def _terms(stored: list[tuple[ast.Assign | ast.AugAssign, set[str]]], wanted: set[str]) -> set[str]:
    """Names whose values are added up to the wanted ones: `loss = loss + weight * extra`, `loss += extra`."""
    terms: set[str] = set()
    more = True
    while more:
        more = False
        for node, names in stored:
            new = _summed(node.value) - wanted - terms if names & (wanted | terms) else set()
            terms |= new
            more = more or bool(new)
    return terms


def _summed(value: ast.expr) -> set[str]:
    """The variables that an expression of arithmetic alone takes its value from."""
    if isinstance(value, ast.BinOp):
        return _summed(value.left) | _summed(value.right)
    return {dotted(value) or ""} - {""} if isinstance(value, (ast.Name, ast.Attribute)) else set()


def _stores(node: ast.AST) -> set[str]:
    return {dotted(n) or "" for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _stored(node: ast.Assign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name for t in targets for name in _stores(t)}
