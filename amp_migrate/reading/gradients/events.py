"""What happens at one expression of a path: a backward, a read, an unscale, a step; and what may be wrong with it there."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.correlated import Facts, atoms, truth
from amp_migrate.reading.gradients.lists import WHOLE, of_type, whole, written_out
from amp_migrate.reading.gradients.matters import Matters
from amp_migrate.reading.gradients.one_object import OF, OneObject
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.states import (
    AGAIN,
    CLEAN,
    DONE,
    EMPTIED,
    OUTDATED,
    PLAIN,
    SCALED,
    STEPPED,
    UNSCALED,
    WAITING,
    State,
    join,
    outdated,
    plain,
    scaled,
    some,
    start,
    updated,
    zeroed,
)
from amp_migrate.reading.gradients.walked import counted, evaluated, managed
from amp_migrate.reading.gradients.zeroed import zeroed_by
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import Function, dotted, elements, unpacks
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import methods_called, walk
from amp_migrate.reading.program.view import Block, Node, chain
from amp_migrate.reading.units.held import fields_of_one
from amp_migrate.reading.units.places import Keys, Names, taken_apart
from amp_migrate.reading.units.unit import Loss, Step, Unit
from amp_migrate.reading.values.closures import may_run_its_own


@dataclass(frozen=True)
class Fault:
    """A statement at which gradients may be in the wrong state, and how."""

    module: Module
    node: ast.AST
    kind: str  # "read", "unscaled twice", "added to", "updated between", "stepped twice", "stepped again" or "divided"
    unscaled: tuple[tuple[Module, ast.AST], ...] = field(default=(), compare=False)  # what is added to: before these


@dataclass
class Placements:
    """What the migration puts where: the walk carries it out."""

    unscale: dict[ast.stmt, list[Step]] = field(default_factory=dict)  # before a statement
    moved: dict[ast.stmt, list[ast.stmt]] = field(default_factory=dict)  # before a statement: these, from elsewhere
    update: set[ast.stmt] = field(default_factory=set)  # before a statement that leaves without a step
    updated: set[ast.stmt] = field(default_factory=set)  # after a statement
    plain: set[ast.Call] = field(default_factory=set)  # steps that do not go through the scaler


class Events:
    """Carries the states of a unit's gradients through expressions. How statements follow each other is `paths`."""

    def __init__(
        self, unit: Unit, reader: GradientReader, view: Callable[[Scope], Block], placements: Placements
    ) -> None:
        self.unit = unit
        self.project = unit.project
        self.reader = reader
        self.view = view
        self.placements = placements
        self.faults: dict[Fault, None] = {}
        self._updates: dict[Fault, None] = {}  # after which gradients carry a scale of before: faults if they are used
        self._vague = False  # whether a step was met that may be of any of several optimizers
        self._unscaled: dict[ast.stmt, tuple[Module, Keys]] = {}  # the places of `unscale_` that were met, and of whom
        self.idle: dict[
            ast.Call, bool
        ] = {}  # steps that a path reaches without a backward: whether the gradients are gone
        self.emptied: set[ast.Call] = set()  # those of them that another step comes before, on the same way
        self.optimizers = unit.optimizers
        self.objects = OneObject(unit)
        self._steps = {s.call: s for s in unit.steps}
        self._losses = {x.call: x for x in unit.losses}
        self._bodies = {s: x for x in unit.losses if x.item for s in walk(x.with_stmt) if s is not x.with_stmt}
        self._moving = {s for stmts in placements.moved.values() for s in stmts}
        self._memo: dict[tuple[object, ...], State] = {}
        self._parts: dict[ast.stmt, list[ast.AST]] = {}
        self._stack: list[Function] = []
        self._facts: dict[str, bool] = {}  # what tests of the function being walked have told
        self._turns: list[Node] = []  # the loops being walked, but for those over optimizers
        self._relevant: dict[Function, None] = {}
        self._matters = Matters(reader, (), (), ())
        self._decides: dict[Node, list[ast.expr]] = {}

    def _function(self, function: Function, state: State, names: Names, told: Facts | None = None) -> State | None:
        """The state after a call; None for one that runs already."""
        raise NotImplementedError

    # -- expressions ---------------------------------------------------------------------------------------------

    def _expressions(self, module: Module, node: Node, state: State, names: Names) -> State:
        if node.stmt not in self._parts:
            self._parts[node.stmt] = [p for p in evaluated(node) if isinstance(p, (ast.Attribute, ast.Call))]
        for part in self._parts[node.stmt]:
            state = self._expression(module, node, part, state, names)
        return state

    def _expression(self, module: Module, node: Node, part: ast.AST, state: State, names: Names) -> State:
        if part in self.reader.divided:
            self._divided(module, part, state, self._concerned(module, node, names))
            return state
        if isinstance(part, ast.Attribute):
            if self.reader.reads_here(module, part) and not self._silent(node):
                self._read(module, part, state, self._concerned(module, node, names))
            return state
        if not isinstance(part, ast.Call):
            return state
        if part in self._losses:
            return self._scaled(module, part, state, self._losses[part], names)
        if part in self._steps:
            if part in self.placements.plain:
                return state
            keys = self.optimizers.keys(module, self._steps[part].optimizer, names)
            self._step(module, self._steps[part], state, keys, names)
            return some(state, keys, lambda s: frozenset((STEPPED,)))
        name = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        functions = self.project.resolved.get(part, [])
        functions = [f for f in functions if not f.is_abstract] or functions  # of which none runs where others are
        if name == "zero_grad" and isinstance(part.func, ast.Attribute) and not functions:
            keys, sure = zeroed_by(self.unit, module, part.func.value, names)
            kept = any(k.arg == "set_to_none" and ast.unparse(k.value) == "False" for k in part.keywords)
            return zeroed(state, keys, PLAIN if kept else CLEAN, sure=sure)
        if (
            name == "step" and part.args and not functions
        ):  # `scaler.step(optimizer)`: another back end ran, not this one
            keys = self.optimizers.stands_for(module, part.args[0], names)
            return some(state, keys, lambda s: frozenset((DONE,)))
        if name == "backward" and not functions:
            if managed(node, part):
                return state
            mixed = len(state) == 1 and bool(state[0] & {SCALED, UNSCALED})
            return self._backward(module, part, state, frozenset((0,))) if mixed else plain(state)
        if functions:
            return self._call(module, node, part, functions, state, names)
        if self.reader.reads_here(module, part) and not self._silent(node):
            self._read(module, part, state, self._concerned(module, node, names))
        return state

    def _silent(self, node: Node) -> bool:
        """Whether a statement, or one around it, only sums gradients over processes."""
        return any(self.reader.sums(n) for n in chain(node))

    def _call(
        self,
        module: Module,
        node: Node,
        call: ast.Call,
        functions: list[Function],
        state: State,
        names: Names,
    ) -> State:
        states: list[State | None] = []
        copies = self._copies(functions)
        for function in functions:
            if function not in self._relevant:
                if "backward" in methods_called(function.node.body):
                    states.append(plain(state))
                continue
            before = start(len(state), CLEAN) if function in copies else state
            given: dict[str, Keys] = {}
            for parameter, value in self.project.arguments(function, call):
                keys = self.optimizers.stands_for(module, value, names)
                if not keys and Slot(function.scope, parameter) in self.unit.optimizer_slots:
                    keys = self.optimizers.of(module, (), names)
                if keys:
                    given[parameter] = keys
                if keys and (all_of_it := whole(self.unit, module, value, names)):
                    given |= {parameter: all_of_it, WHOLE + parameter: all_of_it}
            given |= self._fields(module, function, call, names)
            told = self._constants(module, function, call)
            several = [
                p for p in given if p.startswith((WHOLE, OF)) or WHOLE + p in given or self._several(function, p)
            ]
            each = _each_alone({p: k for p, k in given.items() if p not in several})
            runs = [run for one in each for run in self.objects.runs(function, {**given, **one})]
            states += [self._function(function, before, run, told) for run in runs]
        named = self.reader.reads_here(module, call) and not any(self.reader.function_reads(f, 3) for f in functions)
        if named and not self._silent(node):
            self._read(module, call, state, self._concerned(module, node, names))
        if len(functions) > len(states):
            states.append(state)
        return join(states) or state

    def _fields(self, module: Module, function: Function, call: ast.Call, names: Names) -> dict[str, Keys]:
        """The optimizers in fields of the one object whose method is called, as the method writes them."""
        own = function.scope.self_name
        if len(self.optimizers) < 2 or own is None or function.name == "__init__":
            return {}
        method = isinstance(call.func, ast.Attribute) and call.func.attr == function.name
        receiver = call.func.value if method and isinstance(call.func, ast.Attribute) else call.func
        if isinstance(receiver, ast.Name) and receiver.id == module.scope_of(call).self_name:
            own_names = ((mark, f"{mark}{receiver.id}.") for mark in ("", OF))
            return {
                f"{mark}{own}.{n[len(start) :]}": k
                for mark, start in own_names
                for n, k in names.items()
                if n.startswith(start)
            }
        fields = fields_of_one(self.project, module, receiver)
        found = ((f"{own}.{field}", self.optimizers.stands_for(module, value, names)) for field, value in fields)
        return {name: keys for name, keys in found if keys}

    def _copies(self, functions: list[Function]) -> list[Function]:
        """Of what one call may run, as the object is: methods with a plain backward beside one that scales. Which one runs
        never changes, as it does not between branches."""
        scaling = [f for f in functions if any(self.reader.scaled(n) for n in self.view(f.scope).walk())]
        if not scaling or any(f.cls is None for f in functions):
            return []
        return [
            f for f in functions if f not in scaling and any(self.reader.backward(n) for n in self.view(f.scope).walk())
        ]

    def _several(self, function: Function, parameter: str) -> bool:
        """Whether a function takes what it is given apart: a list of optimizers, of which it steps each."""
        loads = function.module.loads.get(parameter, ())
        return any(
            taken_apart(function.module, n) for n in loads if function.scope in function.module.scope_of(n).chain()
        )

    def _constants(self, module: Module, function: Function, call: ast.Call) -> dict[str, bool]:
        """What the constants that a call passes, or leaves at their defaults, the conditions that it passes of which the
        answer is known, and lists of optimizers say of the tests of a function. Only what is written there: this is asked of
        every call on every path."""
        known: dict[str, bool] = {}
        lists: dict[str, ast.List | ast.Tuple] = {}
        for name, value in self._set_once(function, call).items():
            if isinstance(value, ast.Constant):
                known |= {name: bool(value.value), f"{name} is None": value.value is None}
            elif self._facts and (holds := truth(value, self._facts)) is not None:
                known[name] = holds
            elif len(self.optimizers) > 1 and (listed := written_out(self.unit, module, value)) is not None:
                lists[name] = listed
        if not known and not lists:
            return {}
        asked = {text for test in self._tests(function) for text, _ in atoms(test)}
        for name, listed in lists.items():
            known |= of_type(name, listed, asked)
        return {text: holds for text, holds in known.items() if text in asked}

    def _set_once(self, function: Function, call: ast.Call) -> dict[str, ast.expr]:
        """The parameters that a function does not set anew, with what a call gives them."""
        if unpacks(call):
            return {}
        given = {**function.defaults, **dict(self.project.arguments(function, call))}
        return {name: value for name, value in given.items() if len(function.scope.bindings.get(name, ())) == 1}

    def _tests(self, function: Function) -> list[ast.expr]:
        return [n.stmt.test for n in self.view(function.scope).walk() if isinstance(n.stmt, ast.If)]

    def _deciding(self, module: Module, node: Node) -> list[ast.expr]:
        """The conditions of a statement that decide what becomes of gradients: an `if` asks one itself, or one is handed to
        a function that asks for it."""
        if node not in self._decides:
            found = self._decides[node] = []
            if isinstance(node.stmt, ast.If) and self._matters.to_gradients(module, node):
                found.append(node.stmt.test)
            for call in node.calls:
                for function in self._relevant.keys() & set(self.project.resolved.get(call, ())):
                    own = [n for n in self.view(function.scope).walk() if isinstance(n.stmt, ast.If)]
                    tests = [test for n in own for test in self._deciding(function.module, n)]
                    asked = {text for test in tests for text, _ in atoms(test)}
                    given = self._set_once(function, call) if asked else {}
                    found += [v for name, v in given.items() if name in asked and not isinstance(v, ast.Constant)]
        return self._decides[node]

    def _concerned(self, module: Module, node: Node, names: Names) -> Keys:
        """The optimizers whose gradients a statement reads, as far as it names them."""
        named = [
            s.call.args[0]
            for s in self.unit.sites
            if s.module is module and s.short == "master_params" and s.call is not None and s.call.args
            if any(s.call is n for n in node.all())
        ]
        if not named and len(self.optimizers) > 1:
            return self.optimizers.given_to(module, node.all_calls, names) or self.optimizers.of(module, (), names)
        return self.optimizers.of(module, named, names)

    # -- events --------------------------------------------------------------------------------------------------

    def _scaled(self, module: Module, node: ast.AST, state: State, loss: Loss, names: Names) -> State:
        """A scaled backward, into the gradients of each of its optimizers; a plain one where the call at hand has it so."""
        if self._facts and self._left_out(loss):
            return plain(state)
        each = [self.optimizers.keys(module, e, names) for o in loss.optimizers for e in elements(o)]
        for keys in each or [self.optimizers.of(module, (), names)]:
            keys -= self.reader.untrained.numbers
            state = self._backward(module, node, state, keys) if keys else state
        return state

    def _left_out(self, loss: Loss) -> bool:
        """Whether a test around the with statement of a loss is known to fail: `fine_tune(amp=None)`."""
        around = branches_around(loss.module, loss.with_stmt, loss.module.scopes)
        return any(truth(branch.test.test, self._facts) is (not branch.holds) for branch in around)

    def _backward(self, module: Module, node: ast.AST, state: State, keys: Keys) -> State:
        self._used(state, keys)
        if len(keys) == 1 and any(UNSCALED in state[k] for k in keys):
            places = tuple((home, stmt) for stmt, (home, of) in self._unscaled.items() if of & keys)
            self.faults.setdefault(Fault(module, node, "added to", places))
        return scaled(state, keys)

    def _step(self, module: Module, step: Step, state: State, keys: Keys, names: Names) -> None:
        """A step through the scaler: of gradients, and of the same gradients once."""
        self._used(state, keys)
        others = names.get(f"{OF}{dotted(step.optimizer)}", frozenset()) - keys
        if any(state[k] - {SCALED, UNSCALED} for k in keys) and any(state[k] & {SCALED, UNSCALED} for k in others):
            self._vague = True  # the object may be the one whose gradients these are
        one_of_many = any(isinstance(n, ast.Subscript) for n in walk(step.optimizer))
        self._vague |= len(keys) > 1
        if len(keys) != 1 or one_of_many or not keys <= self.optimizers.single:
            return
        (gradients,) = (state[k] for k in keys)
        if gradients & WAITING:
            self.faults.setdefault(Fault(module, step.call, "stepped twice"))
        elif AGAIN in gradients or gradients == {DONE}:
            self.faults.setdefault(Fault(module, step.call, "stepped again"))
        elif gradients & {CLEAN, DONE, EMPTIED} and self._scales_beside(module) and not self._ready(step):
            self.idle[step.call] = self.idle.get(step.call, True) and DONE not in gradients
            self.emptied |= {step.call} if EMPTIED in gradients else set()

    def _ready(self, step: Step) -> bool:
        """Whether a step has its backward where none is seen to come before it."""
        return counted(self.unit, step) or may_run_its_own(step.module, step.call)

    def _scales_beside(self, module: Module) -> bool:
        """Whether the loop being walked runs a scaled backward, on other paths."""
        if self._turns:
            return any(self.reader.scaled(n) for n in self._turns[-1].walk())
        scope = self._stack[-1].scope if self._stack else module.root
        return any(self.reader.scaled(n) for n in self.view(scope).walk())

    def _used(self, state: State, keys: Keys) -> None:
        """Something adds to gradients, reads or steps them: they must not carry the scale of before an update."""
        if any(OUTDATED in state[k] for k in keys):
            self.faults.update(dict.fromkeys(self._updates))

    def _read(self, module: Module, node: ast.AST, state: State, keys: Keys) -> None:
        self._used(state, keys)
        if any(SCALED in state[k] for k in keys):
            self.faults.setdefault(Fault(module, node, "read"))

    def _divided(self, module: Module, node: ast.AST, state: State, keys: Keys) -> None:
        """What is read divided by the scale carries it, on every path."""
        if any(state[k] != {SCALED} for k in keys):
            self.faults.setdefault(Fault(module, node, "divided"))

    def _unscale(self, module: Module, stmt: ast.stmt, step: Step, state: State, names: Names) -> State:
        home = step.home or step.module
        here = home.scope_of(step.optimizer) is module.scope_of(stmt)
        keys = self.optimizers.keys(home, step.optimizer, names if here else {})
        self._used(state, keys)
        self._unscaled[stmt] = module, keys | self._unscaled.get(stmt, (module, keys))[1]
        if len(keys) == 1 and any(UNSCALED in state[k] or state[k] <= WAITING for k in keys):
            self.faults.setdefault(Fault(module, stmt, "unscaled twice"))
        root = step.root
        if root.call in self._steps and all(state[k] & {CLEAN, DONE, EMPTIED} and not state[k] & WAITING for k in keys):
            self._step(module, self._steps[root.call], state, keys, names)
        return some(state, keys, lambda s: frozenset((UNSCALED,)), sure=True)

    def _update(self, module: Module, stmt: ast.stmt, state: State) -> State:
        if self.unit.scaler_suffixes:
            return updated(state)
        if any(SCALED in s or s == {UNSCALED} for s in state):
            left = self.faults if self._vague else self._updates  # it may be those that were to be stepped
            left.setdefault(Fault(module, stmt, "updated between"))
        return outdated(state)


def _each_alone(given: dict[str, Keys]) -> list[dict[str, Keys]]:
    """What a call passes, once for each optimizer that the one in question may be: a function zeroes, scales and steps
    the same one, whichever it is."""
    vague = [name for name, keys in given.items() if len(keys) > 1]
    if len(vague) != 1:
        return [given]
    return [{**given, vague[0]: frozenset((key,))} for key in sorted(given[vague[0]])]
