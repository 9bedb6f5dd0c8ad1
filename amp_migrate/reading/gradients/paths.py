"""Every path from a scaled backward to the step, through whichever functions: are gradients unscaled when they are read?

The proof of what `place` placed: each step follows a backward, once, and the update follows it. The
walk carries what the gradients of each optimizer may be (`states`) through branches, loops and calls, so it errs
towards refusing; a condition that is asked twice goes the same way twice (`correlated`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.correlated import Facts, asked_again, atoms, last_turn, truth
from amp_migrate.reading.gradients.entry_readers import entry_readers
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.states import (
    AGAIN,
    CLEAN,
    DONE,
    PLAIN,
    SCALED,
    STEPPED,
    UNKNOWN,
    UNSCALED,
    WAITING,
    State,
    join,
    others,
    plain,
    scaled,
    some,
    start,
    turned,
    updated,
    zeroed,
)
from amp_migrate.reading.gradients.updates import over_optimizers
from amp_migrate.reading.gradients.walked import counted, evaluated, known, leaves, managed
from amp_migrate.reading.program.definitions import Function, elements
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.program.view import Block, Node, chain
from amp_migrate.reading.units.places import Keys, Names, taken_apart
from amp_migrate.reading.units.unit import Loss, Step, Unit


@dataclass(frozen=True)
class Fault:
    """A statement at which gradients may be in the wrong state, and how."""

    module: Module
    node: ast.AST
    kind: str  # "read", "unscaled twice", "added to", "updated between", "stepped twice" or "stepped again"


@dataclass
class Placements:
    """What the migration puts where: the walk carries it out."""

    unscale: dict[ast.stmt, list[Step]] = field(default_factory=dict)  # before a statement
    moved: dict[ast.stmt, list[ast.stmt]] = field(default_factory=dict)  # before a statement: these, from elsewhere
    update: set[ast.stmt] = field(default_factory=set)  # before a statement that leaves without a step
    updated: set[ast.stmt] = field(default_factory=set)  # after a statement
    plain: set[ast.Call] = field(default_factory=set)  # steps that do not go through the scaler


@dataclass
class Exits:
    """The states in which a block may be left, by the way it is left."""

    normal: State | None
    loop: list[State] = field(default_factory=list)  # break
    next: list[State] = field(default_factory=list)  # continue
    function: list[State] = field(default_factory=list)  # return

    def copy(self) -> Exits:
        return Exits(self.normal, list(self.loop), list(self.next), list(self.function))

    def take(self, other: Exits) -> None:
        self.loop += other.loop
        self.next += other.next
        self.function += other.function


class GradientPaths:
    """Walks a unit's program from every function that nothing in sight calls."""

    def __init__(
        self, unit: Unit, reader: GradientReader, view: Callable[[Scope], Block], placements: Placements
    ) -> None:
        self.unit = unit
        self.project = unit.project
        self.reader = reader
        self.view = view
        self.placements = placements
        self.faults: dict[Fault, None] = {}
        self.idle: dict[
            ast.Call, bool
        ] = {}  # steps that a path reaches without a backward: whether the gradients are gone
        self.optimizers = unit.optimizers
        self._steps = {s.call: s for s in unit.steps}
        self._losses = {x.call: x for x in unit.losses}
        self._bodies = {s: x for x in unit.losses if x.item for s in ast.walk(x.with_stmt) if s is not x.with_stmt}
        self._moving = {s for stmts in placements.moved.values() for s in stmts}
        self._memo: dict[tuple[object, ...], State] = {}
        self._walked: dict[tuple[Block, State, frozenset[tuple[str, Keys]], frozenset[tuple[str, bool]]], Exits] = {}
        self._parts: dict[ast.stmt, list[ast.AST]] = {}
        self._stack: list[Function] = []
        self._facts: dict[str, bool] = {}  # what tests of the function being walked have told
        self._turns: list[Node] = []  # the loops being walked, but for those over optimizers
        self._relevant: dict[Function, None] = {}

    # -- walking -------------------------------------------------------------------------------------------------

    def walk(self) -> list[Fault]:
        """Faults on any path, in the order in which they are met."""
        number = len(self.optimizers)
        between = {function for function, _ in entry_readers(self.unit, self.reader, self.view)}
        acting, own = self._acting()
        self._relevant = self._touching(self._below({*acting, *between}, own))
        for module in sorted(own, key=lambda m: m.display):
            self._block(module, self.view(module.root), start(number, CLEAN), {})
        for function in self._relevant:
            if (function in acting or function in between) and not self.project.calls.get(function):
                self._function(function, start(number, SCALED if function in between else UNKNOWN), {})
        return list(self.faults)

    def _acting(self) -> tuple[set[Function], set[Module]]:
        """Functions in which something of this unit happens, and all that call them; files whose own code is such code.

        Whatever else runs, in a program of many units most of it, finds no scaled gradients of this one."""
        placed = self.placements
        stmts = [*placed.unscale, *placed.moved, *placed.update, *placed.updated]
        places: list[tuple[Module, ast.AST]] = [(s.module, s.call) for s in self.unit.steps]
        places += [(x.module, node) for x in self.unit.losses for node in (x.call, x.with_stmt)]
        near = [*self.unit.modules, *(m for m in self.project.modules if m not in self.unit.modules)]
        places += [(next((m for m in near if s in m.parents), self.unit.modules[0]), s) for s in stmts]
        acting: set[Function] = set()
        own: set[Module] = set()
        while places:
            module, node = places.pop()
            function = self.project.function_of(module, node)
            if function is None:
                own.add(module)
            elif function not in acting:
                acting.add(function)
                places += self.project.calls.get(function, [])
        return acting, own

    def _below(self, functions: set[Function], modules: set[Module]) -> set[Function]:
        """These functions, and all that they or the own code of these files call."""
        found: set[Function] = set()
        todo = [*functions, *(f for m in modules for c, _ in m.calls for f in self.project.resolved.get(c, ()))]
        while todo:
            function = todo.pop()
            if function not in found:
                found.add(function)
                calls = (n for n in function.inside if isinstance(n, ast.Call))
                todo += [f for call in calls for f in self.project.resolved.get(call, ())]
        return found

    def _touching(self, among: set[Function]) -> dict[Function, None]:
        """Functions that scale, step or (of some) read gradients, and all that call them."""
        queue: list[Function | None] = [self.project.function_of(s.module, s.call) for s in self.unit.steps]
        queue += [self.project.function_of(x.module, x.call) for x in self.unit.losses]
        tied = (m for m in self.project.modules if m in self.unit.tied and "grad" in m.text)
        queue += [
            f for m in tied for f in self.project.functions_of[m] if f in among and self.reader.function_reads(f, 0)
        ]
        queue += [self.project.function_of(s.module, s.node) for s in self.unit.sites]
        seen: dict[Function, None] = {}
        while queue:
            function = queue.pop()
            if function is not None and function not in seen:
                seen[function] = None
                queue += [self.project.function_of(m, c) for m, c in self.project.calls.get(function, [])]
        return seen

    def _function(self, function: Function, state: State, names: Names, told: Facts | None = None) -> State | None:
        """The state after a call; None for one that runs already, which adds nothing to what it is found to do.

        `told`: what the constants that it is given say of its tests.
        """
        told = told or {}
        key = (function, state, frozenset(names.items()), frozenset(told.items()))
        if key in self._memo:
            return self._memo[key]
        if function in self._stack:
            return None
        self._stack.append(function)
        outside, self._facts = self._facts, dict(told)
        exits = self._block(function.module, self.view(function.scope), state, names)
        self._facts = outside
        self._stack.pop()
        out = join([exits.normal, *exits.function]) or state
        self._memo[key] = out
        return out

    def _block(self, module: Module, block: Block, state: State, names: Names) -> Exits:
        """The exits of a block, walked once for each state: loops in loops would come back to it ever more often."""
        key = (block, state, frozenset(names.items()), frozenset(self._facts.items()))
        if key not in self._walked:
            self._walked[key] = self._walk_nodes(module, block.nodes, state, names)
        return self._walked[key].copy()

    def _walk_nodes(self, module: Module, nodes: Sequence[Node], state: State, names: Names) -> Exits:
        exits = Exits(state)
        for index, node in enumerate(nodes):
            if exits.normal is None:
                break
            asked = asked_again(module, nodes[index:], self._facts)
            if asked is not None:
                exits.normal = self._either_way(module, asked, nodes[index:], exits, names)
                break
            loss = self._entered(node)
            if loss is not None:
                exits.normal = self._scaled(module, node.stmt, exits.normal, loss, names)
            after = self._statement(module, node, exits.normal, names)
            exits.take(after)
            exits.normal = after.normal
        return exits

    def _either_way(
        self, module: Module, asked: str, nodes: Sequence[Node], exits: Exits, names: Names
    ) -> State | None:
        """Walk statements once for each answer to a condition that they ask more than once."""
        assert exits.normal is not None
        states: list[State | None] = []
        for answer in (True, False):
            self._facts[asked] = answer
            after = self._walk_nodes(module, nodes, exits.normal, names)
            exits.take(after)
            states.append(after.normal)
        del self._facts[asked]
        return join(states)

    def _entered(self, node: Node) -> Loss | None:
        """The scaled loss whose with statement, spliced into the block, begins with this statement."""
        loss = self._bodies.get(node.stmt)
        holder = node.parent.holder
        before = node.parent.nodes[node.index - 1] if node.index else holder
        return loss if before is None or self._bodies.get(before.stmt) is not loss else None

    def _statement(self, module: Module, node: Node, state: State, names: Names, *, moved: bool = False) -> Exits:
        stmt = node.stmt
        if stmt in self._moving and not moved:
            return Exits(state)
        if stmt in self.placements.update:
            state = updated(state)
        for step in self.placements.unscale.get(stmt, ()):
            state = self._unscale(module, stmt, step, state, names)
        for other in self.placements.moved.get(stmt, ()):
            there = self._find(module, other)
            if there is not None:
                state = self._statement(module, there, state, names, moved=True).normal or state
        exits = self._flow(module, node, state, names)
        if stmt in self.placements.updated:
            if isinstance(stmt, ast.Return):  # `return optimizer.step()`: what it gave is returned after the update
                exits.function = [self._update(module, stmt, s) for s in exits.function]
            elif exits.normal is not None:
                exits.normal = self._update(module, stmt, exits.normal)
        return exits

    def _update(self, module: Module, stmt: ast.stmt, state: State) -> State:
        if not self.unit.scaler_suffixes and any(SCALED in s or s == {UNSCALED} for s in state):
            self.faults.setdefault(Fault(module, stmt, "updated between"))
        return updated(state)

    def _find(self, module: Module, stmt: ast.stmt) -> Node | None:
        return next((n for n in self.view(module.scope_of(stmt)).walk() if n.stmt is stmt), None)

    def _flow(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        stmt = node.stmt
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
            return Exits(state)
        state = self._expressions(module, node, state, names)
        if isinstance(stmt, ast.Return):
            return Exits(None, function=[state])
        if isinstance(stmt, ast.Raise) or leaves(module, stmt):
            return Exits(None)
        if isinstance(stmt, ast.Break):
            return Exits(None, loop=[state])
        if isinstance(stmt, ast.Continue):
            return Exits(None, next=[state])
        if not node.blocks:
            return Exits(state)
        if isinstance(stmt, LOOP_NODES):
            return self._loop(module, node, state, names)
        if isinstance(stmt, (ast.If, ast.Match)):
            return self._branches(module, node, state, names)
        if isinstance(stmt, ast.Try):
            return self._try(module, node, state, names)
        return self._block(module, node.blocks[0], state, names)

    def _loop(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        body, otherwise = node.blocks[0], node.blocks[1:]
        result = Exits(None)
        each = self._each(module, node, names)
        if each:
            return self._for_each(module, node, state, names, each)
        head = state
        each_other = self._over_optimizers(node) or self._of_optimizers(module, node)
        if not each_other:
            self._turns.append(node)
        still = not each_other and self._still(module, node)
        ending = self._asked_of_the_end(node)
        told = {**self._facts}
        self._facts |= {text: not holds for text, holds in ending.items()}  # of all turns but the last
        for _ in range(4):
            inner = self._block(module, body, head, names)
            result.function += inner.function
            result.loop += inner.loop
            last = join([inner.normal, *inner.next])
            if last is not None and (still or each_other):
                last = turned(last) if still else others(head, last)
            back = join([head, last])
            assert back is not None
            if back == head:
                break
            head = self._expressions(module, node, back, names) if isinstance(node.stmt, ast.While) else back
        # A loop that steps each of several optimizers, or that runs the backward, is taken to run at least once.
        self._facts = {**told, **ending}
        inner = self._block(module, body, head, names)
        self._facts = told
        result.loop += inner.loop if ending else []
        result.function += inner.function if ending else []
        if not each_other:
            self._turns.pop()
        once = each_other or any(self.reader.scaled(n) for n in body.walk())
        done = join([inner.normal, *inner.next, *([] if once else [state])]) if once or ending else head
        for block in otherwise:
            if done is not None:
                after = self._block(module, block, done, names)
                done = after.normal
                result.take(after)
        result.normal = join([done, *result.loop])
        result.loop = []
        return result

    def _asked_of_the_end(self, loop: Node) -> dict[str, bool]:
        """What statements of a loop ask that only its last turn answers so: that one leads to no other."""
        known = last_turn(loop.stmt)
        if not known:
            return {}
        tests = (n.stmt.test for n in loop.walk() if isinstance(n.stmt, ast.If))
        asked = {text for test in tests for text, _ in atoms(test)}
        return {text: holds for text, holds in known.items() if text in asked}

    def _each(self, module: Module, node: Node, names: Names) -> list[Keys]:
        """What the target of a loop over a literal list of optimizers or models stands for, one time after the other."""
        stmt = node.stmt
        if not isinstance(stmt, ast.For) or not isinstance(stmt.target, ast.Name) or len(node.blocks) != 1:
            return []
        if not isinstance(stmt.iter, (ast.List, ast.Tuple)):
            return []
        found = [self.optimizers.stands_for(module, e, names) for e in elements(stmt.iter)]
        return found if all(found) else []

    def _for_each(self, module: Module, node: Node, state: State, names: Names, each: list[Keys]) -> Exits:
        assert isinstance(node.stmt, ast.For)
        assert isinstance(node.stmt.target, ast.Name)
        result = Exits(state)
        for keys in each:
            if result.normal is None:
                break
            inner = self._block(module, node.blocks[0], result.normal, {**names, node.stmt.target.id: keys})
            result.function += inner.function
            result.loop += inner.loop
            result.normal = join([inner.normal, *inner.next])
        result.normal = join([result.normal, *result.loop])
        result.loop = []
        return result

    def _of_optimizers(self, module: Module, node: Node) -> bool:
        """Whether a loop goes through optimizers."""
        if not isinstance(node.stmt, ast.For):
            return False
        targets = [n for n in ast.walk(node.stmt.target) if isinstance(n, ast.Name)]
        return any(self.project.slot(module, n) in self.unit.optimizer_slots for n in targets)

    def _over_optimizers(self, node: Node) -> bool:
        steps = [self._steps[n] for n in node.all() if isinstance(n, ast.Call) and n in self._steps]
        return bool(steps) and over_optimizers(node, steps)

    def _branches(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        result = Exits(None)
        states: list[State | None] = []
        scaling = self.reader.scaling(node)
        clean = start(len(state), CLEAN)
        told = truth(node.stmt.test, self._facts) if isinstance(node.stmt, ast.If) else None
        for block in node.blocks:
            if told is not None and told is not (block is node.blocks[0]):
                continue
            # Beside a branch that scales, one with a plain backward is the float32 copy: which one runs never changes.
            copy = block not in scaling and any(self.reader.backward(n) for n in block.nodes)
            after = self._block(module, block, clean if copy else state, names)
            result.take(after)
            states.append(after.normal)
        whole = isinstance(node.stmt, ast.If) and (told or bool(node.stmt.orelse))
        if isinstance(node.stmt, ast.Match):
            whole = any(
                isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None
                for c in node.stmt.cases
            )
        if not whole and not self._always(module, node):
            states.append(state)
        result.normal = join(states)
        return result

    def _always(self, module: Module, node: Node) -> bool:
        """`if optimizer is not None:` around its step: where there is none, there is nothing to step."""
        if not isinstance(node.stmt, ast.If):
            return False
        test = node.stmt.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
            test = test.left
        return isinstance(test, (ast.Name, ast.Attribute)) and (
            self.project.slot(module, test) in self.unit.optimizer_slots
        )

    def _try(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        stmt = node.stmt
        assert isinstance(stmt, ast.Try)
        blocks = list(node.blocks)
        body = blocks.pop(0)
        otherwise = blocks.pop(0) if stmt.orelse and blocks else None
        final = blocks.pop(0) if stmt.finalbody and blocks else None
        result = Exits(None)
        tried = self._block(module, body, state, names)
        result.take(tried)
        normal = tried.normal
        if otherwise is not None and normal is not None:
            after = self._block(module, otherwise, normal, names)
            result.take(after)
            normal = after.normal
        states = [normal]
        for handler in blocks:  # what was broken off is not followed: the state before it stands for it
            after = self._block(module, handler, state, names)
            result.take(after)
            states.append(after.normal)
        result.normal = join(states)
        if final is not None:
            after = self._block(module, final, result.normal or state, names)
            result.take(after)
            result.normal = after.normal if result.normal is not None else None
        return result

    # -- expressions ---------------------------------------------------------------------------------------------

    def _expressions(self, module: Module, node: Node, state: State, names: Names) -> State:
        if node.stmt not in self._parts:
            self._parts[node.stmt] = [p for p in evaluated(node) if isinstance(p, (ast.Attribute, ast.Call))]
        for part in self._parts[node.stmt]:
            state = self._expression(module, node, part, state, names)
        return state

    def _expression(self, module: Module, node: Node, part: ast.AST, state: State, names: Names) -> State:
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
            self._step(module, self._steps[part], state, keys)
            return some(state, keys, lambda s: frozenset((STEPPED,)))
        name = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        functions = self.project.resolved.get(part, [])
        if name == "zero_grad" and isinstance(part.func, ast.Attribute) and not functions:
            keys = self.optimizers.keys(module, part.func.value, names)
            kept = any(k.arg == "set_to_none" and ast.unparse(k.value) == "False" for k in part.keywords)
            return zeroed(state, keys, PLAIN if kept else CLEAN)
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
        for function in functions:
            if function not in self._relevant:
                continue
            given: dict[str, Keys] = {}
            for parameter, value in self.project.arguments(function, call):
                keys = self.optimizers.stands_for(module, value, names)
                if not keys and Slot(function.scope, parameter) in self.unit.optimizer_slots:
                    keys = self.optimizers.of(module, (), names)
                if keys:
                    given[parameter] = keys
            told = self._constants(function, call)
            each = _each_alone({p: k for p, k in given.items() if not self._several(function, p)})
            states += [self._function(function, state, {**given, **one}, told) for one in each]
        named = self.reader.reads_here(module, call) and not any(self.reader.function_reads(f, 3) for f in functions)
        if named and not self._silent(node):
            self._read(module, call, state, self._concerned(module, node, names))
        if len(functions) > len(states):
            states.append(state)
        return join(states) or state

    def _several(self, function: Function, parameter: str) -> bool:
        """Whether a function takes what it is given apart: a list of optimizers, of which it steps each."""
        loads = function.module.loads.get(parameter, ())
        return any(
            taken_apart(function.module, n) for n in loads if function.scope in function.module.scope_of(n).chain()
        )

    def _constants(self, function: Function, call: ast.Call) -> dict[str, bool]:
        """What the constants that a call passes, or leaves at their defaults, say of the tests of a function."""
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return {}
        given = {**function.defaults, **dict(self.project.arguments(function, call))}
        known: dict[str, bool] = {}
        for name, value in given.items():
            if isinstance(value, ast.Constant) and len(function.scope.bindings.get(name, ())) == 1:
                known |= {name: bool(value.value), f"{name} is None": value.value is None}
        if not known:
            return {}
        tests = (n.stmt.test for n in self.view(function.scope).walk() if isinstance(n.stmt, ast.If))
        asked = {text for test in tests for text, _ in atoms(test)}
        return {text: holds for text, holds in known.items() if text in asked}

    def _concerned(self, module: Module, node: Node, names: Names) -> Keys:
        """The optimizers whose gradients a statement reads, as far as it names them."""
        named = [
            s.call.args[0]
            for s in self.unit.sites
            if s.module is module and s.short == "master_params" and s.call is not None and s.call.args
            if any(s.call is n for n in node.all())
        ]
        if not named and len(self.optimizers) > 1:
            given = [a for part in node.all() if isinstance(part, ast.Call) for a in (part.func, *part.args)]
            found = frozenset[int]().union(*(self.optimizers.stands_for(module, a, names) for a in given))
            return found or self.optimizers.of(module, (), names)
        return self.optimizers.of(module, named, names)

    # -- events --------------------------------------------------------------------------------------------------

    def _scaled(self, module: Module, node: ast.AST, state: State, loss: Loss, names: Names) -> State:
        """A scaled backward, into the gradients of each of its optimizers."""
        each = [self.optimizers.keys(module, e, names) for o in loss.optimizers for e in elements(o)]
        for keys in each or [self.optimizers.of(module, (), names)]:
            state = self._backward(module, node, state, keys)
        return state

    def _backward(self, module: Module, node: ast.AST, state: State, keys: Keys) -> State:
        if len(keys) == 1 and any(UNSCALED in state[k] for k in keys):
            self.faults.setdefault(Fault(module, node, "added to"))
        return scaled(state, keys)

    def _step(self, module: Module, step: Step, state: State, keys: Keys) -> None:
        """A step through the scaler: of gradients, and of the same gradients once."""
        one_of_many = any(isinstance(n, ast.Subscript) for n in ast.walk(step.optimizer))
        if len(keys) != 1 or one_of_many or not keys <= self.optimizers.single:
            return
        (gradients,) = (state[k] for k in keys)
        if gradients & WAITING:
            self.faults.setdefault(Fault(module, step.call, "stepped twice"))
        elif AGAIN in gradients or gradients == {DONE}:
            self.faults.setdefault(Fault(module, step.call, "stepped again"))
        elif gradients & {CLEAN, DONE} and self._scales_beside(module) and not counted(self.unit, step):
            self.idle[step.call] = self.idle.get(step.call, True) and DONE not in gradients

    def _scales_beside(self, module: Module) -> bool:
        """Whether the loop being walked runs a scaled backward, on other paths."""
        if self._turns:
            return any(self.reader.scaled(n) for n in self._turns[-1].walk())
        scope = self._stack[-1].scope if self._stack else module.root
        return any(self.reader.scaled(n) for n in self.view(scope).walk())

    def _still(self, module: Module, node: Node) -> bool:
        """Whether nothing in a loop can run a backward: all that it calls is known."""
        if any(self.reader.scaled(n) or self.reader.backward(n) for n in node.walk()):
            return False
        calls = [n for n in node.all() if isinstance(n, ast.Call) and n not in self._steps]
        return all(self.project.resolved.get(c) or known(module, c) for c in calls)

    def _read(self, module: Module, node: ast.AST, state: State, keys: Keys) -> None:
        if any(SCALED in state[k] for k in keys):
            self.faults.setdefault(Fault(module, node, "read"))

    def _unscale(self, module: Module, stmt: ast.stmt, step: Step, state: State, names: Names) -> State:
        home = step.home or step.module
        here = home.scope_of(step.optimizer) is module.scope_of(stmt)
        keys = self.optimizers.keys(home, step.optimizer, names if here else {})
        if len(keys) == 1 and any(UNSCALED in state[k] or state[k] <= WAITING for k in keys):
            self.faults.setdefault(Fault(module, stmt, "unscaled twice"))
        root = step
        while root.within is not None:
            root = root.within
        if root.call in self._steps and all(state[k] & {CLEAN, DONE} and not state[k] & WAITING for k in keys):
            self._step(module, self._steps[root.call], state, keys)
        return some(state, keys, lambda s: frozenset((UNSCALED,)), sure=True)


def _each_alone(given: dict[str, Keys]) -> list[dict[str, Keys]]:
    """What a call passes, once for each optimizer that the one in question may be: a function zeroes, scales and steps
    the same one, whichever it is."""
    vague = [name for name, keys in given.items() if len(keys) > 1]
    if len(vague) != 1:
        return [given]
    return [{**given, vague[0]: frozenset((key,))} for key in sorted(given[vague[0]])]
