"""Every path from a scaled backward to the step, through whichever functions: are gradients unscaled when they are read?

The proof of what `place` placed: each step follows a backward, once, and the update follows it. The
walk carries what the gradients of each optimizer may be (`states`) through branches, loops and calls, so it errs
towards refusing; a condition that is asked twice goes the same way twice (`correlated`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from amp_migrate.reading.conditions.correlated import Facts, asked_again, atoms, last_turn, truth
from amp_migrate.reading.gradients.acting import acting, apart, below, touching
from amp_migrate.reading.gradients.entry_readers import entry_readers
from amp_migrate.reading.gradients.events import Events, Fault, Placements
from amp_migrate.reading.gradients.lists import one_by_one
from amp_migrate.reading.gradients.matters import Matters
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.states import (
    CLEAN,
    OUTDATED,
    SCALED,
    UNKNOWN,
    State,
    join,
    later,
    others,
    start,
    turned,
    updated,
)
from amp_migrate.reading.gradients.updates import over_optimizers
from amp_migrate.reading.gradients.walked import known, leaves
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.turns import repeats
from amp_migrate.reading.program.view import Block, Node
from amp_migrate.reading.units.places import Keys, Names
from amp_migrate.reading.units.unit import Loss, Unit
from amp_migrate.reading.values.sources import Sources


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


class GradientPaths(Events):
    """Walks a unit's program from every function that nothing in sight calls."""

    def __init__(
        self, unit: Unit, reader: GradientReader, view: Callable[[Scope], Block], placements: Placements
    ) -> None:
        super().__init__(unit, reader, view, placements)
        self._walked: dict[tuple[Block, State, frozenset[tuple[str, Keys]], frozenset[tuple[str, bool]]], Exits] = {}

    # -- walking -------------------------------------------------------------------------------------------------

    def walk(self) -> list[Fault]:
        """Faults on any path, in the order in which they are met."""
        number = len(self.optimizers)
        between = {function for function, _ in entry_readers(self.unit, self.reader, self.view)}
        in_play, own = acting(self.unit, self.placements)
        others = apart(self.unit, in_play)
        among = below(self.project, {*in_play, *between}, own, others)
        self._relevant = touching(self.unit, self.reader, among, others)
        self._matters = Matters(self.reader, self._placed(), {*self._steps, *self._losses}, self._relevant)
        for module in sorted(own, key=lambda m: m.display):
            self._block(module, self.view(module.root), start(number, CLEAN), {})
        entries = {
            function: start(number, SCALED if function in between else UNKNOWN)
            for function in self._relevant
            if (function in in_play or function in between) and not self.project.calls.get(function)
        }
        runs = [(function, run) for function in entries for run in self.objects.runs(function, {})]
        left = join(self._function(function, entries[function], run) for function, run in runs)
        if left is not None and any(OUTDATED in names for names in left):  # by then one of them may be called again
            found = tuple(names & {OUTDATED} for names in left)
            for function, run in runs:
                self._function(function, join([entries[function], found]) or entries[function], run)
        for node, module in self.reader.divided.items():
            if not self._always_between(module, node, {*in_play, *between}, own):
                self.faults.setdefault(Fault(module, node, "divided"))
        return list(self.faults)

    def _always_between(self, module: Module, node: ast.AST, in_play: set[Function], own: set[Module]) -> bool:
        """Whether nothing but the code that was walked comes to a node."""
        for home, function in self.project.ways_to([self.project.way(module, node)], *in_play):
            if function is None and home not in own:
                return False
            if function is not None and function not in in_play:
                if not self.project.calls.get(function) or self.project.once(Sources).is_value(function):
                    return False
        return True

    def _placed(self) -> set[ast.AST]:
        """The statements at which the migration places something, or that stand in the with statement of a loss."""
        placed = self.placements
        return {*placed.unscale, *placed.moved, *placed.update, *placed.updated, *self._moving, *self._bodies}

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
            asked = asked_again(module, nodes[index:], self._facts, partial(self._deciding, module))
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
        each = one_by_one(self.unit, module, node, names)
        if each:
            return self._for_each(module, node, state, names, each)
        if not repeats(node.stmt):
            return self._once(module, node, state, names)
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
            elif last is not None:
                last = later(last)
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
        result.normal = join([self._then(module, otherwise, done, names, result), *result.loop])
        if result.normal is not None and not each_other:
            result.normal = later(result.normal)
        result.loop = []
        return result

    def _once(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        """The one turn of a loop that takes no other."""
        result = self._block(module, node.blocks[0], state, names)
        done = self._then(module, node.blocks[1:], join([result.normal, *result.next]), names, result)
        return Exits(join([done, *result.loop]), function=result.function)

    def _then(
        self, module: Module, blocks: Iterable[Block], state: State | None, names: Names, result: Exits
    ) -> State | None:
        """The state after blocks that follow one another; whatever else leaves them is taken into the result."""
        for block in blocks:
            if state is not None:
                after = self._block(module, block, state, names)
                state = after.normal
                result.take(after)
        return state

    def _asked_of_the_end(self, loop: Node) -> dict[str, bool]:
        """What statements of a loop ask that only its last turn answers so: that one leads to no other."""
        known = last_turn(loop.stmt)
        if not known:
            return {}
        tests = (n.stmt.test for n in loop.walk() if isinstance(n.stmt, ast.If))
        asked = {text for test in tests for text, _ in atoms(test)}
        return {text: holds for text, holds in known.items() if text in asked}

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
        targets = [n for n in walk(node.stmt.target) if isinstance(n, ast.Name)]
        return any(self.project.slot(module, n) in self.unit.optimizer_slots for n in targets)

    def _over_optimizers(self, node: Node) -> bool:
        steps = [self._steps[n] for n in node.all_calls if n in self._steps]
        return bool(steps) and over_optimizers(node, steps)

    def _branches(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        result = Exits(None)
        states: list[State | None] = []
        scaling = self.reader.scaling(node)
        without = [b for b in node.blocks if not any(self.reader.scaled(n) for n in b.walk())]
        clean = start(len(state), CLEAN)
        told = truth(node.stmt.test, self._facts) if isinstance(node.stmt, ast.If) else None
        for block in node.blocks:
            if told is not None and told is not (block is node.blocks[0]):
                continue
            # Beside a branch that scales, one with a plain backward is the float32 copy: which one runs never changes.
            copy = block not in scaling and any(self.reader.backward(n) for n in block.nodes)
            after = self._block(module, block, clean if copy else state, names)
            result.take(after)
            states.append(later(after.normal) if after.normal and block in without != node.blocks else after.normal)
        whole = isinstance(node.stmt, ast.If) and (told or bool(node.stmt.orelse))
        if isinstance(node.stmt, ast.Match):
            whole = any(
                isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None
                for c in node.stmt.cases
            )
        if not whole and not self._always(module, node):
            states.append(later(state) if without != node.blocks else state)
        result.normal = join(states)
        return result

    def _always(self, module: Module, node: Node) -> bool:
        """`if optimizer is not None:` around its step: where there is none, there is nothing to step. `if model.training:`
        around a backward: a step comes to models that train alone."""
        if not isinstance(node.stmt, ast.If):
            return False
        test = node.stmt.test
        if isinstance(test, ast.Attribute) and test.attr == "training":
            return any(self.reader.scaled(n) for n in node.walk())
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
            test = test.left
        return isinstance(test, (ast.Name, ast.Attribute)) and (
            self.project.slot(module, test) in self.unit.optimizer_slots
        )

    def _try(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        stmt = node.stmt
        assert isinstance(stmt, ast.Try)
        blocks = list(node.blocks)
        tried = [blocks.pop(0), *(blocks.pop(0) for _ in range(bool(stmt.orelse and blocks)))]
        final = blocks.pop(0) if stmt.finalbody and blocks else None
        result = Exits(None)
        states = [self._then(module, tried, state, names, result)]
        # What was broken off is not followed: the state before it stands for it.
        states += [self._then(module, [handler], state, names, result) for handler in blocks]
        result.normal = join(states)
        if final is not None:
            after = self._then(module, [final], result.normal or state, names, result)
            result.normal = after if result.normal is not None else None
        return result

    def _still(self, module: Module, node: Node) -> bool:
        """Whether nothing in a loop can run a backward: all that it calls is known."""
        if any(self.reader.scaled(n) or self.reader.backward(n) for n in node.walk()):
            return False
        calls = [n for n in node.all_calls if n not in self._steps]
        return all(self.project.resolved.get(c) or known(module, c) for c in calls)
