"""Which optimizers step nothing: no parameter that they were made with takes a gradient.

Torch passes by what has no gradient, so that their own step does nothing, scaled or not; `scaler.step` raises for them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Def, Module, Scope
from amp_migrate.audit.stepping.objects import Ident, Objects, parts

PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
ADDING = frozenset("register_parameter add_module register_module setattr".split())


class Untrained:
    """Answers for the optimizers of one program."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.program = objects.values.program
        self._of: dict[Ident, bool] = {}

    def steps_nothing(self, optimizer: Ident) -> bool:
        """Whether an optimizer was made, wherever that is, with parameters that take no gradient, and none gets one later."""
        if optimizer not in self._of:
            made = [self.objects.made.get(p) for p in sorted(parts(optimizer))]
            self._of[optimizer] = bool(made) and all(
                o is not None and isinstance(o.node, ast.Call) and self._takes_none(o.module, o.node) for o in made
            )
        return self._of[optimizer] and not self._thawed

    @cached_property
    def _thawed(self) -> bool:
        return any(_thaws(module) for module in self.program.modules.values() if "requires_grad" in module.text)

    def _takes_none(self, module: Module, made: ast.Call) -> bool:
        handed = made.args[0] if made.args else next((k.value for k in made.keywords if k.arg == "params"), None)
        scope = module.scope_of(made)
        if isinstance(handed, ast.Name):
            handed = _only_value(scope, handed)
        if isinstance(handed, (ast.List, ast.Tuple)) and handed.elts:
            return all(isinstance(e, ast.Name) and self._is_frozen(scope, e) for e in handed.elts)
        if not isinstance(handed, ast.Call) or not isinstance(handed.func, ast.Attribute) or syntax.given(handed):
            return False
        if handed.func.attr != "parameters":
            return False
        model = handed.func.value
        stmt = module.statement(made)
        above = (
            () if isinstance(stmt, (Def, ast.ClassDef)) else module.above(stmt)
        )  # a default may be made before a model is
        if any(_freezes(s, syntax.text(model)) for s in above):
            return True
        found = self.objects.values.origins(scope, model)
        classes = [self.objects.class_made(o) for o in found]
        return bool(classes) and all(c is not None and self._has_parameters(c) and self._holds_none(c) for c in classes)

    def _has_parameters(self, cls: Class) -> bool:
        """Whether a network has parameters of its own: what has none says nothing of gradients."""
        return any("Parameter(" in syntax.text(c.node) for c in self.program.family_up(cls))

    def _is_frozen(self, scope: Scope, name: ast.Name) -> bool:
        value = _only_value(scope, name)
        if value is None or not self._is_parameter(scope, value):
            return False
        return _made_frozen(value) or any(_freezes(s, name.id) for s in _block(scope.module, value))

    def _is_parameter(self, scope: Scope, value: ast.expr) -> bool:
        while isinstance(value, ast.Call) and syntax.last(value.func) == "requires_grad_":
            assert isinstance(value.func, ast.Attribute)
            value = value.func.value
        return isinstance(value, ast.Call) and self.program.dotted(scope, value.func) in PARAMETERS

    @kept
    def _holds_none(self, cls: Class) -> bool:
        """Whether an object of a class keeps no parameter that takes a gradient."""
        if set(self.program.external_bases(cls)) != {"torch.nn.Module"}:
            return False
        return all(self._keeps_none(c) for c in self.program.family_up(cls))

    def _keeps_none(self, cls: Class) -> bool:
        for call in syntax.every(cls.node, ast.Call):
            if syntax.last(call.func) in ADDING:
                return False
        for stmt in syntax.every(cls.node, ast.Assign):
            scope = cls.module.scope_of(stmt)
            fields = [t for t in stmt.targets if isinstance(t, ast.Attribute)]
            if not fields or self.program.is_self(scope, fields[0].value) is None:
                if any(isinstance(t, (ast.Tuple, ast.List)) and "self" in syntax.text(t) for t in stmt.targets):
                    return False
                continue
            if self._is_parameter(scope, stmt.value):
                after = _block(cls.module, stmt.value)
                if not _made_frozen(stmt.value) and not any(_freezes(s, syntax.text(fields[0])) for s in after):
                    return False
                continue
            if not all(self._makes_none(scope, call) for call in syntax.every(stmt.value, ast.Call)):
                return False
            if not syntax.every(stmt.value, ast.Call) and self._is_run(fields[0].attr):
                return False
        return not syntax.every(cls.node, ast.AnnAssign)

    def _makes_none(self, scope: Scope, call: ast.Call) -> bool:
        """Whether what a call gives is no network that may be trained."""
        found = self.program.definitions(scope, call.func, guess=False)
        for cls in (d for d in found if isinstance(d, Class)):
            if self.program.is_network(cls) and not self._holds_none(cls):
                return False
        name = self.program.dotted(scope, call.func) or ""
        if name.startswith("torch.nn."):
            return name.startswith(("torch.nn.functional.", "torch.nn.init."))
        computed = name.startswith("torch.") or isinstance(call.func, ast.Attribute)
        return computed or any(isinstance(d, Class) for d in found)

    def _is_run(self, name: str) -> bool:
        """Whether somewhere a field of a name is called, or a method of it."""
        for module in self.program.modules.values():
            if name in module.words:
                for node in syntax.every(module.tree, ast.Attribute):
                    parent = module.parents.get(node)
                    called = isinstance(parent, ast.Call) and parent.func is node
                    if node.attr == name and (called or isinstance(parent, (ast.Attribute, ast.Subscript))):
                        if self.objects.ref(module.scope_of(node), node.value, {}).role != "scaler":
                            return True
        return False


def _only_value(scope: Scope, name: ast.Name) -> ast.expr | None:
    """The value of a name that is assigned once."""
    binder = scope.binder(name.id)
    bound = binder.bindings[name.id] if binder is not None else []
    one = bound[0] if len(bound) == 1 else None
    return one.value if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) else None


def _block(module: Module, value: ast.AST) -> Sequence[ast.stmt]:
    """The statements of the block that an expression stands in, from its own on."""
    stmt = module.statement(value)
    return [stmt, *module.following(stmt)]


def _made_frozen(value: ast.expr) -> bool:
    """`Parameter(x, requires_grad=False)`, `Parameter(x).requires_grad_(False)`."""
    if not isinstance(value, ast.Call):
        return False
    at = 0 if syntax.last(value.func) == "requires_grad_" else 1
    asked = [k.value for k in value.keywords if k.arg == "requires_grad"] or value.args[at : at + 1]
    return bool(asked) and syntax.is_false(asked[0])


def _freezes(stmt: ast.stmt, text: str) -> bool:
    """Whether a statement takes the gradients from what is written so, or from all of its parameters."""
    if isinstance(stmt, ast.Assign):
        return syntax.is_false(stmt.value) and syntax.text(stmt.targets[0]) == f"{text}.requires_grad"
    if isinstance(stmt, ast.For) and isinstance(stmt.target, ast.Name):
        every = syntax.text(stmt.iter) == f"{text}.parameters()"
        return every and any(_freezes(s, stmt.target.id) for s in stmt.body)
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and syntax.text(call.func) == f"{text}.requires_grad_" and _made_frozen(call)


def _thaws(module: Module) -> bool:
    """Whether a file asks for gradients of something."""
    for stmt in syntax.every(module.tree, ast.Assign):
        asked = any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in stmt.targets)
        if asked and not syntax.is_false(stmt.value):
            return True
    calls = (c for c in syntax.every(module.tree, ast.Call) if syntax.last(c.func) == "requires_grad_")
    return any(not _made_frozen(call) for call in calls)
