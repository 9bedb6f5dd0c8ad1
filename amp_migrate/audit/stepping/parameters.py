"""Which optimizers hold the parameters that an expression (a model, its parameters, groups of them) stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.sites.writers import without_gradients
from amp_migrate.audit.stepping.objects import Env, Ident, Objects, parts
from amp_migrate.audit.values.origins import Origin

DEPTH = 4
LISTING = frozenset("parameters named_parameters list filter chain tuple iter values items".split())
DETACHED = frozenset({"detach", "item", "numpy", "tolist"})  # what hands no gradient on


class Parameters:
    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def of(self, scope: Scope, expr: ast.expr, known: list[Ident], env: Env) -> list[Ident]:
        """The optimizers whose gradients somebody reads: named in the expression, or holding its model's parameters."""
        named = self._named(scope, expr, env, 0)
        return sorted(named) if named else self.optimizers(scope, expr, known)

    def _named(self, scope: Scope, expr: ast.expr, env: Env, depth: int) -> set[Ident]:
        found: set[Ident] = set()
        for node in syntax.walk(expr):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            inner = scope.module.scope_of(node)
            ref = self.objects.ref(inner, node, env)
            if ref.role == "optimizer":
                found.add(ref.ident)
            elif isinstance(node, ast.Name) and depth < DEPTH:
                binder = inner.binder(node.id)
                for bound in binder.bindings[node.id] if binder is not None else ():
                    value = bound.iter if isinstance(bound, (ast.For, ast.comprehension)) else None
                    if isinstance(bound, ast.Assign):
                        value = bound.value
                    if value is not None and isinstance(value, (ast.Call, ast.Subscript, ast.Attribute, ast.ListComp)):
                        found |= self._named(inner, value, env, depth + 1)
        return found

    def optimizers(self, scope: Scope, expr: ast.expr, known: list[Ident]) -> list[Ident]:
        """The optimizers made with parameters of a model; empty where that cannot be told."""
        models, made = self._made_of(scope, expr), self.objects.made
        asked = known if models else ()
        return [o for o in asked if any(p in made and self._holds(made[p], models) for p in sorted(parts(o)))]

    def _holds(self, optimizer: Origin, models: frozenset[str]) -> bool:
        """Whether an optimizer is made with what is made at one of some places."""
        node = optimizer.node
        return isinstance(node, ast.Call) and not models.isdisjoint(self._given(optimizer.module, node))

    @kept
    def _given(self, module: Module, call: ast.Call) -> frozenset[str]:
        """The places where what an optimizer is made with is made."""
        given = syntax.given(call)
        return frozenset().union(*(self._made_of(module.scope_of(call), part) for part in given))

    @kept
    def _made_of(self, scope: Scope, expr: ast.expr) -> frozenset[str]:
        """The places where the objects named in an expression are made, through a few assignments."""
        asked: dict[ast.expr, Scope] = {expr: scope}
        traced: set[Origin] = set()
        found: set[str] = set()
        wave = [expr]
        for _ in range(DEPTH + 1):
            named = {(o, text) for part in wave for o, text in self._origins(asked[part], part)}
            found.update(self.objects.place(o) + text for o, text in named)
            fresh = {o for o, _ in named} - traced
            traced |= fresh
            parts = {part: o.module.scope_of(o.node) for o in fresh for part in self._inside(o)}
            wave = [part for part in parts if part not in asked]
            asked.update(parts)
        return frozenset(found)

    def _origins(self, scope: Scope, expr: ast.expr) -> Iterator[tuple[Origin, str]]:
        """The objects that the names of an expression stand for, with the name where one import brings several."""
        for node in syntax.walk(expr):
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            parent = scope.module.parents.get(node)
            if isinstance(node, ast.Name) and node.id == "self" and isinstance(parent, ast.Attribute):
                continue
            for origin in self.objects.values.origins(scope.module.scope_of(node), node):
                unseen = origin.kind == "unknown" and isinstance(origin.node, (ast.Name, ast.Attribute))
                if origin.kind not in ("constant", "function") and not unseen:
                    yield origin, syntax.text(node) if isinstance(origin.node, (ast.Import, ast.ImportFrom)) else ""

    def _inside(self, origin: Origin) -> list[ast.expr]:
        """What an object is made from, where it is no model itself: what a model gives is made from that model."""
        at = origin.node
        if not isinstance(at, ast.Call):
            return [at] if isinstance(at, ast.expr) else []
        if self._is_model(at):
            return [at.func, *at.args] if self._runs_object(origin.module, at) else []
        return [*at.args, *([at.func.value] if isinstance(at.func, ast.Attribute) else [])]

    def _runs_object(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs what a variable holds, or computes with tensors, and hands gradients on."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in DETACHED:
            return False
        scope, program = module.scope_of(call), self.objects.values.program
        name = program.dotted(scope, call.func)
        if name is not None:
            return name.startswith("torch.") and name.count(".") == 1
        if program.definitions(scope, call.func, guess=False):
            return False
        return not without_gradients(program, module, call)

    def _is_model(self, call: ast.Call) -> bool:
        """Whether a call makes a model, not a list of its parameters."""
        return syntax.last(call.func) not in LISTING
