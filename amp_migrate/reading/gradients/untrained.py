"""Optimizers that nothing ever gives a gradient: all of their parameters are made so that they take none.

Apex steps them to no effect, as torch does: what has no gradient is passed by. `scaler.step` raises there (No inf checks were
recorded for this optimizer).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from amp_migrate.reading.program.definitions import ClassInfo, argument, is_off
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes, walk
from amp_migrate.reading.units.places import Keys
from amp_migrate.reading.units.unit import Step, Unit

PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
ADDING = frozenset("register_parameter add_module register_module setattr".split())
# What `torch.nn` has besides classes that may hold parameters.
PLAIN_PARTS = ("torch.nn.functional.", "torch.nn.init.")


class Untrained:
    """Which optimizers of one unit have no parameter that takes a gradient."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self._known: dict[ClassInfo, bool] = {}

    def steps_nothing(self, step: Step) -> bool:
        """Whether the optimizer of a step is one of them."""
        number = self.unit.optimizers.number(step.home or step.module, step.optimizer)
        return number is not None and number in self.numbers

    @cached_property
    def numbers(self) -> Keys:
        """The optimizers that were made in sight, each time with parameters that take no gradient."""
        places = self.unit.optimizers.places
        found = frozenset(i for i, group in enumerate(places) if len(places) > 1 and self._made_with_none(group))
        return frozenset() if found and self._thawed() else found

    def _made_with_none(self, group: set[object]) -> bool:
        prepared = {init.call for init in self.unit.inits}
        made = [
            (module, node.value)
            for module in self.unit.reach
            for node in self.project.once(Occurrences, module).assigned_to(group)
            if node.value not in prepared
        ]
        return bool(made) and all(isinstance(v, ast.Call) and self._takes_none(m, v) for m, v in made)

    def _takes_none(self, module: Module, made: ast.Call) -> bool:
        """Whether what an optimizer is made with takes no gradient: `Adam(centers.parameters())`, `SGD([scale], lr=0.1)`."""
        given = argument(made, 0, "params")
        if isinstance(given, ast.Name):
            given = single_assignment(module, given)
        if isinstance(given, (ast.List, ast.Tuple)) and given.elts:
            return all(isinstance(e, ast.Name) and self._frozen_name(module, e) for e in given.elts)
        if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
            return False
        if given.func.attr != "parameters" or given.args or given.keywords:
            return False
        model = given.func.value
        if any(_freezes(node, ast.unparse(model)) for node in self._surely_before(module, made)):
            return True
        classes = self.project.classes_of(module, model)
        return bool(classes) and all(_has_parameters(cls) and self._holds_none(cls) for cls in classes)

    def _surely_before(self, module: Module, made: ast.Call) -> Iterator[ast.stmt]:
        """The statements that ran before an optimizer is made, in its block and those around it."""
        stmt = module.statement(made)
        while True:
            block = module.block(stmt)
            yield from block[: block.index(stmt)]
            parent = module.parents.get(stmt)
            if not isinstance(parent, ast.stmt) or isinstance(parent, (*FUNCTION_NODES, ast.ClassDef)):
                return
            stmt = parent

    def _frozen_name(self, module: Module, name: ast.Name) -> bool:
        value = single_assignment(module, name)
        if value is None or not _is_parameter(module, value):
            return False
        block = module.block(module.statement(value))
        return _made_frozen(value) or any(_freezes(s, name.id) for s in block)

    def _holds_none(self, cls: ClassInfo) -> bool:
        """Whether no parameter of a network takes a gradient, by what its class gives `self`."""
        if cls not in self._known:
            self._known[cls] = False
            above = list(cls.ancestry())
            only = all(
                len(c.base_names) == len(c.bases) or [c.module.qualify(b) for b in c.node.bases] == ["torch.nn.Module"]
                for c in above
            )
            self._known[cls] = only and cls.is_module and all(self._fields_frozen(c) for c in above)
        return self._known[cls]

    def _fields_frozen(self, cls: ClassInfo) -> bool:
        for function in cls.methods.values():
            module, me = function.module, function.scope.self_name
            for node in own_nodes(function.node.body):
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ADDING:
                    return False
                if isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.For)):
                    targets = [node.target]
                elif isinstance(node, ast.Assign):
                    targets = node.targets
                else:
                    continue
                kept = [t for t in targets if isinstance(t, ast.Attribute) and ast.unparse(t.value) == me]
                several = (t for t in targets if isinstance(t, (ast.Tuple, ast.List)))
                if any(ast.unparse(n) == me for t in several for n in walk(t)):
                    return False
                if kept and not (isinstance(node, ast.Assign) and self._gives_none(module, node, kept)):
                    return False
        return True

    def _gives_none(self, module: Module, stmt: ast.Assign, kept: list[ast.Attribute]) -> bool:
        """Whether an assignment gives fields no parameter that takes a gradient."""
        if _is_parameter(module, stmt.value):
            if _made_frozen(stmt.value):
                return True
            block = module.block(stmt)
            after = block[block.index(stmt) + 1 :]
            return all(any(_freezes(s, ast.unparse(t)) for s in after) for t in kept)
        for call in (n for n in walk(stmt.value) if isinstance(n, ast.Call)):
            cls = self.project.find_class(module, call.func)
            if cls is not None:
                if cls.is_module and not self._holds_none(cls):
                    return False
                continue
            name = module.qualify(call.func) or ""
            computed = name.startswith("torch.") and not name.startswith("torch.nn.")
            if not (computed or name.startswith(PLAIN_PARTS) or (isinstance(call.func, ast.Attribute) and not name)):
                return False
        if any(isinstance(n, ast.Call) for n in walk(stmt.value)) or isinstance(stmt.value, ast.Constant):
            return True
        return not any(self._is_run(t.attr) for t in kept)  # given from outside: a network is run somewhere

    def _is_run(self, name: str) -> bool:
        """Whether a field of that name is called somewhere, or something of it is: `self.body(x)`, `self.body.train()`."""
        for module in self.unit.reach:
            for node in module.named.get(name, ()):
                parent = module.parents.get(node)
                if isinstance(parent, (ast.Attribute, ast.Subscript)) or (
                    isinstance(parent, ast.Call) and parent.func is node
                ):
                    return True
        return False

    def _thawed(self) -> bool:
        """Whether something may be given gradients again in the unit's files."""
        for module in self.unit.reach:
            if "requires_grad" not in module.text:
                continue
            for node in module.nodes:
                if isinstance(node, ast.Assign):
                    asked = any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)
                    if asked and not is_off(node.value):
                        return True
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr == "requires_grad_" and not is_off(argument(node, 0, "requires_grad")):
                        return True
        return False


