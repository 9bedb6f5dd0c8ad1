"""Forwards: which calls run one of a unit's models, and which functions hold such calls."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name, dotted
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import root_of, walk
from amp_migrate.reading.regions.beside import given_beside
from amp_migrate.reading.regions.evaluated import evaluated_elsewhere
from amp_migrate.reading.regions.kept_lambdas import in_kept_lambda
from amp_migrate.reading.regions.making import makes_network
from amp_migrate.reading.regions.no_forwards import (
    CASTING_METHODS,
    NOT_FORWARD,
    NOT_FORWARD_PREFIXES,
    NOT_FORWARD_SUFFIXES,
    given_none,
    holds,
    host_only,
    looks,
    packs,
    tells,
)
from amp_migrate.reading.regions.parts import part_slots, whole_slots
from amp_migrate.reading.regions.renewed import never_cast
from amp_migrate.reading.regions.variables import functions_held, of_variable
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.tensors import FLOAT_ARGUMENTS, FLOAT_METHODS, TENSOR_METHODS


class Forwards:
    """The forwards of one unit's models."""

    def __init__(
        self, unit: Unit, helpers: frozenset[Function] = frozenset(), inner: frozenset[Function] = frozenset()
    ) -> None:
        self.unit = unit
        self.helpers = helpers  # functions whose calls stand for the forward in them
        self.inner = inner  # functions that variables hold whose regions stand in them
        self.project: Project = unit.project
        self._found: dict[Function, bool] = {}
        self._helping: set[Function] = set()  # being looked at: functions may call each other
        self._computing: dict[Function, bool] = {}
        self._known: dict[ast.Call, bool] = {}
        self._looking = 0  # functions being looked at, about which nothing is settled yet

    def is_forward(self, module: Module, node: ast.AST) -> bool:
        """Whether a call runs one of the unit's models."""
        if not isinstance(node, ast.Call):
            return False
        known = self._known.get(node)
        if known is None:
            known = self._is_forward(module, node)
            if not self._looking:
                self._known[node] = known
        return known

    def _is_forward(self, module: Module, node: ast.Call) -> bool:
        return not in_kept_lambda(self.project, module, node) and (
            self._is_seen(module, node) or self.only_told(module, node)
        )

    def _is_seen(self, module: Module, node: ast.Call) -> bool:
        if not self._may_run(module, node) or makes_network(self.project, module, node):
            return False
        return not never_cast(self.unit, module, node.func)

    def told(self, module: Module, call: ast.Call) -> bool:
        """Whether the audit knows a call to have run a model in half precision."""
        return (module.display, call.lineno, call.col_offset) in self.unit.run

    def only_told(self, module: Module, call: ast.Call) -> bool:
        """Whether it is the audit alone that knows it; what has a region of its own needs none around it."""
        return self.told(module, call) and not self.own_region(module, call) and not self._is_seen(module, call)

    def _may_run(self, module: Module, node: ast.Call) -> bool:
        func = node.func
        if self.helpers and not self.helpers.isdisjoint(self.project.resolved.get(node, ())):
            return True
        if self._runs_itself(module, node):
            return not self.own_region(module, node)
        if isinstance(func, (ast.Name, ast.Subscript)) or (
            isinstance(func, ast.Attribute) and func.attr in ("module",)
        ):
            if self._runs(module, func):
                return True
        if self._gives_model(
            module, func.value if isinstance(func, ast.Attribute) and func.attr == "forward" else func
        ):
            return True
        if isinstance(func, ast.Attribute):
            if self._runs(module, func):
                return True
            methods = self.project.resolved.get(node) or self._of_networks(func.attr)
            named = func.attr.startswith(NOT_FORWARD_PREFIXES) and not (methods and func.attr.startswith("get_"))
            named |= func.attr.endswith(NOT_FORWARD_SUFFIXES) or given_none(node)
            if (
                func.attr not in NOT_FORWARD
                and (not func.attr[:1].isupper() or self._keeps(module, func))  # else a class of a module of that name
                and (self.is_model(module, func.value) or self.is_part(module, func.value))
                and not named
            ):
                if isinstance(module.parents.get(node), ast.Expr) or self.own_region(module, node):
                    return False
                # What every tensor has, and no network of the program, is asked of an input that a variable holds, too.
                return any(self.computes(f) for f in methods) if methods else func.attr not in TENSOR_METHODS
        name = (dotted(func) or "").rpartition(".")[2]
        if name in ("data_parallel", "checkpoint") and len(node.args) + len(node.keywords) > 1:
            # Of a library: `(batch, model, devices)`.
            runs = name == "data_parallel" and self.takes_model(module, node)
            runs = runs or (bool(node.args) and self.is_model(module, node.args[0]))
            return runs and not self._keeps_model(module, node)
        if self._handed_to_network(module, node) or evaluated_elsewhere(self, module, node):
            return True
        return self.takes_model(module, node) and self._beside(module, node)

    def _beside(self, module: Module, call: ast.Call) -> bool:
        """Whether a call hands a model to code out of sight and takes what that gives where the other branch runs the model:
        `if many: out = run_on_all(model, batch)` / `else: out = model(batch)`."""
        if self.project.resolved.get(call) or self._keeps_model(module, call):
            return False
        others = (other for other in given_beside(module, call) if not self.takes_model(module, other))
        return any(self._is_seen(module, other) for other in others)

    def _keeps(self, module: Module, field: ast.Attribute) -> bool:
        """Whether a network is seen to keep something under a name: `self.Es = encoder` of a model's class."""
        return any(c.is_module and holds(c, field.attr) for c in self.project.classes_of(module, field.value))

    def _runs_itself(self, module: Module, call: ast.Call) -> bool:
        """Whether a network that trains itself runs its own forward: `self.forward(x)`."""
        func = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "forward" else call.func
        return self.project.slot(module, func) in self.selves and not self.in_network(module.scope_of(call))

    @cached_property
    def selves(self) -> set[Slot]:
        """What the methods of networks that scale their loss themselves call the network."""
        classes = {c for scope in self.scaling if (c := self.project.class_around(scope)) and c.is_module}
        return {Slot(f.scope, f.scope.self_name) for c in classes for f in c.methods.values() if f.scope.self_name}

    def _keeps_model(self, module: Module, call: ast.Call) -> bool:
        """Whether what a call gives is kept as a model: it wrapped one, and ran nothing."""
        stmt = module.parents.get(call)
        return isinstance(stmt, ast.Assign) and all(self.is_model(module, t) for t in stmt.targets)

    def _of_networks(self, name: str) -> list[Function]:
        """The methods of that name of the program's networks, of a model whose class is not seen: they may only tell of the
        model, or work on what it gave."""
        classes = [c for c in self.project.classes.values() if c.is_module and name in c.methods]
        return [m for c in classes if not (m := c.methods[name]).is_abstract]

    def by_method(self, module: Module, call: ast.Call) -> bool:
        """Whether a forward is another method of a model than `forward`: `model.infer(x)`."""
        func = call.func
        if not self.is_forward(module, call) or not isinstance(func, ast.Attribute) or self._runs(module, func):
            return False
        return func.attr != "forward" and self.is_model(module, func.value)

    def _handed_to_network(self, module: Module, call: ast.Call) -> bool:
        """Whether a call hands a model to a method of a network, which calls it: `Encoder.represent(model, ids)`."""
        functions = self.project.resolved.get(call, [])
        if not functions or not all(f.name != "__init__" and self.in_network(f.scope) for f in functions):
            return False
        given = {p for f in functions for p, v in self.project.arguments(f, call) if self.is_model(module, v)}
        return bool(given) and any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in given
            for f in functions
            for n in f.inside
        )

    def _runs(self, module: Module, called: ast.AST) -> bool:
        """Whether what is called itself is a model: no optimizer can be, though what `initialize` returned in one
        variable may have come to hold either."""
        whole = self.project.slot(module, called) in self.wholes
        return whole or self.unit.holds_model(module, called) or self.is_part(module, called)

    def _gives_model(self, module: Module, value: ast.expr, inside: bool = False) -> bool:
        """Whether an expression that is no variable may be one of the models: one out of some, or what a call made of one."""
        parts: list[ast.expr] = []
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") != "getattr":
            cls = self.project.find_class(module, value.func)
            if (cls is not None and not cls.is_module) or self.project.partial_of(module, value):
                return False  # an object or a function that holds the model: its body says what it runs
            if not self.unit.model_slots.isdisjoint(self.project.sources(module, value)):
                return True  # `self.get_net()`
            parts = [*value.args, *(k.value for k in value.keywords)]
        elif isinstance(value, ast.IfExp):
            parts = [value.body, value.orelse]
        elif isinstance(value, ast.BoolOp):
            parts = value.values
        elif isinstance(value, ast.List | ast.Tuple):
            parts = value.elts
        elif isinstance(value, ast.Dict):
            parts = value.values
        elif isinstance(value, ast.Starred | ast.NamedExpr):
            parts = [value.value]
        elif isinstance(value, ast.Subscript):  # `models[i]` is a variable itself
            parts = [value.value] if inside or not isinstance(value.value, ast.Name | ast.Attribute) else []
        return (inside and self.is_model(module, value)) or any(self._gives_model(module, part, True) for part in parts)

    @cached_property
    def parts(self) -> set[Slot]:
        """Where parts of the unit's models may be kept."""
        return part_slots(self.unit)

    @cached_property
    def wholes(self) -> set[Slot]:
        """Where the networks may be kept that have the unit's models as parts."""
        return whole_slots(self.unit)

    def is_part(self, module: Module, node: ast.AST) -> bool:
        """Whether an expression is a part of one of the unit's models, taken out of that from outside of the network."""
        if not isinstance(node, (ast.Name, ast.Attribute)) or self.project.slot(module, node) not in self.parts:
            return False
        owner = self.project.class_of(module.scope_of(node)) if module.is_self(root_of(node)) else None
        return owner is None or not owner.is_module

    def is_model(self, module: Module, node: ast.AST) -> bool:
        """Whether an expression is one of the unit's models."""
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        slot = self.project.slot(module, node)
        return (self.unit.holds_model(module, node) or slot in self.wholes) and slot not in self.unit.optimizer_slots

    def stores_model(self, module: Module, stmt: ast.stmt) -> bool:
        """Whether a statement only sets one of the models: `model = DistributedDataParallel(model)`."""
        if not isinstance(stmt, ast.Assign):
            return False
        return all(self.is_model(module, t) for t in stmt.targets) and not self.is_forward(module, stmt.value)

    def calls_variable(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs something that is held in a variable, or hands one of the models to what it calls."""
        return self.takes_model(module, call) or of_variable(self.project, module, call)

    def handed_over(self, module: Module, call: ast.Call) -> bool:
        """Whether a call hands one of the models to a function out of sight, which runs it: `self.model_fn(x, self.model)`."""
        return self._to_variable(module, call) and not self.own_region(module, call)

    def _to_variable(self, module: Module, call: ast.Call) -> bool:
        """Whether a call hands one of the models to what a variable holds, or an item of it: `STEPS[name](model, batch)`."""
        if not self.takes_model(module, call):
            return False
        item = isinstance(call.func, ast.Subscript) and not self.project.resolved.get(call)
        return item or of_variable(self.project, module, call)

    def takes_model(self, module: Module, call: ast.Call) -> bool:
        return any(self.is_model(module, v) for v in (*call.args, *(k.value for k in call.keywords)))

    def computes(self, function: Function) -> bool:
        """Whether a method of a network runs parts of it, or operations that autocast casts: one that only brings a
        batch to the device or splits it is no forward."""
        if function not in self._computing:
            self._computing[function] = False
            self._looking += 1
            self._computing[function] = any(self._casts(function, n) for n in function.inside)
            self._looking -= 1
        return self._computing[function]

    def on_host(self, call: ast.Call) -> bool:
        """Whether a call runs a function of the program which computes by NumPy, scikit-learn and the like alone: no
        operation in it is one that autocast casts."""
        functions = self.project.resolved.get(call, [])
        return bool(functions) and all(host_only(self.project, f) for f in functions)

    def _casts(self, function: Function, node: ast.AST) -> bool:
        module = function.module
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if not isinstance(node, ast.Call):
            return False
        if called := self.project.resolved.get(node):
            return any(f.name != "__init__" and self.computes(f) for f in called)
        name = module.qualify(node.func) or ""
        last = called_name(node)
        if name.startswith("torch."):
            return last in FLOAT_ARGUMENTS or name.startswith(("torch.nn.functional.", "torch.utils.checkpoint."))
        if isinstance(node.func, ast.Attribute) and last in FLOAT_METHODS - CASTING_METHODS:
            return True
        if isinstance(node.func, ast.Attribute) and last in TENSOR_METHODS and not module.is_self(node.func.value):
            return False  # `seen.view(-1, self.width)`: no layer that is called so
        if not name and (last in NOT_FORWARD or tells(function, node)):
            return False
        cls = self.project.class_around(function.scope)
        of_network = cls is None or any(c.is_module for c in cls.descendants())
        # What else keeps lists and numbers: a sampler shuffles them.
        values = [node.func, *(node.args if of_network else ()), *(k.value for k in node.keywords if of_network)]
        return any(self._of_network(function, v) for v in values)

    def _of_network(self, function: Function, value: ast.expr) -> bool:
        """Whether an expression is the network a method belongs to, or something that is kept in it."""
        current = value
        while isinstance(current, (ast.Attribute, ast.Subscript)):
            current = current.value
        if isinstance(current, ast.Call):  # super().encode(x)
            return isinstance(current.func, ast.Name) and current.func.id == "super"
        return isinstance(current, ast.Name) and current.id == function.scope.self_name

    def hands_on(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs functions of the program that only look into what they are given, or hand it on, or makes a
        record of it: `model.as_list(losses)`, `Losses(actor=loss)`."""
        if packs(self.project, module, call):
            return True
        functions: Sequence[Function] = self.project.resolved.get(call, ())
        if not functions and isinstance(call.func, ast.Attribute) and self.is_model(module, call.func.value):
            functions = self._of_networks(call.func.attr)
        bodies = [f for f in functions if any(isinstance(n, ast.Return) for n in f.inside)]
        return bool(bodies) and all(map(looks, bodies))

    def run_by(self, module: Module, call: ast.Call) -> list[Function]:
        """The functions of the program that a call runs by name, or by a variable where all that holds has its region inside."""
        functions = self.project.resolved.get(call, [])
        if self.inner and not functions and self._to_variable(module, call):
            held = functions_held(self.project, module, call)
            functions = held if self.inner.issuperset(held) else []
        return [f for f in functions if f.name != "__init__"]

    def own_region(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs project functions that have regions of their own."""
        functions = self.run_by(module, call)
        return bool(functions) and all(self.has_forward(f) for f in functions)

    def has_forward(self, function: Function) -> bool:
        """Whether a function runs a model itself or through project functions, outside of network classes."""
        if function not in self._found:
            self._found[function] = False
            self._looking += 1
            if not self.in_network(function.scope):
                self._found[function] = any(self.is_forward(function.module, n) for n in function.inside) or any(
                    self.has_forward(f)
                    for n in function.inside
                    if isinstance(n, ast.Call)
                    for f in self.project.resolved.get(n, [])
                    if f.name != "__init__"
                )
            self._looking -= 1
        return self._found[function]

    @cached_property
    def scaling(self) -> set[Scope]:
        return {loss.module.scope_of(loss.call) for loss in self.unit.trained}

    def in_network(self, scope: Scope) -> bool:
        """Methods of a torch Module run inside the region of whoever calls the model: but for those that train, and scale
        the loss themselves."""
        cls = self.project.class_around(scope)
        if scope in self.scaling:
            return False
        if cls is None:
            return self._helps_network(scope)
        return cls.is_module and not self._keeps_optimizer(cls)

    def _keeps_optimizer(self, cls: ClassInfo) -> bool:
        """Whether code of a class, or of one above or below it, has an optimizer that its objects hold: none that is only asked of
        what may be such an object, `wrapped.optimizer`."""
        names = {s.name for s in self.unit.optimizer_slots if s.holder is cls.family}
        if not names:
            return False
        family = {*cls.ancestry(), *cls.descendants()}
        return any(isinstance(n, ast.Attribute) and n.attr in names for c in family for n in walk(c.node))

    def _helps_network(self, scope: Scope) -> bool:
        """Whether a function is called by nothing but methods of torch Modules, and scales no loss itself."""
        function = self.project.functions.get(scope.node)
        if function is None or function in self._helping:
            return False
        self._helping.add(function)
        self._looking += 1
        callers = [module.scope_of(call) for module, call in self.project.calls.get(function, ())]
        scales = any(loss.module.scope_of(loss.call) is scope for loss in self.unit.trained)
        helps = bool(callers) and not scales and all(self.in_network(caller) for caller in callers)
        self._looking -= 1
        self._helping.discard(function)
        return helps
