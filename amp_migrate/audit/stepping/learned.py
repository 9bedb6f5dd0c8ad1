"""Which optimizers and scalers there are, and which runs come by which, on whatever path."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.program.module import Function, Scope
from amp_migrate.audit.stepping.actions import Actions
from amp_migrate.audit.stepping.bodies import Action, Bodies, Owner
from amp_migrate.audit.stepping.machine import Machine
from amp_migrate.audit.stepping.objects import Env, Ident
from amp_migrate.audit.stepping.scaled import Entries

BUDGET = 4000  # bodies that one entry leads to


class Learned(Actions):
    """Goes through the bodies that entries lead to once, before any path is followed."""

    def __init__(self, bodies: Bodies, machine: Machine) -> None:
        super().__init__(bodies, machine)
        # The optimizers that a body acts on, and the bodies that it leads to.
        self._learned: dict[tuple[Owner, Entries], tuple[set[Ident], list[tuple[Owner, Entries]]]] = {}

    def learn(self, entries: Iterable[Owner]) -> None:
        """Which optimizers and scalers there are, and which scaler is whose, on whatever path."""
        todo: list[tuple[Owner, Entries]] = [(e, ()) for e in entries]
        seen = set(todo)
        while todo and len(seen) < BUDGET:
            owner, entries_ = todo.pop()
            env = self.env(entries_)
            met, further = self._learned.setdefault((owner, entries_), (set(), []))
            for action in (*self.bodies.own.get(owner, ()), *self.bodies.calls.get(owner, ())):
                scope = action.module.scope_of(action.node)
                callees = list(action.callees)
                if action.kind == "method" and action.on is not None:
                    callees += self._learn(scope, env, action, action.on, met)
                elif action.kind == "scale" and isinstance(action.node, ast.Call):
                    assert isinstance(action.node.func, ast.Attribute)
                    self.machine.know(self.ref(scope, action.node.func.value, env).ident)
                for callee in callees:
                    for function in (callee, *self._of_context(callee)):
                        if function in self.bodies and isinstance(action.node, ast.Call):
                            _, inner, _ = self.given(scope, env, action.node, function)
                            further.append((function, inner))
                            if (function, inner) not in seen:
                                seen.add((function, inner))
                                todo.append((function, inner))

    def met_from(self, entry: Owner) -> set[Ident]:
        """The optimizers that runs from an entry come by."""
        found: set[Ident] = set()
        todo: list[tuple[Owner, Entries]] = [(entry, ())]
        seen = set(todo)
        while todo:
            met, further = self._learned.get(todo.pop(), (set(), []))
            found |= met
            todo += [f for f in dict.fromkeys(further) if f not in seen]
            seen.update(further)
        return found

    def _learn(self, scope: Scope, env: Env, action: Action, on: ast.expr, met: set[Ident]) -> list[Function]:
        ref = self.ref(scope, on, env)
        call = action.node
        if ref.role == "scaler" and action.name == "update":
            self.machine.know(ref.ident)
        elif ref.role == "scaler" and isinstance(call, ast.Call):
            handed = [*call.args, *(k.value for k in call.keywords if k.arg == "optimizer")]
            if handed:
                met.add(self.ref(scope, handed[0], env).ident)
                self.machine.meet(self.ref(scope, handed[0], env).ident, ref.ident)
        elif ref.role == "optimizer":
            met.add(ref.ident)
            self.machine.meet(ref.ident)
        elif action.name == "step":
            return self.objects.methods(scope, on, action.name)
        return []

    def _of_context(self, function: Function) -> list[Function]:
        if function.name != "__init__" or function.owner is None:
            return []
        found = self.objects.values.program._method
        return [m for name in ("__enter__", "__exit__") for m in found(function.owner, name)]
