"""What a call does to the weights of networks, whatever happened before: it runs one, writes into weights, or calls functions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.sites.forwards import Forwards
from amp_migrate.audit.sites.named_weights import of_embeddings
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.sites.uncopied import uncopied
from amp_migrate.audit.sites.weights import Frame, Place, Value, Weights
from amp_migrate.audit.sites.writers import IN_PLACE, SWAPS, TO_VECTOR
from amp_migrate.audit.values.origins import in_order

Called = Function | tuple[Module, ast.Lambda]


class Effect(NamedTuple):
    """What a call does: it runs a network, writes into weights, or calls functions (with `network` as `self`) and lambdas.
    `partial`: the `functools.partial` through which it does."""

    functions: Sequence[Called]
    network: Value | None = None
    runs: bool = False
    writes: frozenset[Place] = frozenset()
    partial: tuple[Module, ast.Call] | None = None


class Effects:
    """Answers for one state of a program."""

    def __init__(self, forwards: Forwards, weights: Weights) -> None:
        self.program = forwards.program
        self.forwards = forwards
        self.weights = weights

    def of(self, frame: Frame, call: ast.Call, last: str) -> Effect:
        """What a call does, whatever happened before."""
        func = call.func
        owner = self.program.is_self(frame.scope, func)
        forward = self.forwards.at(frame.scope.module, call) if not _of_base(func) else None
        if owner is not None:
            return Effect(self.program.methods(owner, "forward"), self.weights.of(frame, func), runs=True)
        if forward is None and self._is_layer(frame, func):
            return Effect([], self.weights.of(frame, func), runs=True)
        if isinstance(func, ast.Name) and func.id in frame.names and frame.names[func.id].kind == "network":
            return Effect(self.forwards.runs(forward) if forward is not None else [], frame.names[func.id], runs=True)
        if (held := self._held(frame, func)) is not None:
            return held
        if forward is not None and (network := self.weights.of(frame, forward.model)) is not None:
            return Effect(self.forwards.runs(forward), network, runs=True) if network.kind == "network" else Effect([])
        return self._function(frame, call, last)

    def _held(self, frame: Frame, func: ast.expr) -> Effect | None:
        """What is called by a value: a lambda, a function that another returns or a mapping holds, one with some arguments
        bound; None where it is no such value. What may also be a network runs that, too."""
        if self.program.definitions(frame.scope, func, guess=False):
            return None
        functions: list[Function] = []
        lambdas: list[tuple[Module, ast.Lambda]] = []
        for origin in in_order(self.forwards.values.origins(frame.scope, func)):
            if origin.path:
                continue
            if origin.kind == "function":
                functions.append(self.program.function_of(origin.module, origin.node))
            elif isinstance(origin.node, ast.Lambda):
                lambdas.append((origin.module, origin.node))
            elif isinstance(origin.node, ast.Call) and not functions and not lambdas:
                if bound := [d for d in self.forwards.bound_by(origin) if isinstance(d, Function)]:
                    return Effect(bound, self.weights.of(frame, func), partial=(origin.module, origin.node))
        if not functions and not lambdas:
            return None
        if isinstance(func, ast.Attribute) and any(f.name == func.attr and self._is_idle(f) for f in functions):
            return None  # a method, and no value
        network = self.weights.of(frame, func)
        if network is not None and network.kind == "network":
            functions += self.forwards.values.methods(frame.scope, func, "forward")
            return Effect([*functions, *lambdas], network, runs=True)
        return Effect([*functions, *lambdas])

    def _is_idle(self, method: Function) -> bool:
        """Whether a method runs no part of its network, nor anything that it is given."""
        given = {p.arg for p in method.parameters}
        called = (syntax.text(c.func) for c in syntax.every(method.node, ast.Call))
        return method.owner is not None and not self.forwards.computes(method) and given.isdisjoint(called)

    def _is_layer(self, frame: Frame, func: ast.expr) -> bool:
        """Whether `self.x(...)` calls a part of a network, not a method of it."""
        if not isinstance(func, ast.Attribute):
            return False
        owner = self.program.is_self(frame.scope, func.value)
        if owner is None or not self.program.is_network(owner) or self.program.methods(owner, func.attr):
            return False
        return owner in self.forwards.holders(func.attr)

    def _function(self, frame: Frame, call: ast.Call, last: str) -> Effect:
        func = call.func
        found = [d for d in self.program.definitions(frame.scope, func, guess=False) if isinstance(d, Function)]
        itself: Value | None = None
        if isinstance(func, ast.Attribute) and not found and not _of_base(func):
            found = self.forwards.values.methods(frame.scope, func.value, func.attr)
        if isinstance(func, ast.Attribute) and found:
            itself = frame.names.get("self") if _of_base(func) else self.weights.of(frame, func.value)
        wrote = frozenset[Place]() if found and last != "load_state_dict" else self.written(frame, call, last)
        return Effect(found, itself, writes=wrote)

    def written(self, frame: Frame, call: ast.Call, last: str) -> frozenset[Place]:
        """The networks into whose weights a call of torch's, or out of sight, writes."""
        func = call.func
        dotted = self.program.dotted(frame.scope, func) or ""
        if last == TO_VECTOR:
            vector = argument(call, "parameters", 1)
            return self.weights.weights(frame, vector) if vector is not None else frozenset()
        if dotted.startswith(("torch.nn.init.", "torch._foreach_")) and last.endswith("_") and call.args:
            return self.weights.weights(frame, call.args[0])
        if not isinstance(func, ast.Attribute):
            return frozenset()
        if last == "load_state_dict":
            return self.weights.network(frame, func.value)
        if last == "step":
            return self.weights.of_optimizer(frame, call.args[0] if call.args else func.value)
        if last in SWAPS:
            return self.weights.held_by(frame, func.value)
        if last.endswith("_") and not last.startswith("_") and last not in IN_PLACE:
            values, scope = self.forwards.values, frame.scope
            plain = uncopied(values, scope, func.value) or of_embeddings(values, scope, call)
            return frozenset() if plain else self.weights.weights(frame, func.value)
        return frozenset()


def _of_base(func: ast.expr) -> bool:
    """Whether `super().forward` is called: what it runs is a part of the object itself."""
    return (
        isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) and syntax.last(func.value.func) == "super"
    )
