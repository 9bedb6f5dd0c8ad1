"""What a program makes half itself, beside float32 weights or tensors: outside of a region a product of both raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from amp_migrate.audit.dtypes import HALF_BOTH, HALF_LAYERS, HALF_NATIVE, HALF_TYPES, KEEPING
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.sites.forwards import Forward, Forwards
from amp_migrate.audit.values.names import last_name

DEPTH = 5
JOINING = frozenset("cat stack concat concatenate hstack vstack".split())
Cast = tuple[Module, ast.expr]


class Raises(NamedTuple):
    """What is made half, and the product or layer that takes it beside float32."""

    cast: Cast
    product: Cast


class ByHand:
    """Answers for one state of a program; of each name what it was given last, in the order of the lines, counts."""

    def __init__(self, forwards: Forwards) -> None:
        self.forwards = forwards
        self.program = forwards.program
        self.values = forwards.values

    @kept
    def raises(self, forward: Forward) -> Raises | None:
        """What of a forward outside of any region raises: of what it is given, or of what its network makes half."""
        if self._made_half(forward.model):
            return None
        for function in self.forwards.runs(forward):
            found = self._called(forward.scope, forward.call, function, {}, ())
            if found is not None:
                return found
        return None

    @kept
    def _halved(self) -> frozenset[str]:
        """Names of what is made half by `.half()`: of networks, whose weights are, too."""
        return frozenset(
            name
            for module in self.forwards.modules
            if "half" in module.words
            for _, holder in module.method_calls("half")
            if (name := last_name(holder)) is not None
        )

    def _made_half(self, model: ast.expr) -> bool:
        return last_name(model) in self._halved()

    def _called(
        self, scope: Scope, call: ast.Call, function: Function, env: Mapping[str, Cast], active: tuple[Function, ...]
    ) -> Raises | None:
        """The same of a function, as a call runs it."""
        if function in active or len(active) > DEPTH or "autocast" in function.module.source(function.node):
            return None
        given = self.program.arguments(function, call) or {}
        bound = {name: cast for name, value in given.items() if (cast := self.half(scope, value, env)) is not None}
        if not bound and not ({"half", "float16"} & function.module.words) and len(active) > 1:
            return None
        inner = function.scope
        for node in sorted(
            syntax.walk(function.node), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))
        ):
            if isinstance(node, (ast.BinOp, ast.Call)):
                where = function.module.scope_of(node)
                env_here = bound if where is inner else {}
                found = self._product(where, node, env_here)
                if found is None and isinstance(node, ast.Call):
                    found = self._runs(where, node, env_here, (*active, function))
                if found is not None:
                    return found
        return None

    def _product(self, scope: Scope, node: ast.BinOp | ast.Call, env: Mapping[str, Cast]) -> Raises | None:
        """A product of what is made half with what is not."""
        factors: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            factors = [node.left, node.right] if isinstance(node.op, ast.MatMult) else []
        else:
            name, last = self.program.dotted(scope, node.func), syntax.last(node.func) or ""
            if last in HALF_BOTH | HALF_NATIVE and (name is None or name.startswith("torch.")):
                method = isinstance(node.func, ast.Attribute) and name is None
                if method and self.program.methods_named(last):
                    return None
                factors = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []
                factors += node.args[1:] if last == "einsum" else node.args[:2]
                factors = [e for f in factors for e in (f.elts if isinstance(f, (ast.List, ast.Tuple)) else [f])]
        made = [self.half(scope, f, env) for f in factors]
        cast = next((m for m in made if m is not None), None)
        return Raises(cast, (scope.module, node)) if cast is not None and None in made else None

    def _runs(
        self, scope: Scope, call: ast.Call, env: Mapping[str, Cast], active: tuple[Function, ...]
    ) -> Raises | None:
        """What a call inside of a network runs: a layer, a part of it, a function."""
        functions = list(self.program.callees(scope.module, call))
        if not functions and isinstance(call.func, (ast.Attribute, ast.Subscript, ast.Name)):
            if self.program.dotted(scope, call.func) is None and not self._made_half(call.func):
                for origin in self.values.origins(scope, call.func):
                    if not isinstance(origin.node, ast.Call) or origin.path:
                        continue
                    there = origin.module.scope_of(origin.node)
                    made = self.program.definitions(there, origin.node.func, guess=False)
                    functions += [f for c in made if isinstance(c, Class) for f in self.program._method(c, "forward")]
                    name = self.program.dotted(there, origin.node.func) or ""
                    layer = name.startswith("torch.nn.") and name.rpartition(".")[2] in HALF_LAYERS
                    if layer and call.args and (cast := self.half(scope, call.args[0], env)) is not None:
                        return Raises(cast, (scope.module, call))
        found = (self._called(scope, call, f, env, active) for f in dict.fromkeys(functions))
        return next((f for f in found if f is not None), None)

    # -- values ------------------------------------------------------------------------------------------------------

    def half(self, scope: Scope, expr: ast.expr, env: Mapping[str, Cast], depth: int = 0) -> Cast | None:
        """Where a value, or an item of it, is made half; None where it is not seen to be."""
        if depth > 2 * DEPTH:
            return None
        if isinstance(expr, ast.Call):
            return self._called_half(scope, expr, env, depth + 1)
        if isinstance(expr, ast.Name):
            last = self._last(scope, expr)
            return self.half(scope, last, env, depth + 1) if last is not None else env.get(expr.id)
        if isinstance(expr, ast.BinOp):
            sides = [self.half(scope, side, env, depth + 1) for side in (expr.left, expr.right)]
            listed = any(isinstance(side, (ast.List, ast.Tuple)) for side in (expr.left, expr.right))
            number = any(isinstance(side, ast.Constant) for side in (expr.left, expr.right))
            if listed or number or None not in sides:
                return next((s for s in sides if s is not None), None)
            return None  # promoted
        parts: list[ast.expr] = []
        if isinstance(expr, (ast.List, ast.Tuple)):
            parts = expr.elts
        elif isinstance(expr, ast.IfExp):
            parts = [expr.body, expr.orelse]
        elif isinstance(expr, (ast.Subscript, ast.Starred)):
            parts = [expr.value]
        elif isinstance(expr, ast.UnaryOp):
            parts = [expr.operand]
        elif isinstance(expr, ast.Attribute):
            if expr.attr in ("T", "mT", "data"):
                parts = [expr.value]
            elif (owner := self.program.is_self(scope, expr.value)) is not None:
                return next(self._held(owner, expr.attr), None)
        return next((c for p in parts if (c := self.half(scope, p, env, depth + 1)) is not None), None)

    def _held(self, owner: Class, name: str) -> Iterator[Cast]:
        """What an attribute of an object is given that is made half where it is given."""
        for module, value, _ in self.values.own_fields(self.program.family_up(owner), name):
            if value is not None and self._casts(module.scope_of(value), value):
                yield module, value

    def _casts(self, scope: Scope, expr: ast.expr) -> bool:
        """`x.half()`, `x.to(torch.float16)`, `torch.zeros(3, dtype=torch.half)`."""
        if not isinstance(expr, ast.Call):
            return False
        last, name = syntax.last(expr.func), self.program.dotted(scope, expr.func)
        if last == "half" and name is None and not expr.args:
            return isinstance(expr.func, ast.Attribute)
        kinds = [k.value for k in expr.keywords if k.arg == "dtype"]
        if last in ("to", "type") and name is None:
            kinds += expr.args
        return any(self._is_half(scope, kind) for kind in kinds)

    def _is_half(self, scope: Scope, kind: ast.expr, depth: int = 2) -> bool:
        """Whether a dtype is half in some runs: `torch.half if args.fp16 else torch.float`, also as a field keeps it."""
        if isinstance(kind, ast.IfExp):
            return any(self._is_half(scope, k, depth) for k in (kind.body, kind.orelse))
        owner = self.program.is_self(scope, kind.value) if isinstance(kind, ast.Attribute) else None
        if owner is None or not isinstance(kind, ast.Attribute) or not depth:
            return self.program.dotted(scope, kind) in HALF_TYPES
        return any(
            value is not None and not item and self._is_half(module.scope_of(value), value, depth - 1)
            for module, value, item in self.values.own_fields(self.program.family_up(owner), kind.attr)
        )

    def _called_half(self, scope: Scope, call: ast.Call, env: Mapping[str, Cast], depth: int) -> Cast | None:
        if self._casts(scope, call):
            return scope.module, call
        name, last = self.program.dotted(scope, call.func), syntax.last(call.func)
        if (
            last not in KEEPING
            or any(k.arg == "dtype" for k in call.keywords)
            or self.program.callees(scope.module, call)
        ):
            return None
        if name is None and isinstance(call.func, ast.Attribute):
            kept_by = last != "type_as" and (last != "to" or all(map(_is_device, call.args)))
            return self.half(scope, call.func.value, env, depth) if kept_by else None
        if name is None or not name.startswith("torch.") or not call.args:
            return None
        first = call.args[0]
        if last in JOINING:
            if not isinstance(first, (ast.List, ast.Tuple)):
                return None
            joined = [self.half(scope, e, env, depth) for e in first.elts]
            return joined[0] if joined and None not in joined else None
        return self.half(scope, first, env, depth)

    def _last(self, scope: Scope, name: ast.Name) -> ast.expr | None:
        """What a name was given last before it is read, in the function that reads it."""
        given = [
            (target.lineno, value)
            for target, value in self._given(scope).get(name.id, ())
            if target.lineno < name.lineno
        ]
        return max(given, key=lambda g: g[0])[1] if given else None

    @kept
    def _given(self, scope: Scope) -> dict[str, list[tuple[ast.Name, ast.expr]]]:
        found: dict[str, list[tuple[ast.Name, ast.expr]]] = {}
        for target, value, _ in assignments(scope.module):
            if isinstance(target, ast.Name) and scope.module.scope_of(target) is scope:
                found.setdefault(target.id, []).append((target, value if value is not None else target))
        return found


def _is_device(expr: ast.expr) -> bool:
    text = syntax.text(expr).lower()
    return isinstance(expr, ast.Constant) or any(w in text for w in ("device", "cuda", "cpu", "gpu", "rank"))
