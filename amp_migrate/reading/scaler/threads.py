"""How a function is handed the GradScaler: a parameter next to the optimizer, and the calls that pass it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from amp_migrate.reading.program.definitions import ClassInfo, Function, is_none, unpacks
from amp_migrate.reading.program.lookup import Slot, is_super
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.signatures import alike, all_calls
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.scaler.homes import Homes
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, NeverOn, Unit
from amp_migrate.reading.values.absent import only_with, optional_optimizers
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.constants import NOTHING
from amp_migrate.reading.values.lacking import leaves_out
from amp_migrate.reading.values.sources import Sources


@dataclass
class Thread:
    """A parameter that hands the scaler to a function, and the calls that pass it."""

    function: Function
    name: str
    calls: list[tuple[Module, ast.Call]]
    default: str | None = None  # for a parameter that callers may leave out
    replaces: str | None = None  # the parameter that handed `amp` itself over: the scaler takes its place
    without: set[ast.Call] = field(default_factory=set)  # of the calls, those that pass None as the optimizer or amp
    group: tuple[Function, ...] = ()  # the functions that its calls may run, which take it too
    apart: list[tuple[Module, ast.Call]] = field(
        default_factory=list
    )  # calls that have no scaler to pass, of a test, an example or a notebook, or of runs that never set mixed precision
    # up: it may be left out, for a disabled one
    forwards: list[Function] = field(
        default_factory=list
    )  # nothing in sight calls these, and they hand on what they are given
    misfits: list[tuple[Module, ast.Call]] = field(
        default_factory=list
    )  # calls that Python refuses, for what they give

    @property
    def stands_in(self) -> bool:
        """Whether a disabled scaler stands in where calls give no `amp`."""
        return self.replaces is not None and bool(self.without)


class Threads(Homes):
    """The parameters that hand the scaler of one unit on; `_reach` says how a call that passes it has it."""

    def __init__(self, unit: Unit, name: str, optimizer: str = "") -> None:
        super().__init__(unit, name, optimizer)
        self.optional = False  # whether a function may also be called by code that knows nothing of mixed precision
        self.taken: dict[Function, str] = {}  # functions that take it already, for another unit, and under which name
        self.told: dict[Function, str] = {}  # functions with a parameter that says the same, and its name
        self.threads: dict[Function, Thread] = {}
        self.may_be_off = True  # whether what is handed has a form that does nothing
        self.demands = True  # whether a function that nothing calls may be made to ask for the scaler
        self.passed_by: Callable[[Module, ast.AST], bool] = lambda *_: False  # where no run comes that sets anything up
        self.entered: Callable[[Function], bool] = lambda _: False  # by code out of sight, which may hand it over
        self._busy: set[Function] = set()
        self._asked: Function | None = None

    def _reach(self, module: Module, scope: Scope, node: ast.AST) -> str:
        raise NotImplementedError

    def stays_open(self, thread: Thread) -> bool:
        """Whether code out of sight may go on calling a function that is handed the scaler, without one."""
        return False

    def take_over(self, function: Function) -> None:
        """Hand a function the scaler that is handed `amp`, whatever it does with it.

        Raises Blocked where a call has none.
        """
        self._asked = function
        self._thread(function, function.node)

    def _thread(self, function: Function, node: ast.AST) -> str:
        if function in self._busy and self.optional:
            raise NeverOn(function.module, node, "AMP213", "GradScaler", f"{function.name} is only called in a circle")
        beside = self._beside_optional(function, node)
        if function in self.threads and (beside or self.threads[function].default != "None"):
            if function not in self._busy:
                self._read_without(function, node)
            return self.threads[function].name
        if (name := self.told.get(function) or self.taken.get(function)) is not None:
            return name
        if function in self._busy:
            return self.base_name
        calls = all_calls(self.project, function)
        if self.optional:
            return self._thread_optional(function, calls)
        if not calls and not (self.demands and _may_take_another(function)):
            raise self._needed(function, node, self._never_called(function))
        if self.project.once(Sources).is_value(function):
            why = "but is also passed around as a value, so its callers are not known; give it a parameter for the scaler, "
            raise self._needed(function, node, f"{why}and hand that over wherever the value is called")
        self._busy.add(function)
        if function in self.threads:
            raise self._sometimes(function, node)
        if beside is not None:
            return self._thread_beside(function, self.base_name, calls, beside)
        group = tuple(alike(self.project, function))
        for other in group:
            if other in self.threads or (other is not function and self.project.once(Sources).is_value(other)):
                raise self._sometimes(other, node)
            found = Thread(other, self.base_name, all_calls(self.project, other), group=group)
            found.replaces = self.amp_parameter(other)
            found.misfits = [(m, c) for m, c in found.calls if self._misfits(other, m, c)]
            self.threads[other] = found
        if any(self.threads[other].calls != self.threads[other].misfits for other in group):
            for thread in (self.threads[other] for other in group):
                thread.calls = [c for c in thread.calls if c not in thread.misfits]
        failures: list[Blocked] = []
        for thread in [self.threads[other] for other in group]:
            for module, call in list(thread.calls):
                if (forwarding := self._only_forwards(module, call)) is not None:
                    thread.calls.remove((module, call))
                    thread.forwards.append(forwarding)
                    continue
                without = self._passes_none(thread.function, call) and not self._made_above(module, call)
                if without or self._leaves_amp_out(thread, module, call):
                    thread.without.add(call)
                elif (failure := self._stands_apart(thread, module, call)) is not None:
                    thread.calls.remove((module, call))
                    thread.apart.append((module, call))
                    failures.append(failure)
        if failures and not any(self.threads[other].calls for other in group):
            raise failures[0]  # nothing hands it over
        if calls and self.demands and not any(self.threads[other].calls for other in group):
            raise self._needed(function, node, self._never_called(function))  # those that hand all on are never called
        self._read_without(function, node)
        self._busy.discard(function)
        return self.base_name

    def _misfits(self, function: Function, module: Module, call: ast.Call) -> bool:
        """Whether a call gives a function too little or too much, which raises, with a scaler as without."""
        as_written = not function.node.decorator_list and not self.project.partial_of(module, call)
        return as_written and call in self.project.resolved and not function.takes(call)

    def _only_forwards(self, module: Module, call: ast.Call) -> Function | None:
        """The function around a call that nothing in sight calls, where the call is given all that the function is, by its own
        `*args` and `**kwargs`: whoever calls that hands the scaler over with the rest."""
        around = self.project.function_of(module, call)
        if around is None or all_calls(self.project, around) or self.project.once(Sources).is_value(around):
            return None
        made = around.cls.descendants() if around.cls is not None and around.name == "__init__" else ()
        if self._may_call(around) or any(self.project.once(Sources).is_value(c) for c in made):
            return None
        names = [a.arg if a is not None else "" for a in (around.node.args.vararg, around.node.args.kwarg)]
        starred = [a.value for a in call.args if isinstance(a, ast.Starred)]
        handed = [*starred[:1], *(k.value for k in call.keywords if k.arg is None)]
        return around if names[1] and [ast.unparse(h) for h in handed] == [n for n in names if n] else None

    def _needed(self, function: Function, node: ast.AST, why: str) -> Blocked:
        return Blocked(function.module, node, "AMP213", "GradScaler", f"{function.name} needs the scaler, {why}")

    def _never_called(self, function: Function) -> str:
        """What there is to say of a function whose calls are not seen."""
        if where := self._may_call(function):
            return f"and whether {where} calls it is not seen; hand the scaler over yourself"
        return (
            "but nothing in sight calls it with one; rewrite it together with the files that do, or hand the scaler over "
            "yourself"
        )

    def _may_call(self, function: Function) -> str:
        """Where a method of the name of one is called of what is unknown."""
        for module in self.project.modules if function.cls is not None else ():
            for call, named in module.method_calls.get(function.name, ()):
                if is_super(named.value):
                    continue  # what is above runs, and that is seen
                if not self.project.resolved.get(call) and len(call.args) <= len(function.positional):
                    return f"{module.source(named)} ({module.display}:{call.lineno})"
        return ""

    def _read_without(self, function: Function, node: ast.AST) -> None:
        """Hand a function its scaler also in calls that pass None as the optimizer, where it is asked whether it is enabled
        with or without one. Raises Blocked where such a call has none: a variable that holds the switch will do there."""
        thread = self.threads[function]
        if self.demands or thread.replaces is not None:
            return
        for module, call in thread.calls:
            if call not in thread.without:
                continue
            given = self.project.arguments(function, call)
            names = [n for n, v in given if is_none(v) and Slot(function.scope, n) in self.unit.optimizer_slots]
            if not any(only_with(self.project, function, node, name) for name in names):
                self._reach(module, module.scope_of(call), call)
                thread.without.discard(call)

    def _stands_apart(self, thread: Thread, module: Module, call: ast.Call) -> Blocked | None:
        """Why a call of a test, an example or a notebook, or of runs without mixed precision, has no scaler to pass: that is no
        reason to leave the program.

        Raises Blocked where another call of the program itself has none.
        """
        saved, busy = self.snapshot(), set(self._busy)
        try:
            if self._comes_before(module, call):
                raise Blocked(module, call, "AMP213", "GradScaler", "mixed precision is only set up below")
            self._reach(module, module.scope_of(call), call)
        except Blocked as failure:
            if thread.replaces is not None or not (self.passed_by(module, call) or self._may_do_without(module)):
                raise
            self.restore(saved)
            self._busy = busy
            return failure
        return None

    def _run_before(self, function: Function) -> bool:
        """Whether a script runs a function above what creates its scaler, without mixed precision: `train(model)` for a float32
        baseline, and `train(model)` again once Apex is set up."""

        def above(called: Function) -> list[Function]:
            outer = (self.project.function_of(m, c) for m, c in self.project.calls.get(called, ()))
            return [f for f in outer if f is not None]

        calls = (c for f in reached([function], above) for c in self.project.calls.get(f, ()))
        return any(module.scope_of(call).is_module and self._comes_before(module, call) for module, call in calls)

    def _comes_before(self, module: Module, call: ast.Call) -> bool:
        """Whether a call stands above what creates the scaler that its scope has, in a run that has set nothing up by then."""
        scope = module.scope_of(call)
        homes = [h for h in self.homes if h.kind == "local" and not h.carrier and h.scope is scope]
        below = bool(homes) and all(call.lineno < h.anchor.lineno for h in homes)
        return below and self.passed_by(module, call)

    def _may_do_without(self, module: Module) -> bool:
        """Whether a file is a test, an example or a notebook that sets nothing up, and what it leaves out has a form that does
        nothing; a setting that goes along with it has none."""
        own = any(i.module is module for i in self.unit.inits)
        carried = any(isinstance(static_scale(i), ast.expr) for i in self.unit.inits)
        return self.may_be_off and not own and not carried and role(module) not in ("product", "vendored")

    def snapshot(self) -> tuple[object, ...]:
        raise NotImplementedError

    def restore(self, saved: tuple[object, ...]) -> None:
        raise NotImplementedError

    def _passes_none(self, function: Function, call: ast.Call) -> bool:
        """Whether a call passes a written None as the optimizer: there is nothing to scale for, so no scaler either."""
        return any(
            is_none(value) and Slot(function.scope, name) in self.unit.optimizer_slots
            for name, value in self.project.arguments(function, call)
        )

    def _made_above(self, module: Module, call: ast.Call) -> bool:
        """Whether the scaler is there where a call stands, whatever else the call passes."""
        scope = module.scope_of(call)
        for home in self.homes:
            if home.kind != "local" or home.idle or home.carrier or home.scope not in list(scope.chain()):
                continue
            block = module.block(home.anchor)
            if scope is not home.scope or module.inside_of(call, block[block.index(home.anchor) + 1 :]):
                return True
        return False

    def _leaves_amp_out(self, thread: Thread, module: Module, call: ast.Call) -> bool:
        """Whether a call gives None for the parameter that handed `amp` over, or leaves it to that default."""
        if thread.replaces is None:
            return False
        function, name = thread.function, thread.replaces
        if self.project.once(Values).given(function, module, call, name) == NOTHING:
            return True
        return is_none(function.defaults.get(name)) and leaves_out(self.project, function, module, call, name)

    def _beside_optional(self, function: Function, node: ast.AST) -> str | None:
        """The optimizer that a function may be called without, where a node is only reached with one. What is handed `amp`
        itself takes the scaler in its place."""
        if self.amp_parameter(function) is not None:
            return None
        names = optional_optimizers(self.project, function, self.unit.optimizer_slots)
        return next((name for name in names if only_with(self.project, function, node, name)), None)

    def _thread_beside(
        self, function: Function, name: str, calls: list[tuple[Module, ast.Call]], optimizer: str
    ) -> str:
        """A parameter that may be left out like the optimizer beside it, and the calls that pass an optimizer."""
        thread = Thread(function, name, [], default="None")
        self._with_default(thread)
        for module, call in calls:
            value = dict(self.project.arguments(function, call)).get(optimizer)
            if value is not None and not is_none(value):
                thread.calls.append((module, call))
                self._reach(module, module.scope_of(call), value)
        self._busy.discard(function)
        return name

    def _sometimes(self, function: Function, node: ast.AST) -> Blocked:
        return Blocked(
            function.module,
            node,
            "AMP213",
            "GradScaler",
            f"{function.name} needs the scaler here too, where it may have been called without one",
        )

    def _thread_optional(self, function: Function, calls: list[tuple[Module, ast.Call]]) -> str:
        """A parameter with a default: callers that never initialize mixed precision need not know of it.

        Raises NeverOn where none of them does, Blocked where they are out of sight.
        """
        if self.project.once(Sources).is_value(function) or (
            function.cls is not None and not calls and self._extends_framework(function.cls)
        ):
            raise Blocked(
                function.module, function.node, "AMP213", "GradScaler", f"what calls {function.name} is out of sight"
            )
        if function.parameter(self.base_name) is not None:
            message = f"{function.name} has a parameter {self.base_name} of its own"
            raise Blocked(function.module, function.node, "AMP213", "GradScaler", message)
        if not calls and function.module not in self.unit.modules:
            raise NeverOn(function.module, function.node, "AMP213", "GradScaler", f"nothing calls {function.name}")
        self._busy.add(function)
        thread = Thread(function, self.base_name, [], default="False")
        added = self._with_default(thread)
        recursive = [(m, c) for m, c in calls if self.project.function_of(m, c) is function]
        handed: dict[ast.Call, str] = {}
        for module, call in calls:
            if (module, call) in recursive:
                continue
            try:
                handed[call] = self._reach(module, module.scope_of(call), call)
            except Blocked:
                continue
            thread.calls.append((module, call))
        thread.calls += recursive if thread.calls else []
        self._busy.discard(function)
        if not thread.calls and (calls or function is not self._asked) and not self.entered(function):
            for other in added:
                del self.threads[other]
            raise NeverOn(
                function.module, function.node, "AMP213", "GradScaler", f"nothing that calls {function.name} can tell"
            )
        if added == [function] and (own := self._told_by(function, calls, handed)) is not None:
            del self.threads[function]
            self.told[function] = own
            return own
        return self.base_name

    def _told_by(
        self, function: Function, calls: list[tuple[Module, ast.Call]], handed: dict[ast.Call, str]
    ) -> str | None:
        """The parameter of a function that every call gives what it would be handed, and leaves off where that is nothing:
        `train(model, optimizer, use_amp=args.fp16)`."""
        if any(unpacks(call) for _, call in calls):
            return None
        given = [(dict(self.project.arguments(function, call)), handed.get(call)) for _, call in calls]
        for parameter in function.parameters:
            name = parameter.arg
            off = function.defaults.get(name)
            plain = function.scope.bindings.get(name, [parameter]) == [parameter]
            if handed and plain and all(_says(values.get(name, off), text) for values, text in given):
                return name
        return None

    def _with_default(self, thread: Thread) -> list[Function]:
        """Note a parameter that may be left out, also for the functions that its calls may run instead; all that were
        added."""
        added = [f for f in alike(self.project, thread.function) if f not in self.threads]
        for other in added:
            self.threads[other] = Thread(other, thread.name, [], default=thread.default)
        self.threads[thread.function] = thread
        return added

    def amp_parameter(self, function: Function) -> str | None:
        """The parameter through which callers pass `apex.amp` itself, or the handle of `amp.init`."""
        for name in filter(function.parameter, function.scope.params):
            slot = Slot(function.scope, name)
            if slot in self.unit.handle_slots or self.project.passed_modules.get(slot) == "apex.amp":
                return name
        return None

    def _extends_framework(self, cls: ClassInfo) -> bool:
        """Whether a class has a base out of sight."""
        return any(len(c.base_names) > len(c.bases) and set(c.base_names) != {"object"} for c in cls.ancestry())


def _says(value: ast.expr | None, handed: str | None) -> bool:
    """Whether an argument is written as what would be handed over; False where that is nothing."""
    return value is not None and ast.unparse(value) == ("False" if handed is None else ast.unparse(ast.parse(handed)))


def _may_take_another(function: Function) -> bool:
    """Whether a function that nothing in sight calls may ask for one more argument: a plain one, whose signature is its
    own. That of a method may be fixed by a base class, that of a decorated function by what registers it."""
    return function.cls is None and not function.node.decorator_list and bool(function.positional)
