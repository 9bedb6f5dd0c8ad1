"""What of each function matters to the step: its actions in order, and the tests and jumps between them.

A function is cut down to the statements that hold an action (a backward, a step, a call of a function that has one), the
tests and loops around these, jumps, and assignments to what the tests read: what is left is small enough to walk.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.flow import Graph
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.stepping.exchanged import exchanged
from amp_migrate.audit.stepping.gradients import (
    chosen_for_gradients,
    may_clear,
    of_an_input,
    reads_gradient,
    writes_none,
)
from amp_migrate.audit.stepping.objects import Objects, may_optimize
from amp_migrate.audit.stepping.statements import cut_down, evaluated, heads
from amp_migrate.audit.stepping.told_by_use import told_by_use
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.same import is_partial

METHODS = frozenset("backward step update unscale_ zero_grad".split())
CLIPS = frozenset("clip_grad_norm_ clip_grad_norm clip_grad_value_ clip_grad_value clip_master_grads".split())
_COLLECTS = frozenset(
    "list tuple iter set len enumerate zip append extend sum map".split()
)  # read no gradient themselves
_WORDS = METHODS | CLIPS | {"scale", "GradScaler", "grad", "optimizer_step"}
_MODES = frozenset({"train", "eval"})  # of any network: `model.train()` is no loop of a trainer
_NO_OPTIMIZER = re.compile(r"sched|prof|warmup|lr|ema|env|self$", re.IGNORECASE)


@dataclass(eq=False)
class Action:
    """One thing that happens to gradients, optimizers or scalers.

    `kind`: "method" (`name` of METHODS called on `on`), "clip" (gradients of `on`), "grad" (`.grad` of `on` is read),
    "inner" (`on` is differentiated by itself, by `torch.autograd.grad`), "none" (`.grad` of `on` is set to None), "clears"
    (what is called out of sight may do so), "exchange" (it may be another process's from here on), "tpu" (torch_xla steps
    `on`), "scale" (a loss), "make" (an optimizer or a scaler), "call" (of one of `callees`).
    """

    kind: str
    module: Module
    node: ast.expr
    on: ast.expr | None = None
    name: str = ""
    callees: tuple[Function, ...] = ()
    scaler: bool = False  # of a scaler, as far as its function can tell


Owner = Function | Module


class Bodies:
    """The functions and module bodies of a program that have a part in the step."""

    def __init__(self, objects: Objects, only: Module | Bodies | None = None) -> None:
        """With `only`, what one module does itself, whatever it calls; or what the bodies of a program do."""
        self.objects = objects
        self.program = objects.values.program
        self.own: dict[Owner, list[Action]] = {}
        self.by_node: dict[ast.AST, Action] = {}
        self.calls: dict[Owner, list[Action]] = {}
        self.callers: dict[Function, list[Owner]] = {}
        self.others_step = False  # something steps that may be an optimizer or not
        self._done: dict[tuple[ast.AST, tuple[str, ...]], bool] = {}
        self._kept_names: dict[str, bool] = {}
        self._around: set[ast.AST] = set()  # the nodes with an action, and all that they stand in
        self._callees: dict[ast.Call, list[Function]] = {}
        self._whole = only if isinstance(only, Bodies) else self
        if isinstance(only, Bodies):
            self.own = only.own
            for action in (a for actions in self.own.values() for a in actions):
                self._note(action)
            return
        for module in self.program.modules.values() if only is None else (only,):
            if not module.words.isdisjoint(_WORDS):
                for action in self._direct(module):
                    self._file(action, self.own)
        if only is None:
            self._spread()

    def _file(self, action: Action, into: dict[Owner, list[Action]]) -> None:
        if isinstance(action.module.scope_of(action.node).node, ast.Lambda):
            return  # it runs when the lambda is called
        into.setdefault(action.module.function_around(action.node) or action.module, []).append(action)
        self._note(action)

    def _note(self, action: Action) -> None:
        self.by_node[action.node] = action
        at: ast.AST | None = action.node
        while at is not None and at not in self._around:
            self._around.add(at)
            at = action.module.parents.get(at)

    # -- what happens ----------------------------------------------------------------------------------------------

    def _direct(self, module: Module) -> Iterator[Action]:
        for call in module.calls():
            action = self._of_call(module, call)
            if action is not None:
                yield action
        if "grad" in module.words:
            for node in syntax.every(module.tree, ast.Attribute):
                if node.attr == "grad":
                    reads = reads_gradient(module, node)
                    if reads and not of_an_input(module, node):
                        yield Action("grad", module, node, node.value)
                    elif writes_none(module, node):
                        yield Action("none", module, node, node.value)
            for place, on in exchanged(self.program, module):
                yield Action("exchange", module, place, on)

    def _of_call(self, module: Module, call: ast.Call) -> Action | None:
        func = call.func
        last = syntax.last(func)
        clipped = call.args[0] if call.args else getattr(func, "value", None)
        if last in CLIPS and clipped is not None:
            return Action("clip", module, call, clipped, last)
        if last == "grad" and self.program.dotted(module.scope_of(call), func) == "torch.autograd.grad":
            on = next(iter([*call.args[:1], *(k.value for k in call.keywords if k.arg == "outputs")]), None)
            return Action("inner", module, call, on) if on is not None else None
        chosen = [a for a in call.args if chosen_for_gradients(module, a)]
        if chosen and last not in _COLLECTS and not self.program.definitions(module.scope_of(call), func):
            return Action("clip", module, call, chosen[0], last)
        if last == "optimizer_step" and call.args and isinstance(func, ast.Attribute):
            steps = self.objects.ref(module.scope_of(call), call.args[0], {}).role == "optimizer"
            return Action("tpu", module, call, call.args[0]) if steps else None
        if last == "scale" and isinstance(func, ast.Attribute) and call.args:
            scales = self.objects.ref(module.scope_of(call), func.value, {}).role == "scaler"
            return Action("scale", module, call, scaler=True) if scales else None
        found = self._method(module.scope_of(call), func)
        if found is not None and not told_by_use(self.objects.values, module, call):
            on, name = found
            if name == "backward" and self.program.dotted(module.scope_of(call), func) == "torch.autograd.backward":
                return Action("method", module, call, call.args[0], name) if call.args else None
            if name in ("unscale_", "zero_grad") or self._matters(module.scope_of(call), on, name, call):
                scaler = name != "zero_grad" and self.objects.ref(module.scope_of(call), on, {}).role == "scaler"
                return Action("method", module, call, on, name, scaler=scaler)
        makes = may_optimize(last) or last in self._optimizers
        if last == "GradScaler" or (makes and self.objects.ref(module.scope_of(call), call, {}).role):
            return Action("make", module, call)
        if may_clear(call) and not self.callees(module, call):
            return Action("clears", module, call, func)
        return None

    @cached_property
    def _optimizers(self) -> set[str]:
        """The names of the program's classes that are optimizers by their base, or scalers."""
        return {
            c.name
            for m in self.program.modules.values()
            if "Optimizer" in m.text or "GradScaler" in m.text
            for c in m.classes
            if any(
                syntax.text(b).endswith(("Optimizer", "GradScaler")) or may_optimize(syntax.text(b))
                for b in c.node.bases
            )
        }

    def _matters(self, scope: Scope, on: ast.expr, name: str, call: ast.Call) -> bool:
        if name == "backward":
            if any(isinstance(d, Function) for d in self.program.definitions(scope, call.func, guess=False)):
                return False  # `steps.backward(loss)`: a function of that name in a module of the program
            return not self.program.methods_named(name) or not self.objects.methods(scope, on, name)
        written = syntax.text(on).lower()
        empty = not call.keywords and [syntax.text(a) for a in call.args] in ([], ["None"])
        if name == "update" and "scal" not in written and not empty:
            return False  # a dictionary's, a meter's
        if name == "step" and "sched" in written:
            return False
        role = self.objects.ref(scope, on, {}).role
        if name == "step" and role is None and not call.args and not _NO_OPTIMIZER.search(syntax.text(on)):
            self.others_step |= not self.objects.methods(scope, on, name)
        return role == "scaler" if name == "update" else role is not None

    def _method(self, scope: Scope, func: ast.expr, depth: int = 0) -> tuple[ast.expr, str] | None:
        """The object and the method of a call, also where the method was kept: `go = opt.step`, `getattr(opt, "step")`."""
        if isinstance(func, ast.Attribute):
            return (func.value, func.attr) if func.attr in METHODS else None
        if isinstance(func, ast.Call) and func.args:
            name = func.func.id if isinstance(func.func, ast.Name) else getattr(func.func, "attr", "")
            if name == "getattr" and len(func.args) > 1 and isinstance(func.args[1], ast.Constant):
                kept = func.args[1].value
                return (func.args[0], str(kept)) if kept in METHODS else None
            if name == "partial":
                return self._method(scope, func.args[0], depth + 1)
        if isinstance(func, ast.Name) and depth < 4:
            binder = scope.binder(func.id)
            for node in binder.bindings[func.id] if binder is not None else ():
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    found = self._method(binder, node.value, depth + 1) if binder is not None else None
                    if found is not None:
                        return found
        return None

    # -- calls -----------------------------------------------------------------------------------------------------

    def bound(self, scope: Scope, func: ast.expr) -> ast.Call | None:
        """The call of `partial` that a callee is, or was given."""
        if isinstance(func, ast.Name):
            binder = scope.binder(func.id)
            nodes = binder.bindings[func.id] if binder is not None else []
            if binder is None or len(nodes) != 1 or not isinstance(nodes[0], ast.Assign):
                return None
            scope, func = binder, nodes[0].value
        return func if is_partial(func, self.program, scope) else None

    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        """The project's functions that a call may run."""
        if call not in self._callees:
            found = self._found_callees(module, call)
            self._callees[call] = [f for f in found if not f.abstract] or found  # of which none runs where others are
        return self._callees[call]

    def _found_callees(self, module: Module, call: ast.Call) -> list[Function]:
        scope = module.scope_of(call)
        found = self.program.run_by(self.program.definitions(scope, call.func, guess=False))
        if found:
            return found
        partial = self.bound(scope, call.func)
        if partial is not None:
            return self.program.run_by(self.program.definitions(module.scope_of(partial), partial.args[0], guess=False))
        if isinstance(call.func, ast.Attribute):
            methods = self.objects.methods(scope, call.func.value, call.func.attr)
            if methods:
                return methods
        if self._held(scope, call.func):
            for origin in in_order(self.objects.values.origins(scope, call.func)):
                if origin.kind == "function":
                    found.append(self.program.function_of(origin.module, origin.node))
                elif (cls := self.objects.class_made(origin)) is not None:
                    found += self.program._method(cls, "__call__") or self.program._method(cls, "forward")
            if found:
                return found
        known = self.program.run_by(self.program.definitions(scope, call.func)) or self._unseen(module, call)
        return known or told_by_use(self.objects.values, module, call)

    def _unseen(self, module: Module, call: ast.Call) -> list[Function]:
        """The methods that step through a scaler, where an object of which nothing is known is asked for one of that name:
        `self.solver.step()` in a class that scales losses itself, or one of whose relatives does."""
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in self._steppers or func.attr in _MODES:
            return []
        owner = self.program.class_around(module.scope_of(call))
        if owner not in self._scaling or _NO_OPTIMIZER.search(syntax.text(func.value)):
            return []
        return [f for f in self._steppers[func.attr] if f.owner not in self.program.family(owner)]

    @cached_property
    def _steppers(self) -> dict[str, list[Function]]:
        """The methods that step through a scaler, by name."""
        found: dict[str, list[Function]] = {}
        for owner, actions in self.own.items():
            if isinstance(owner, Function) and owner.owner is not None:
                if any(a.scaler and a.name == "step" for a in actions):
                    found.setdefault(owner.name, []).append(owner)
        return found

    @cached_property
    def _scaling(self) -> set[Class]:
        """The classes that scale losses, with their relatives."""
        owners = (
            o.owner for o, acts in self.own.items() if isinstance(o, Function) and any(a.kind == "scale" for a in acts)
        )
        return {c for owner in owners if owner is not None for c in self.program.family(owner)}

    def _held(self, scope: Scope, func: ast.expr) -> bool:
        """Whether a callee is a value that the program keeps: a parameter, a name or a field given one."""
        if isinstance(func, ast.Name):
            binder = scope.binder(func.id)
            return binder is not None and any(
                isinstance(n, (ast.arg, ast.Assign, ast.For)) for n in binder.bindings[func.id]
            )
        if isinstance(func, ast.Subscript):
            return not isinstance(func.value, ast.Call)
        if isinstance(func, ast.Call):  # `getattr(callback, event)(self)`
            named = syntax.text(func.func) == "getattr" and len(func.args) > 1
            return named and not self._in_turn(scope, func.args[1])
        return isinstance(func, ast.Attribute) and bool(self.objects.values.fields(func.attr))

    def _in_turn(self, scope: Scope, name: ast.expr) -> bool:
        """Whether a loop goes through several names, so that each turn runs another method: in which order is not followed."""
        if not isinstance(name, ast.Name):
            return False
        binder = scope.binder(name.id)
        return binder is not None and any(isinstance(n, ast.For) for n in binder.bindings[name.id])

    @cached_property
    def _held_calls(self) -> dict[Function, list[tuple[Module, ast.Call]]]:
        """Calls of what the program keeps, by the function that is kept."""
        found: dict[Function, list[tuple[Module, ast.Call]]] = {}
        near = {o.module if isinstance(o, Function) else o for o in (*self.own, *self.calls)}
        for module in (m for m in self.program.modules.values() if m in near):
            for call in module.calls():
                if self._held(module.scope_of(call), call.func):
                    for function in self.callees(module, call):
                        found.setdefault(function, []).append((module, call))
        return found

    def _spread(self) -> None:
        """Functions that call one that has a part in the step have a part in it."""
        todo = [f for f in self.own if isinstance(f, Function)]
        seen = set(todo)
        while todo:
            function = todo.pop()
            for module, call in self._call_sites(function):
                action = self.by_node.get(call)
                if action is None or action.kind == "make":
                    action = Action("call", module, call, callees=tuple(self.callees(module, call)))
                    self._file(action, self.calls)
                caller = module.function_around(call) or module
                if caller not in self.callers.setdefault(function, []):
                    self.callers[function].append(caller)
                if isinstance(caller, Function) and caller not in seen:
                    seen.add(caller)
                    todo.append(caller)

    def _call_sites(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        names = {function.name}
        if function.name == "__init__" and function.owner is not None:
            names = {c.name for c in self.program.family(function.owner)} | {"__init__"}
        sites = [
            (m, call)
            for name in sorted(names)
            for m in self.program.having(name)
            for call in m.calls_named.get(name, ())
        ]
        yield from (s for s in sites if function in self.callees(*s))
        if function.name in ("__call__", "forward") or self._kept(function):
            yield from (s for s in self._held_calls.get(function, ()) if s not in sites)

    def _kept(self, function: Function) -> bool:
        """Whether a function is read other than to call it: by its name, as text too, or by a decorator."""
        name = function.name
        if name not in self._kept_names:
            self._kept_names[name] = any(
                not isinstance(call := m.parents.get(node), ast.Call) or call.func is not node
                for m in self.program.having(name)
                for node in m.loads.get(name, ())
            )
            quoted = (f'"{name}"', f"'{name}'") if function.owner is not None else ()
            self._kept_names[name] |= any(q in m.text for m in self.program.having(name) for q in quoted)
        return self._kept_names[name] or bool(function.node.decorator_list)

    # -- cut down --------------------------------------------------------------------------------------------------

    def __contains__(self, owner: object) -> bool:
        return owner in self.own or owner in self.calls

    def has(self, owner: Owner, *kinds: str) -> bool:
        """Whether a body does one of some things (`METHODS` by name), itself or through what it calls."""
        reached: dict[Owner, None] = {owner: None}
        waiting = [owner]
        while waiting:
            at = waiting.pop()
            if any((a.name or a.kind) in kinds or (a.scaler and "scaler" in kinds) for a in self.own.get(at, ())):
                return True
            further = [f for a in self.calls.get(at, ()) for f in a.callees if f not in reached]
            reached |= dict.fromkeys(further)
            waiting += further
        return False

    def does(self, tree: ast.AST, *kinds: str) -> bool:
        """The same for the statements below a node."""
        if (tree, kinds) not in self._done:
            self._done[tree, kinds] = self._does(tree, *kinds)
        return self._done[tree, kinds]

    def _does(self, tree: ast.AST, *kinds: str) -> bool:
        for node in syntax.walk(tree):
            action = self.by_node.get(node)
            if action is None:
                continue
            if (action.name or action.kind) in kinds or any(self.has(f, *kinds) for f in action.callees):
                return True
        return False

    @kept
    def graph(self, owner: Owner) -> Graph:
        if self._whole is not self and owner not in self._whole.calls:  # it is cut down alike
            return self._whole.graph(owner)
        body = owner.node.body if isinstance(owner, Function) else owner.tree.body
        return Graph(cut_down(body, self._around))

    @kept
    def actions(self, stmt: ast.stmt) -> list[Action]:
        """The actions of a statement, or of the head of a compound one, in the order in which they happen."""
        return [self.by_node[n] for h in heads(stmt) for n in evaluated(h) if n in self.by_node]
