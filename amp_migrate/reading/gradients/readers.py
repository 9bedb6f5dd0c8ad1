"""Which statements and functions read the gradients of a unit's optimizers, and of which, sum them, or run a backward."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cached_property

from amp_migrate.reading.gradients.held_readers import Held, held_readers
from amp_migrate.reading.gradients.masters import given_masters
from amp_migrate.reading.gradients.untrained import Untrained
from amp_migrate.reading.gradients.uses import NOT_READERS, READER_NAMES, GradientUses
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.units.places import models_given, place_name
from amp_migrate.reading.units.unit import Step, Unit

SUMS = re.compile(r"all_?reduce", re.IGNORECASE)


class Readers:
    """Answers, for one unit, which statements read gradients or run a backward."""

    def __init__(self, unit: Unit, divided: Mapping[ast.AST, Module] | None = None) -> None:
        self.unit = unit
        self.divided = divided or {}  # what is read as the scale has it, a clip's bound times it: no place waits for it
        self.project: Project = unit.project
        self.uses = unit.project.once(GradientUses)
        self.untrained = Untrained(unit)
        self._summing: dict[Node, bool] = {}
        self._scaled: dict[Node, bool] = {}
        self._held: set[Slot] | None = None
        self._bodies = {s for loss in unit.losses for s in walk(loss.with_stmt)}
        # What the values are that are kept somewhere is found out without them.
        self._reading = {} if self._given_masters or self.divided else self.uses.reading
        self._held = self._find_held()
        self._reading = {}

    def reads(self, module: Module, node: Node) -> bool:
        return not self.sums(node) and any(self.reads_own(module, n) for n in node.walk())

    def reads_own(self, module: Module, node: Node) -> bool:
        return not self.sums(node) and any(self._reads(module, n, 3) for n in node.own)

    def sums(self, node: Node) -> bool:
        """Whether a statement only sums gradients over processes, or gathers them for that. Sums commute with the scale,
        and unscaling afterwards lets every process see an overflow of any."""
        if node not in self._summing:
            self._summing[node] = self._only_sums(node)
        return self._summing[node]

    def _only_sums(self, node: Node) -> bool:
        calls = [called_name(n) for n in node.all_calls]
        if any(READER_NAMES.search(c) for c in calls):
            return False
        if any(SUMS.search(c) for c in calls):
            return True
        if not isinstance(node.stmt, ast.Assign) or not isinstance(node.stmt.targets[0], ast.Name):
            return False
        name = node.stmt.targets[0].id
        uses = [
            other
            for other in node.parent.nodes[node.index + 1 :]
            if any(isinstance(n, ast.Name) and n.id == name for n in other.all())
        ]
        return bool(uses) and all(self.sums(use) for use in uses)

    def _reads(self, module: Module, node: ast.AST, depth: int) -> bool:
        if self.uses.reads(module, node):
            return node not in self.divided
        if not isinstance(node, ast.Call) or called_name(node) in NOT_READERS:
            return False
        if self.handles(module, node):
            return True
        return depth > 0 and any(self.function_reads(f, depth - 1) for f in self.uses.followed(node))

    def handles(self, module: Module, call: ast.Call) -> bool:
        """Whether a call is handed the gradients of `master_params`, or runs a reader that is kept somewhere."""
        return call in self._given_masters or self._held_called(module, call)

    def _held_called(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs a reader that is kept as a value, or an object whose `__call__` reads gradients."""
        if self._held is None:
            return False
        return not self._held.isdisjoint(self.uses.slots(module, call)) or any(
            self.function_reads(method, 3) for method in self.uses.methods(module, call)
        )

    def _find_held(self) -> set[Slot]:
        """The variables, attributes and parameters that may hold a function that reads gradients."""
        kept = ((m, held) for m in self.unit.tied for held in held_readers(self.project, m))
        return self.project.reaches(s for m, held in kept if self._reader(m, held) for s in held.slots)

    def _reader(self, module: Module, held: Held) -> bool:
        if held.functions:
            return any(self.function_reads(f, 3) for f in held.functions)
        return not held.parts or any(self._reads(module, n, 3) for n in held.parts)

    @cached_property
    def _given_masters(self) -> dict[ast.Call, Module]:
        return {call: module for call, module in given_masters(self.unit).items() if call not in self.divided}

    @cached_property
    def _handling_masters(self) -> set[Function]:
        """The functions in which such a call stands."""
        around = (a for call, module in self._given_masters.items() for a in module.ancestors(call))
        return {f for a in around if (f := self.project.functions.get(a)) is not None}

    def reads_here(self, module: Module, node: ast.AST) -> bool:
        """Whether an expression itself reads gradients, or calls by its name something that does."""
        return node in self.divided or self._reads(module, node, 0)

    def function_reads(self, function: Function, depth: int) -> bool:
        """Whether the body of a function reads gradients; `depth` is how many further calls are followed."""
        key = (function, depth)
        if key not in self._reading:
            self._reading[key] = False  # recursion
            self._reading[key] = self._body_reads(function, depth)
        return self._reading[key]

    def _body_reads(self, function: Function, depth: int) -> bool:
        body = self.uses.body(function)
        if function in self._handling_masters or (body.reads and self._reads_undivided(function)):
            return True
        if self._held is not None and (
            not self._held.isdisjoint(body.called) or any(self.function_reads(m, 3) for m in body.methods)
        ):
            return True
        return depth > 0 and any(self.function_reads(f, depth - 1) for f in body.followed)

    def _reads_undivided(self, function: Function) -> bool:
        if not self.divided:
            return True
        return any(self.uses.reads(function.module, n) and n not in self.divided for n in function.inside)

    def backward(self, node: Node) -> bool:
        """Whether a statement runs a backward."""
        return any(self.uses.runs_backward(n) for n in node.all_calls)

    def concerns(self, module: Module, reader: Node, step: Step) -> bool:
        """Whether a reader is about this step's optimizer; true unless it plainly names another one."""
        mine = step.name
        asked: list[ast.expr] = []
        for site in self.unit.sites:
            if site.module is not module or site.call is None or not any(site.call is n for n in reader.all()):
                continue
            if site.short == "master_params" and site.call.args:
                asked.append(site.call.args[0])
            elif site.short == "clip_master_grads" and isinstance(site.node, ast.Attribute):
                asked.append(site.node.value)
        if asked:
            optimizers = self.unit.optimizers
            own = optimizers.number(step.home or step.module, step.optimizer)
            theirs = {optimizers.number(module, node) for node in asked}
            if len(optimizers) > 1 and own is not None and None not in theirs:
                return own in theirs
            named = [module.source(node) for node in asked]
            return mine in named or not any(s.name in named for s in self.unit.steps if s.module is module)
        if (read := self._whose(module, reader, step)) is not None:
            return read
        others = {s.name for s in self.unit.steps if s.module is module} - {mine}
        if not others:
            return True
        own_models = self._models_of(module, step.name)
        if not own_models:
            return True
        mentioned = {place_name(n) for n in reader.all() if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))}
        other_models: set[str | None] = set()
        for other in self.unit.steps:
            if other.module is module and other.name in others:
                other_models |= self._models_of(module, other.name)
        return bool(own_models & mentioned) or not (other_models - own_models) & mentioned

    def _whose(self, module: Module, reader: Node, step: Step) -> bool | None:
        """Whether what a reader is given, `net.parameters()`, is of a step's optimizer; None where that cannot be told."""
        optimizers = self.unit.optimizers
        own = optimizers.number(step.home or step.module, step.optimizer) if len(optimizers) > 1 else None
        if own is None:
            return None
        read = optimizers.given_to(module, reader.all_calls, {})
        return own in read if read else None

    def clears(self, module: Module, node: ast.Attribute, step: Step) -> bool:
        """Whether `X.zero_grad` or `p.grad.zero_` clears a step's gradients: not those of another optimizer only."""
        text = ast.unparse(node.value)
        if node.attr != "zero_grad":
            return node.attr == "zero_" and "grad" in text
        own = self._models_of(step.module, step.name)
        sources = [self.project.sources(m, n) for m, n in ((module, node.value), (step.module, step.optimizer))]
        cleared, mine = map(self.project.reaches, sources)
        if {m.rpartition(".")[2] for m in own} & set(text.split(".")) or cleared & mine:
            return True
        optimizer = cleared & self.unit.optimizer_slots or "opt" in text.lower() or self._models_of(module, text)
        return not optimizer and not own

    def _models_of(self, module: Module, text: str) -> set[str]:
        """Dotted names whose `.parameters()` the optimizer was built from."""
        return self.project.once(models_given, module).get(ast.unparse(ast.parse(text, mode="eval")), set())
