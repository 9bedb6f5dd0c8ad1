"""A step and the readers of its gradients in different functions: where they are unscaled then.

Seen from a function that calls the one that steps, the call is the step: readers between the backward and it stand in
the caller, so gradients are unscaled there, before the first of them, and no more in the function called. A function
that runs the backward and then reads gradients itself unscales them itself. `paths` proves the outcome.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from amp_migrate.reading.gradients.entry_readers import clips, entry_readers, stepped_by
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.positions import Gradients
from amp_migrate.reading.gradients.updates import over_optimizers, updates
from amp_migrate.reading.program.definitions import Function, dotted
from amp_migrate.reading.program.given_values import given_once
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.unit import Step, Unit

PLACE = re.compile(
    r"[A-Za-z_]\w*(\.\w+|\[\w+\]|\[(['\"])\w+\2\])*"
)  # code that means the same wherever it is evaluated


class Spread:
    """Adds to the plans of single functions what stands in their callers and in the functions they call."""

    def __init__(
        self, unit: Unit, reader: GradientReader, view: Callable[[Scope], Block], plans: dict[Scope, Gradients]
    ) -> None:
        self.unit = unit
        self.project = unit.project
        self.reader = reader
        self.view = view
        self.plans = plans

    def extend(self, step: Step) -> None:
        """Place the unscaling for a step's readers outside of its own function."""
        self._callers(step, {self.project.function_of(step.module, step.call)})
        self._callees(step, set())

    def _plan(self, scope: Scope) -> Gradients:
        return self.plans.setdefault(scope, Gradients())

    # -- the functions that call the one that steps --------------------------------------------------------------

    def _callers(self, step: Step, seen: set[Function | None]) -> bool:
        """Whether gradients are unscaled before the step's function is called."""
        function = self.project.function_of(step.module, step.call)
        if function is None or self._scales(function):
            return False
        outer: list[Step] = []
        unscaled: set[Step] = set()
        for module, call in self.project.calls.get(function, []):
            caller = self.project.function_of(module, call)
            seen_there = self._seen_from(step, function, module, call)
            if seen_there is None or (caller in seen and caller is not None):
                continue
            outer.append(seen_there)
            if self._reads_before(seen_there) | self._callers(seen_there, seen | {caller}):
                unscaled.add(seen_there)
            self._callees(seen_there, set())
        if not unscaled:
            return False
        for other in outer:
            if other not in unscaled:
                self._plan(other.scope).unscale.append((other.stmt, other))
                self._drop_overrides(other, unscaled)
        plan = self._plan(function.scope)
        plan.unscale = [(s, x) for s, x in plan.unscale if x.call is not step.call]
        plan.update_before += [(s, step) for s in self._returns_before(step) if s not in dict(plan.update_before)]
        return True

    def _drop_overrides(self, step: Step, unscaled: set[Step]) -> None:
        """A call before which gradients are unscaled may run a method that clips and then calls the one it overrides."""
        for other in unscaled:
            if self.project.function_of(other.module, other.call) in self.project.resolved.get(step.call, []):
                self._drop(other)

    def _reads_before(self, step: Step) -> bool:
        """Place the unscaling for readers in the function that calls the one that steps."""
        node = find(self.view(step.scope), step.stmt)
        if node is None:
            return False
        found = Gradients()
        self.reader.readers(step.module, step, node, [(step, node)], found)
        self._plan(step.scope).add(found)
        return bool(found.unscale or found.moved)

    def _returns_before(self, step: Step) -> list[ast.stmt]:
        """Where the step's function is left without having stepped."""
        found: list[ast.stmt] = []
        for node in self.view(step.scope).walk():
            if node.stmt is step.stmt:
                break
            if isinstance(node.stmt, ast.Return):
                found.append(node.stmt)
        return found

    # -- methods between the backward and the step, called out of sight ---------------------------------------------

    def entries(self) -> list[ast.stmt]:
        """Unscale in a method that clips gradients and that nothing in sight calls, where its object has one of that kind;
        the statements before which it is done. `paths` refuses any other that reads them."""
        found: list[ast.stmt] = []
        methods = list(entry_readers(self.unit, self.reader, self.view))
        unscaled = {x.call for plan in self.plans.values() for _, x in plan.unscale}
        for step in self.unit.steps:
            mine = [
                (function, nodes)
                for function, readers in methods
                if clips(function) and stepped_by(self.unit, function, step)
                if (nodes := [n for n in readers if self.reader.concerns(function.module, n, step)])
            ]
            if len(mine) != 1 or step.call in unscaled or step.call in self._plan(step.scope).plain:
                continue
            ((function, nodes),) = mine
            place = self.reader.deep(function.module, nodes[0]) if len(nodes) == 1 else nodes[0]
            plan = self._plan(function.scope)
            if all(x.name != step.name for _, x in plan.unscale):
                plan.unscale.append((place.stmt, step))
                found.append(place.stmt)
        given = [(function, nodes) for function, nodes in methods if function.cls is None and clips(function)]
        return [*found, *self._given(*given[0])] if len(given) == 1 else found

    def _given(self, function: Function, nodes: list[Node]) -> Iterator[ast.stmt]:
        """Unscale in a function that is given the optimizer and reads what its `master_params` are."""
        mine = [s for s in self.unit.sites if s.short == "master_params" and s.scope is function.scope]
        optimizers = {function.module.source(s.call.args[0]): s for s in mine if s.call is not None and s.call.args}
        if len(optimizers) != 1:
            return
        ((text, site),) = optimizers.items()
        place = self.reader.deep(function.module, nodes[0]) if len(nodes) == 1 else nodes[0]
        if text in function.scope.params and site.call is not None:
            step = Step(function.module, site.call, site.call.args[0], place.stmt)
            self._plan(function.scope).unscale.append((place.stmt, step))
            yield place.stmt

    # -- one update for several calls of a function that steps ----------------------------------------------------

    def lift_updates(self) -> None:
        """A function called for one optimizer after the other leaves the update to its caller: it follows the last call. So
        does one before whose call gradients are unscaled that is then called or not: the update follows that test."""
        for scope in list(self.plans):
            function = self.project.functions.get(scope.node)
            if function is not None and not self.unit.scaler_suffixes:
                self._lift_update(function)

    def _lift_update(self, function: Function) -> None:
        plan = self._plan(function.scope)
        if not plan.update_after or self._scales(function):
            return
        callers = self._calls_of(function, plan.update_after[-1][1], {function})
        if not self._left_to(callers):
            return
        plan.update_after.clear()
        plan.update_before.clear()
        for scope, calls in callers.items():
            levels = self._plan(scope).levels
            self._plan(scope).update_after += updates(self.view(scope), [(s, levels.get(s.call, n)) for s, n in calls])

    def _left_to(self, callers: Mapping[Scope, list[tuple[Step, Node]]]) -> bool:
        """Whether the callers of a function that steps have to update the scale."""
        beside = any(step.call in self._plan(scope).levels for scope, calls in callers.items() for step, _ in calls)
        return beside or any(map(self._in_turn, callers.values()))

    def _calls_of(self, function: Function, step: Step, seen: set[Function]) -> dict[Scope, list[tuple[Step, Node]]]:
        """The calls of a function that steps, by the scopes that make them; of a function that does no more than pass one
        optimizer on, its own calls. None at all where one cannot be followed."""
        found: dict[Scope, list[tuple[Step, Node]]] = {}
        for module, call in self.project.calls.get(function, []):
            scope = module.scope_of(call)
            there = self._seen_from(step, function, module, call)
            node = find(self.view(scope), module.statement(call))
            if there is None or node is None:
                return {}
            found.setdefault(scope, []).append((there, node))
        for scope, calls in list(found.items()):
            caller = self.project.functions.get(scope.node)
            if caller is None or caller in seen or self._scales(caller) or self._in_turn(calls) or len(calls) > 1:
                continue
            further = self._calls_of(caller, calls[0][0], seen | {caller})
            if self._left_to(further):
                del found[scope]
                for s, c in further.items():
                    found.setdefault(s, []).extend(c)
        return found

    def _in_turn(self, calls: list[tuple[Step, Node]]) -> bool:
        """Whether calls for different optimizers follow one another without a backward between them."""
        for step, node in calls:
            loop = next((link for link in chain(node) if over_optimizers(link, [step])), None)
            if loop is not None and not any(self.reader.backward(n) for n in loop.walk()):
                return True
        for (one, first), (two, second) in pairwise(calls):
            if one.name != two.name and first.parent is second.parent:
                between = first.parent.nodes[first.index + 1 : second.index]
                if not any(self.reader.backward(n) for n in between):
                    return True
        return False

    def _scales(self, function: Function) -> bool:
        """Whether a scaled backward runs in a function or in one that it calls: nothing outside comes between."""
        block = self.view(function.scope)
        return any(self.reader.scaled(n) for n in block.walk())

    def _seen_from(self, step: Step, function: Function, module: Module, call: ast.Call) -> Step | None:
        """The step as a caller of its function sees it; None where the caller has no name for the optimizer."""
        text, each = step.name, step.each
        root = dotted_root(text)
        loop = self._loop_over(step, root)
        if loop is not None and not each:
            source = self._outside(function, loop, module, call)
            if source is None:
                return None
            return Step(module, call, step.optimizer, module.statement(call), text, step, f"for {text} in {source}:")
        if each:
            return None
        given = self._outside(function, text, module, call)
        if given is None:
            return None
        value = dict(self.project.arguments(function, call)).get(text)
        home = module if value is not None else step.home or step.module
        return Step(module, call, value or step.optimizer, module.statement(call), given, step, home=home)

    def _loop_over(self, step: Step, root: str) -> str | None:
        """What a `for optimizer in optimizers:` around the step goes through."""
        for parent in step.module.ancestors(step.stmt):
            if parent in step.module.scopes:
                return None
            if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and parent.target.id == root:
                return step.module.source(parent.iter)
        return None

    def _outside(self, function: Function, text: str, module: Module, call: ast.Call) -> str | None:
        """An expression of a function's body, as it reads where the function is called."""
        if not PLACE.fullmatch(text):
            return None
        root = dotted_root(text)
        rest = text[len(root) :]
        scope = module.scope_of(call)
        if root == function.scope.self_name:
            holder = receiver(self.project, module, call)
            return f"{holder}{rest}" if holder is not None else None
        if root in function.scope.params:
            value = dict(self.project.arguments(function, call)).get(root)
            source = module.source(value) if value is not None else ""
            return f"{source}{rest}" if PLACE.fullmatch(source) else None
        owner = function.scope.lookup(root)
        if owner is function.scope:
            alias = _alias(function, root)
            return self._outside(function, f"{alias}{rest}", module, call) if alias is not None else None
        return text if owner is not None and scope.lookup(root) is owner else None

    # -- the functions called between the last step and this one -------------------------------------------------

    def _callees(self, step: Step, seen: set[Function]) -> None:
        """Unscale inside a function that runs the last backward before the step and then reads gradients."""
        node = find(self.view(step.scope), step.stmt)
        last = self._last_backward(node) if node is not None else None
        for inner in last.walk() if last is not None else ():
            for call in inner.calls:
                for function in self.project.resolved.get(call, []):
                    if function not in seen and self._scales(function) and self._reads_after(step, function, call):
                        self._drop(step)

    def _last_backward(self, node: Node) -> Node | None:
        for link in chain(node):
            found = [n for n in link.parent.nodes[: link.index] if self.reader.backward(n)]
            if found:
                return found[-1]
        return None

    def _drop(self, step: Step) -> None:
        """Gradients come unscaled out of the function that ran the backward."""
        plan = self._plan(step.scope)
        plan.unscale = [(s, x) for s, x in plan.unscale if x.call is not step.call]

    def _reads_after(self, step: Step, function: Function, call: ast.Call) -> bool:
        """Place the unscaling in a function for what it reads after its last backward."""
        block = self.view(function.scope)
        if not block.nodes:
            return False
        inside = self._seen_in(step, function, call)
        if inside is None:
            return False
        end = Node(block.nodes[-1].stmt, block, len(block.nodes))
        found = self.reader.between(function.module, end, inside)
        plan = self._plan(function.scope)
        if found:
            place = self.reader.deep(function.module, found[0]) if len(found) == 1 else found[0]
            if not any(s is place.stmt and x.name == inside.name for s, x in plan.unscale):
                plan.unscale.append((place.stmt, inside))
            return True
        last = self._last_backward(end)
        for inner in last.walk() if last is not None else ():
            for deeper in inner.calls:
                for other in self.project.resolved.get(deeper, []):
                    if other is not function and self._scales(other) and self._reads_after(inside, other, deeper):
                        return True
        return False

    def _seen_in(self, step: Step, function: Function, call: ast.Call) -> Step | None:
        """The step as a function called before it sees it: with the optimizer under the name it has there."""
        for loss in self.unit.losses:
            if self.project.function_of(loss.module, loss.call) is function and len(loss.optimizers) == 1:
                return Step(loss.module, loss.call, loss.optimizers[0], loss.with_stmt)
        text = self._inside(step, function, call)
        if text is None or step.each:
            return None
        scope_stmt = function.node.body[-1]
        return replace(
            step,
            module=function.module,
            call=call,
            stmt=scope_stmt,
            text=text,
            home=step.home or step.module,
            passed=True,
        )

    def _inside(self, step: Step, function: Function, call: ast.Call) -> str | None:
        names: Mapping[str, ast.expr] = dict(self.project.arguments(function, call))
        for parameter, value in names.items():
            if step.module.source(value) == step.name:
                return parameter
        holder = receiver(self.project, step.module, call)
        if function.scope.self_name and holder is not None and step.name.startswith(f"{holder}."):
            return f"{function.scope.self_name}{step.name[len(holder) :]}"
        root = dotted_root(step.name)
        owner = step.scope.lookup(root)
        return step.name if owner is not None and function.scope.lookup(root) is owner else None


def dotted_root(text: str) -> str:
    """`self` of `self.optimizers[0]`."""
    return re.split(r"[.\[]", text, maxsplit=1)[0]


def receiver(project: Project, module: Module, call: ast.Call) -> str | None:
    """The object whose method is called; `self` for `super()`; what is called itself, where it is an object of the program's."""
    func = call.func
    value = func.value if isinstance(func, ast.Attribute) else None
    if any(f.name == "__call__" for f in project.resolved.get(call, ())) and getattr(func, "attr", "") != "__call__":
        value = func
    if isinstance(value, ast.Call):
        return module.scope_of(call).self_name if dotted(value.func) == "super" else None
    source = module.source(value) if value is not None else ""
    return source if PLACE.fullmatch(source) else None


def _alias(function: Function, name: str) -> str | None:
    """`self.optimizer` for a local name that is bound once, to that."""
    value = given_once(function.scope, name)
    source = function.module.source(value) if value is not None else ""
    return source if PLACE.fullmatch(source) else None
