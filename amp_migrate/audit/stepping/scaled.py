"""What is known of scalers on a path: which one an expression is, whether it is off, which values it has scaled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.audit.paths.facts import Facts, asked, assigned, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Function, Scope
from amp_migrate.audit.sites.writers import without_gradients
from amp_migrate.audit.stepping.bodies import Action, Bodies
from amp_migrate.audit.stepping.machine import Machine, State
from amp_migrate.audit.stepping.objects import Bound, Env, Ident, Ref, one_object
from amp_migrate.audit.stepping.parameters import DETACHED
from amp_migrate.audit.values.origins import Origin

Entries = tuple[tuple[Bound, Ref], ...]
BY_ANOTHER = 1 << 10
RETURNED = "<returned>"  # the name of what a function gives back
_TENSOR = frozenset(
    "sum mean norm pow max min abs exp log sigmoid view reshape item float size detach clone scale".split()
)


class Switches:
    """Whether scalers are on."""

    def __init__(self, bodies: Bodies, machine: Machine) -> None:
        self.bodies = bodies
        self.machine = machine
        self.objects = bodies.objects
        self._refs: dict[tuple[ast.AST, int], Ref] = {}
        self._siblings: dict[tuple[Action, str], bool] = {}
        self._envs: dict[Entries, Env] = {}
        self._keeps: dict[ast.stmt, bool] = {}
        self._whole: dict[ast.stmt, ast.BinOp] = {}  # what an assignment in place computes
        self._kept_fields: dict[ast.AST, dict[str, Ref]] = {}

    def env(self, entries: Entries) -> Env:
        """What parameters stand for; one object for each way of calling, which is what `ref` keeps its answers by."""
        return self._envs.setdefault(entries, dict(entries))

    def given(
        self, scope: Scope, env: Env, call: ast.Call, function: Function
    ) -> tuple[dict[str, ast.expr], Entries, bool]:
        """The arguments of a call, what they stand for, and whether the call itself fills `self`."""
        program = self.objects.values.program
        own = function.bound
        if own and isinstance(call.func, ast.Attribute) and function.name != "__init__":
            on = program.definitions(scope, call.func.value, guess=False)
            own = not any(not isinstance(d, Function) for d in on)
        partial = self.bodies.bound(scope, call.func)
        if partial is not None:  # what was bound comes first
            arguments = [*partial.args[1:], *call.args], [*partial.keywords, *call.keywords]
            call = ast.copy_location(ast.Call(partial.args[0], *arguments), call)
        filled = program.arguments(function, call, bound=own) or {}
        inner: dict[Bound, Ref] = {b: r for b, r in env.items() if _encloses(b[0], function.scope)}
        for parameter, given in filled.items():
            ref = self.ref(scope, given, env)
            if ref.role is not None:
                inner[function.scope, parameter] = ref
        if function.owner is not None and function.bound and function.parameters:
            inner |= self._fields(scope, env, call, function)
        entries = sorted(inner.items(), key=lambda e: (e[0][0].module.path, e[0][0].qualname, e[0][1]))
        return filled, tuple(entries), own

    def _fields(self, scope: Scope, env: Env, call: ast.Call, function: Function) -> dict[Bound, Ref]:
        """The optimizers and scalers that the one object holds whose method a call runs: those it was made with."""
        receiver = (
            call.func.value if isinstance(call.func, ast.Attribute) and function.name != "__call__" else call.func
        )
        own = function.parameters[0].arg
        if self.objects.values.program.is_self(scope, receiver) is not None and isinstance(receiver, ast.Name):
            held = scope.binder(receiver.id), f"{receiver.id}."
            return {
                (function.scope, own + n[len(held[1]) - 1 :]): r
                for (s, n), r in env.items()
                if s is held[0] and n.startswith(held[1])
            }
        origins = self.objects.values.origins(scope, receiver)
        if function.name in ("__init__", "__new__") or len(origins) != 1:
            return {}
        return {(function.scope, f"{own}.{name}"): ref for name, ref in self._held_by(next(iter(origins))).items()}

    def _held_by(self, origin: Origin) -> dict[str, Ref]:
        """What an object was made with that its class keeps as it is: `self.optimizer = optimizer`, and nowhere else."""
        if origin.node not in self._kept_fields:
            self._kept_fields[origin.node] = found = dict[str, Ref]()
            cls, program = self.objects.class_made(origin), self.objects.values.program
            made = origin.module.scope_of(origin.node)
            for init in program._method(cls, "__init__") if cls is not None and one_object(origin) else ():
                assert isinstance(origin.node, ast.Call)
                given = program.arguments(init, origin.node, bound=True) or {}
                for node in syntax.own_nodes(init.node):
                    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name):
                        continue
                    for target in node.targets:
                        if not isinstance(target, ast.Attribute) or program.is_self(init.scope, target.value) is None:
                            continue
                        same = [t for _, t, _, _ in self.objects.values.fields(target.attr)]
                        if node.value.id in given and same == [target]:
                            ref = self.objects.ref(made, given[node.value.id], {})
                            if ref.role is not None:
                                found[target.attr] = ref
        return self._kept_fields[origin.node]

    def ref(self, scope: Scope, expr: ast.expr, env: Env) -> Ref:
        """What an expression stands for, asked once for each way in which its function is called."""
        key = (expr, id(env))
        if key not in self._refs:
            self._refs[key] = self.objects.ref(scope, expr, env)
        return self._refs[key]

    def off(self, scope: Scope, env: Env, expr: ast.expr, scaler: Ref, facts: Facts) -> bool:
        """Whether tests on this path came out so that a scaler is switched off."""
        written = syntax.text(expr)
        if (f"{written}.is_enabled()", False) in facts or (f"{written} is None", True) in facts:
            return True
        return self._switched_off(scaler.ident, facts)

    def _switched_off(self, scaler: Ident, facts: Facts) -> bool:
        found = self.objects.enabled(scaler)
        return bool(found) and all(e is not None and self._false(e, facts) for _, e in found)

    def cannot_be(self, optimizer: Ident, facts: Facts) -> bool:
        """Whether gradients cannot be scaled on a path: all that was known there says that the scaler is off."""
        scalers = self.machine.scalers_of(optimizer)
        return bool(scalers) and all(self._switched_off(s, facts) for s in sorted(scalers))

    @staticmethod
    def _false(test: ast.expr, facts: Facts) -> bool:
        """Whether an expression is false, also where a path asked for the same field of another name's object."""
        if outcome(test, facts) is False:
            return True
        test = asked(test)
        fields = {f.rpartition(".")[2] for f, holds in facts if not holds and re.fullmatch(r"[\w.]+", f)}
        conjuncts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        return any(
            syntax.text(c).rpartition(".")[2] in fields for c in conjuncts if isinstance(c, (ast.Name, ast.Attribute))
        )

    def sibling(self, action: Action, *names: str) -> bool:
        """Whether the other arm of a test around an action does the same through a scaler: that arm is the other mode."""
        key = (action, names[0])
        if key not in self._siblings:
            self._siblings[key] = self._has_sibling(action, names)
        return self._siblings[key]

    def _has_sibling(self, action: Action, names: tuple[str, ...]) -> bool:
        child: ast.AST = action.node
        for parent in action.module.ancestors(action.node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return False
            if isinstance(parent, ast.If) and isinstance(child, ast.stmt):
                other = parent.orelse if child in parent.body else parent.body
                for stmt in other:
                    for node in syntax.walk(stmt):
                        if isinstance(node, ast.Attribute) and node.attr in (*names, "scale", "unscale_"):
                            ref = self.objects.ref(action.module.scope_of(node), node.value, {})
                            if ref.role == "scaler":
                                return True
            child = parent
        return False


class Losses(Switches):
    """Which values are scaled, by which scaler, and how often."""

    def own_backward(self, scope: Scope, loss: ast.expr) -> bool:
        """Whether a loss may be an object of a class of the program whose `backward` scales."""
        if isinstance(loss, ast.Name):
            return False
        methods = self.objects.values.program.methods_named("backward")
        return any(m in self.bodies for m in methods)

    def runs_model(self, scope: Scope, loss: ast.expr) -> bool:
        """Whether a loss comes, through a few assignments, of a call that may be a model's: its parameters are reached."""
        return next(self._runs(scope, loss), None) is not None

    def made_from(self, scope: Scope, loss: ast.expr) -> list[ast.expr]:
        """What the calls that a loss comes of run, and are given."""
        calls = list(self._runs(scope, loss))
        given = (e for c in calls for e in (c.func, *c.args) if isinstance(e, (ast.Name, ast.Attribute)))
        return [e for e in given if not self._is_detached(scope, e)]

    @staticmethod
    def _is_detached(scope: Scope, expr: ast.expr) -> bool:
        """Whether a name stands for what no gradient passes: `fake = generator(z).detach()`."""
        bound = scope.bindings.get(expr.id, ()) if isinstance(expr, ast.Name) else ()
        values = [b.value if isinstance(b, ast.Assign) else None for b in bound]
        return bool(values) and all(
            isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr in DETACHED for v in values
        )

    def _runs(self, scope: Scope, loss: ast.expr, depth: int = 0) -> Iterator[ast.Call]:
        program = self.objects.values.program
        for node in _attached(loss):
            if isinstance(node, ast.Call):
                name = program.dotted(scope, node.func)
                method = isinstance(node.func, ast.Attribute) and node.func.attr in _TENSOR
                if not method and not (name or "").startswith(("torch.", "numpy.", "math.")):
                    yield node
            if isinstance(node, ast.Name) and depth < 4:
                binder = scope.binder(node.id)
                for bound in binder.bindings[node.id] if binder is scope else ():
                    value = bound.value if isinstance(bound, (ast.Assign, ast.AugAssign)) else None
                    if value is not None and not without_gradients(program, scope.module, value):
                        yield from self._runs(scope, value, depth + 1)

    def scaled(self, scope: Scope, env: Env, expr: ast.expr, facts: Facts, state: State) -> tuple[Ident, int] | None:
        """The scaler that a value was multiplied by last, and how often; with `BY_ANOTHER` for each time that it was another."""
        if isinstance(expr, ast.Call):
            func = expr.func
            if isinstance(func, ast.Attribute) and func.attr == "scale" and expr.args:
                ref = self.ref(scope, func.value, env)
                inner = self.scaled(scope, env, expr.args[0], facts, state)
                if ref.role == "scaler":
                    if self.off(scope, env, func.value, ref, facts):
                        return inner
                    if inner is None:
                        return ref.ident, 1
                    return ref.ident, 1 + inner[1] + (BY_ANOTHER if inner[0] != ref.ident else 0)
            if found := self._held(f"{RETURNED}{id(expr)}", state):
                return found
            if isinstance(func, ast.Attribute) and func.attr in ("item", "detach", "tolist"):
                return None
            if isinstance(func, ast.Attribute) and (found := self.scaled(scope, env, func.value, facts, state)):
                return found
            acts = self.bodies.by_node.get(expr)
            if (acts is not None and acts.kind != "inner") or (
                isinstance(func, ast.Attribute) and func.attr == "get_scale"
            ):
                return None
            found_in = (self.scaled(scope, env, a, facts, state) for a in expr.args)
            return next((f for f in found_in if f is not None), None)
        if isinstance(expr, ast.BinOp):
            if isinstance(expr.op, ast.Div) and "scale" in syntax.text(expr.right):
                return None
            left, right = (self.scaled(scope, env, e, facts, state) for e in (expr.left, expr.right))
            if isinstance(expr.op, ast.Div) and right is not None:  # `gradient / (scaled / loss)`
                left = left or (right[0], 0)
                return (left[0], left[1] - right[1]) if left[1] > right[1] else None
            return left or right
        if isinstance(expr, ast.UnaryOp):
            return self.scaled(scope, env, expr.operand, facts, state)
        if isinstance(expr, (ast.Subscript, ast.Starred)):
            return self.scaled(scope, env, expr.value, facts, state)
        if isinstance(expr, (ast.List, ast.Tuple)):
            sides = (self.scaled(scope, env, e, facts, state) for e in expr.elts)
            return next((f for f in sides if f is not None), None)
        if isinstance(expr, COMPREHENSIONS) and not isinstance(expr, ast.DictComp):
            return self.scaled(scope, env, expr.elt, facts, state)
        if isinstance(expr, (ast.Name, ast.Attribute)):
            return self._held(syntax.text(expr), state)
        return None

    @staticmethod
    def _held(text: str, state: State) -> tuple[Ident, int] | None:
        return next(((s, n) for name, s, n in sorted(state.scaled) if name == text), None)

    def bind(self, scope: Scope, env: Env, stmt: ast.stmt, facts: Facts, state: State) -> State:
        """What the names that a statement assigns hold afterwards."""
        if not state.scaled:
            if stmt not in self._keeps:
                self._keeps[stmt] = any(n.attr == "scale" for n in syntax.every(stmt, ast.Attribute))
            if not self._keeps[stmt]:
                return state
        value: ast.expr | None = None
        names = assigned(stmt)
        if isinstance(stmt, ast.AugAssign):
            value = self._whole.setdefault(stmt, ast.BinOp(stmt.target, stmt.op, stmt.value))
        elif isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            value = stmt.value
        elif isinstance(stmt, ast.For):
            value = stmt.iter
        elif isinstance(stmt, ast.Return):
            value, names = stmt.value, frozenset({RETURNED})
        elif isinstance(stmt, (ast.With, ast.AsyncWith)):
            value = next((i.context_expr for i in stmt.items if i.optional_vars is not None), None)
        elif isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Yield):
            value, names = stmt.value.value, frozenset({RETURNED})
        found = self.scaled(scope, env, value, facts, state) if value is not None else None
        if isinstance(value, ast.Tuple) and isinstance(stmt, ast.Assign):
            found = None
        kept = {s for s in state.scaled if s[0] not in names and not (s[0].startswith(RETURNED) and s[0] != RETURNED)}
        if isinstance(stmt, ast.For) and found is None:
            kept |= {s for s in state.scaled if s[0] in names}
        if found is not None:
            kept |= {(n, *found) for n in names}
        return state.holding(frozenset(kept)) if kept != state.scaled else state


def _attached(loss: ast.expr) -> Iterator[ast.AST]:
    """What is in an expression and has its gradients reach it: nothing that is detached."""
    left: list[ast.AST] = [loss]
    while left:
        node = left.pop()
        yield node
        func = node.func if isinstance(node, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in DETACHED:
            left += ast.iter_child_nodes(node)


def _encloses(outer: Scope, inner: Scope) -> bool:
    at: Scope | None = inner.parent
    while at is not None:
        if at is outer:
            return True
        at = at.parent
    return False