def _has_parameters(cls: ClassInfo) -> bool:
    """Whether a network has parameters of its own: what has none says nothing of gradients."""
    return any("Parameter(" in ast.unparse(c.node) for c in cls.ancestry())


def _is_parameter(module: Module, value: ast.expr) -> bool:
    """Whether a value is a parameter made there: `nn.Parameter(x).requires_grad_(False)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_":
        value = value.func.value
    return isinstance(value, ast.Call) and module.qualify(value.func) in PARAMETERS


def _made_frozen(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    last = isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_"
    return is_off(argument(value, 0 if last else 1, "requires_grad"))


def _freezes(stmt: ast.stmt, text: str) -> bool:
    """Whether a statement takes the gradients from what is written so, or from all of its parameters."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and isinstance(stmt.value.func, ast.Attribute):
        call, func = stmt.value, stmt.value.func
        return func.attr == "requires_grad_" and ast.unparse(func.value) == text and _made_frozen(call)
    if isinstance(stmt, ast.Assign) and is_off(stmt.value):
        return any(ast.unparse(t) == f"{text}.requires_grad" for t in stmt.targets)
    if not isinstance(stmt, ast.For) or not isinstance(stmt.target, ast.Name):
        return False
    every = ast.unparse(stmt.iter) == f"{text}.parameters()"
    return every and any(_freezes(s, stmt.target.id) for s in stmt.body)
