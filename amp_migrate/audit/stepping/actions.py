"""What one action does to the state of a path: a backward, a step, an update, a zeroing, a read of gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import Facts
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.stepping.bodies import Action, Bodies
from amp_migrate.audit.stepping.bounds import bound, times_scale
from amp_migrate.audit.stepping.handed import Asked
from amp_migrate.audit.stepping.machine import FAINT, OPEN, OTHER_MODE, PLAIN, ZERO, ZEROS, Machine, State
from amp_migrate.audit.stepping.objects import Env, Ident
from amp_migrate.audit.stepping.parameters import Parameters
from amp_migrate.audit.stepping.scaled import BY_ANOTHER, Losses
from amp_migrate.audit.stepping.untrained import Untrained

Reached = tuple[Facts, State]


@kept
def _divides(module: Module, node: ast.AST) -> bool:
    """Whether the function around a read of gradients, or the statement, asks for the scale."""
    around = module.function_around(node)
    text = around.node if around is not None else module.statement(node)
    bounds = {n for call in syntax.every(text, ast.Call) if (b := bound(call)) is not None for n in syntax.walk(b)}
    return any(n.attr in ("get_scale", "_scale") and n not in bounds for n in syntax.every(text, ast.Attribute))


def _bound_once(scope: Scope, loss: ast.expr) -> bool:
    """Whether each name in a loss stands for one thing in all of a function."""
    return all(len(scope.bindings.get(n.id, ())) < 2 for n in syntax.every(loss, ast.Name))


class Actions(Losses):
    """Carries out actions; what a call runs is said by who follows the paths (`_call`)."""

    def __init__(self, bodies: Bodies, machine: Machine) -> None:
        super().__init__(bodies, machine)
        self.parameters = Parameters(bodies.objects)
        self.untrained = Untrained(bodies.objects)
        self.asked = Asked(bodies, machine)
        self._of: dict[tuple[ast.AST, int, frozenset[Ident]], list[Ident]] = {}
        # The optimizers of the models that losses are computed of.
        self._losses: dict[tuple[ast.expr, frozenset[Ident], int, int], list[Ident]] = {}

    def _act(self, env: Env, action: Action, facts: Facts, state: State) -> Iterable[Reached]:
        scope = action.module.scope_of(action.node)
        if action.kind == "call":
            assert isinstance(action.node, ast.Call)
            return self._call(scope, env, action.node, action.callees, facts, state)
        if action.kind in ("scale", "tpu"):
            return [(facts, state)]
        if action.kind == "make":
            ref = self.ref(scope, action.node, env)
            return [(facts, self.machine.made(state, ref.ident, ref.role) if ref.role else state)]
        if action.kind in ("clip", "grad"):
            self._read(env, action, facts, state)
            return [(facts, state)]
        if action.kind == "inner":
            self._differentiate(scope, env, action, facts, state)
            return [(facts, state)]
        if action.kind == "clears":
            return [(facts, self.machine.elsewhere(state))]
        if action.kind == "exchange":
            self.machine.exchange(state, action.module, action.node, self._whose(env, action))
            return [(facts, state)]
        assert action.on is not None
        if action.kind == "none" or action.name == "zero_grad":
            return [(facts, self._zero(env, action, state))]
        if action.name == "backward":
            return [(facts, self._backward(scope, env, action, facts, state))]
        return self._scaler(scope, env, action, facts, state)

    def _scaler(self, scope: Scope, env: Env, action: Action, facts: Facts, state: State) -> Iterable[Reached]:
        """`step`, `unscale_` and `update` of a scaler, or the step of an optimizer itself."""
        assert action.on is not None
        assert isinstance(action.node, ast.Call)
        on = self.ref(scope, action.on, env)
        module, node = action.module, action.node
        if on.role == "scaler":
            off = self.off(scope, env, action.on, on, facts)
            if action.name == "update":
                new = node.args[0] if node.args else next((k.value for k in node.keywords), None)
                given = new is not None and not (isinstance(new, ast.Constant) and new.value is None)
                return [(facts, state if off else self.machine.update(state, module, node, on.ident, given))]
            handed = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "optimizer"), None)
            if handed is None:
                return [(facts, state)]
            optimizer = self.ref(scope, handed, env)
            if off and action.name == "step":
                self.machine.meet(optimizer.ident, on.ident)
                return [(facts, self.machine.plain_step(state, module, node, optimizer.ident, excused=True))]
            if off:
                return [(facts, state)]
            if action.name == "step" and self.untrained.steps_nothing(optimizer.ident):
                self.machine.note("step", module, node, optimizer.ident, "untrained")
            return [(facts, self.machine.divide(state, module, node, on.ident, optimizer, action.name == "step"))]
        if action.name == "step" and on.role == "optimizer":
            if self.untrained.steps_nothing(on.ident):
                return [(facts, state)]
            excused = self.sibling(action, "step")
            if self.cannot_be(on.ident, facts):
                state = state.put({on.ident: state.of(on.ident)._replace(held=OPEN, stage="?", kept="")})
            return [(facts, self.machine.plain_step(state, module, node, on.ident, excused))]
        methods = self.objects.methods(scope, action.on, action.name)
        methods = [m for m in methods if m in self.bodies]
        if methods:
            return self._call(scope, env, node, tuple(methods), facts, state)
        return [(facts, state)]

    def _backward(self, scope: Scope, env: Env, action: Action, facts: Facts, state: State) -> State:
        assert action.on is not None
        assert isinstance(action.node, ast.Call)
        if self.ref(scope, action.on, env).role is not None:
            return self._unknown(state)  # optimizer.backward(loss)
        found = self.scaled(scope, env, action.on, facts, state)
        if found is not None:
            scaler, count = found
            self.machine.know(scaler)
            self.machine.note("backward", action.module, action.node, scaler, _how_often(count))
            theirs = self._trained(scope, action.on)
            function = action.module.function_around(action.node)
            # What several callers give may be another model each time.
            one = function is None or len(self.objects.values.program.callers(function)) < 2
            only = one and "requires_grad" not in scope.module.text and _bound_once(scope, action.on)
            return self.machine.backward(state, scaler, theirs=theirs, only=only)
        given = action.node.args and self.objects.values.program.dotted(scope, action.node.func) is None
        if given and "loss" not in syntax.text(action.on).lower():
            return self._unknown(state)  # engine.backward(loss)
        if self.own_backward(scope, action.on):
            return self._unknown(state)
        if self.sibling(action, "scale"):
            return self.machine.backward(state, None, OTHER_MODE)
        if not self.runs_model(scope, action.on):
            return self.machine.backward(state, None, FAINT)
        return self.machine.backward(state, None, PLAIN, self._trained(scope, action.on))

    def _differentiate(self, scope: Scope, env: Env, action: Action, facts: Facts, state: State) -> None:
        assert action.on is not None
        found = self.scaled(scope, env, action.on, facts, state)
        if found is not None:
            self.machine.note("inner", action.module, action.node, found[0], "twice" if found[1] > 1 else "ok")

    def _trained(self, scope: Scope, loss: ast.expr) -> list[Ident]:
        """The optimizers of the models that a loss is computed of: of a penalty on weights, of centers that a loss keeps."""
        if self.machine.single:
            return []
        known = self.machine.optimizers
        key = (loss, self.machine.entered, len(known), len(self.objects.made))  # of which there only get to be more
        if key not in self._losses:
            given = self.made_from(scope, loss)
            found = {o for value in given for o in self.parameters.optimizers(scope, value, sorted(known))}
            self._losses[key] = sorted(found)
        return self._losses[key]

    def _unknown(self, state: State) -> State:
        return state.put({o: state.of(o)._replace(held=OPEN, kept="") for o in sorted(self.machine.optimizers)})

    def _zero(self, env: Env, action: Action, state: State) -> State:
        assert action.on is not None
        scope = action.module.scope_of(action.node)
        ref = self.ref(scope, action.on, env)
        held = ZERO
        if isinstance(action.node, ast.Call):
            kept = [k.value for k in action.node.keywords if k.arg == "set_to_none"] or action.node.args[:1]
            if kept and not (isinstance(kept[0], ast.Constant) and kept[0].value):
                held = ZEROS
        else:
            held = OPEN  # one parameter's, or all of some model
        if ref.role == "optimizer":
            return self.machine.zero(state, [ref.ident], held)
        methods = [m for m in self.objects.methods(scope, action.on, "zero_grad") if m in self.bodies]
        known = self.parameters.optimizers(scope, action.on, sorted(self.machine.optimizers))
        if methods or not known:
            held = held if self.machine.single and not methods else OPEN
            known = sorted(self.machine.optimizers)
        return self.machine.zero(state, known, held)

    def _read(self, env: Env, action: Action, facts: Facts, state: State) -> None:
        times = times_scale(action.module, action.node)
        if times == 0 and _divides(action.module, action.node):
            return  # divided, or compared with what is multiplied
        excused = self.sibling(action, "unscale_", "step")
        whose = self._whose(env, action)
        if any(self.cannot_be(o, facts) for o in whose or self.machine.optimizers):
            return
        self.machine.read(state, action.module, action.node, whose, excused, times)

    def _whose(self, env: Env, action: Action) -> list[Ident]:
        """The optimizers whose gradients an action is about; none where that cannot be told."""
        assert action.on is not None
        key = (action.node, id(env), self.machine.entered)
        if key not in self._of:
            known = sorted(self.machine.optimizers)
            self._of[key] = self.parameters.of(action.module.scope_of(action.node), action.on, known, env)
        return self._of[key]

    def _call(
        self, scope: Scope, env: Env, call: ast.Call, callees: tuple[Function, ...], facts: Facts, state: State
    ) -> Iterable[Reached]:
        raise NotImplementedError


def _how_often(count: int) -> str:
    others, times = divmod(count, BY_ANOTHER)
    if others == 1 and times == 2:
        return "by two"
    return "twice" if times > 1 else "ok"
