"""Which optimizers hold the parameters that an expression (a model, its parameters, groups of them) stands for."""

from __future__ import annotations

import ast

from amp_migrate.audit import syntax
from amp_migrate.audit.module import Scope
from amp_migrate.audit.stepping.objects import Env, Ident, Objects, parts

DEPTH = 4


class Parameters:
    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._models: dict[ast.AST, frozenset[str]] = {}

    def of(self, scope: Scope, expr: ast.expr, known: list[Ident], env: Env) -> list[Ident]:
        """The optimizers whose gradients somebody reads: named in the expression, or holding its model's parameters."""
        named = self._named(scope, expr, env, 0)
        return sorted(named) if named else self.optimizers(scope, expr, known)

    def _named(self, scope: Scope, expr: ast.expr, env: Env, depth: int) -> set[Ident]:
        found: set[Ident] = set()
        for node in syntax.walk(expr):
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            inner = scope.module.scope_of(node)
            ref = self.objects.ref(inner, node, env)
            if ref.role == "optimizer":
                found.add(ref.ident)
            elif isinstance(node, ast.Name) and depth < DEPTH:
                binder = inner.binder(node.id)
                for bound in binder.bindings[node.id] if binder is not None else ():
                    value = bound.iter if isinstance(bound, ast.For | ast.comprehension) else None
                    if isinstance(bound, ast.Assign):
                        value = bound.value
                    if value is not None and isinstance(value, ast.Call | ast.Subscript | ast.Attribute | ast.ListComp):
                        found |= self._named(inner, value, env, depth + 1)
        return found

    def optimizers(self, scope: Scope, expr: ast.expr, known: list[Ident]) -> list[Ident]:
        """The optimizers made with parameters of a model; empty where that cannot be told."""
        models = self._made_of(scope, expr, 0)
        found = []
        for ident in known:
            made = [self.objects.made[p] for p in sorted(parts(ident)) if p in self.objects.made]
            theirs: set[str] = set()
            for origin in made:
                if isinstance(origin.node, ast.Call):
                    theirs |= self._given(origin.module.scope_of(origin.node), origin.node)
            if theirs & models:
                found.append(ident)
        return found

    def _given(self, scope: Scope, call: ast.Call) -> frozenset[str]:
        if call not in self._models:
            found: set[str] = set()
            for given in (*call.args, *(k.value for k in call.keywords)):
                found |= self._made_of(scope, given, 0)
            self._models[call] = frozenset(found)
        return self._models[call]

    def _made_of(self, scope: Scope, expr: ast.expr, depth: int) -> set[str]:
        """The places where the objects named in an expression are made, through a few assignments."""
        found: set[str] = set()
        for node in syntax.walk(expr):
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            parent = scope.module.parents.get(node)
            if isinstance(node, ast.Name) and node.id == "self" and isinstance(parent, ast.Attribute):
                continue
            inner = scope.module.scope_of(node)
            for origin in self.objects.values.origins(inner, node):
                if origin.kind == "constant" or origin.kind == "function":
                    continue
                if origin.kind == "unknown" and isinstance(origin.node, ast.Name | ast.Attribute):
                    continue
                place = self.objects._place(inner, origin)
                at = origin.node
                if isinstance(at, ast.Call) and depth < DEPTH and not self._is_model(origin.module.scope_of(at), at):
                    outer = origin.module.scope_of(at)
                    inside = [*at.args, *([at.func.value] if isinstance(at.func, ast.Attribute) else [])]
                    for part in inside:
                        found |= self._made_of(outer, part, depth + 1)
                elif isinstance(at, ast.expr) and not isinstance(at, ast.Call) and depth < DEPTH:
                    found |= self._made_of(origin.module.scope_of(at), at, depth + 1)
                found.add(place)
        return found

    def _is_model(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call makes a model, not a list of its parameters."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return last not in (
            "parameters",
            "named_parameters",
            "list",
            "filter",
            "chain",
            "tuple",
            "iter",
            "values",
            "items",
        )
