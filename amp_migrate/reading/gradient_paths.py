"""Every path from a scaled backward to the step, through whichever functions: are gradients unscaled when they are read?

The proof of what `gradients` and `unscaling` placed. Each optimizer's gradients are clean, scaled, unscaled, or
stepped and waiting for the update; the walk follows branches, loops and calls with the set of what they may be, so it
errs towards refusing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from amp_migrate.reading.definitions import Function, elements
from amp_migrate.reading.entry_readers import entry_readers
from amp_migrate.reading.gradients import GradientReader
from amp_migrate.reading.module import FUNCTION_NODES, LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.optimizer_places import Keys, Names
from amp_migrate.reading.unit import Loss, Step, Unit
from amp_migrate.reading.updates import over_optimizers
from amp_migrate.reading.view import Block, Node, chain

CLEAN, SCALED, UNSCALED, STEPPED = "clean", "scaled", "unscaled", "stepped"
State = tuple[frozenset[str], ...]  # for each optimizer: what its gradients may be


@dataclass(frozen=True)
class Fault:
    """A statement at which gradients may be in the wrong state, and how."""

    module: Module
    node: ast.AST
    kind: str  # "read", "unscaled twice", "added to" or "updated between"


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
        self.optimizers = unit.optimizers
        self._steps = {s.call: s for s in unit.steps}
        self._losses = {x.call: x for x in unit.losses}
        self._bodies = {s: x for x in unit.losses if x.item for s in ast.walk(x.with_stmt) if s is not x.with_stmt}
        self._moving = {s for stmts in placements.moved.values() for s in stmts}
        self._memo: dict[tuple[Function, State, frozenset[tuple[str, Keys]]], State] = {}
        self._walked: dict[tuple[Block, State, frozenset[tuple[str, Keys]]], Exits] = {}
        self._parts: dict[ast.stmt, list[ast.AST]] = {}
        self._stack: list[Function] = []
        self._relevant: dict[Function, None] = {}

    # -- walking -------------------------------------------------------------------------------------------------

    def walk(self) -> list[Fault]:
        """Faults on any path, in the order in which they are met."""
        start: State = tuple(frozenset((CLEAN,)) for _ in range(len(self.optimizers)))
        self._relevant = self._touching()
        modules = {*self.unit.modules, *(f.module for f in self._relevant), *(s.module for s in self.unit.steps)}
        for module in sorted(modules, key=lambda m: m.display):
            self._block(module, self.view(module.root), start, {})
        after_backward: State = tuple(frozenset((SCALED,)) for _ in range(len(self.optimizers)))
        between = {function for function, _ in entry_readers(self.unit, self.reader, self.view)}
        for function in self._relevant:
            if not self.project.calls.get(function):
                self._function(function, after_backward if function in between else start, {})
        return list(self.faults)

    def _touching(self) -> dict[Function, None]:
        """Functions that scale, step or read gradients, and all that call them."""
        queue: list[Function | None] = [self.project.function_of(s.module, s.call) for s in self.unit.steps]
        queue += [self.project.function_of(x.module, x.call) for x in self.unit.losses]
        tied = (m for m in self.project.modules if m in self.unit.tied and "grad" in m.text)
        queue += [f for m in tied for f in self.project.functions_of[m] if self.reader.function_reads(f, 0)]
        queue += [self.project.function_of(s.module, s.node) for s in self.unit.sites]
        seen: dict[Function, None] = {}
        while queue:
            function = queue.pop()
            if function is not None and function not in seen:
                seen[function] = None
                queue += [self.project.function_of(m, c) for m, c in self.project.calls.get(function, [])]
        return seen

    def _function(self, function: Function, state: State, names: Names) -> State | None:
        """The state after a call; None for one that runs already, which adds nothing to what it is found to do."""
        key = (function, state, frozenset(names.items()))
        if key in self._memo:
            return self._memo[key]
        if function in self._stack:
            return None
        self._stack.append(function)
        exits = self._block(function.module, self.view(function.scope), state, names)
        self._stack.pop()
        out = _join([exits.normal, *exits.function]) or state
        self._memo[key] = out
        return out

    def _block(self, module: Module, block: Block, state: State, names: Names) -> Exits:
        """The exits of a block, walked once for each state: loops in loops would come back to it ever more often."""
        key = (block, state, frozenset(names.items()))
        if key not in self._walked:
            self._walked[key] = self._walk_block(module, block, state, names)
        return self._walked[key].copy()

    def _walk_block(self, module: Module, block: Block, state: State, names: Names) -> Exits:
        exits = Exits(state)
        for node in block.nodes:
            if exits.normal is None:
                break
            loss = self._entered(node)
            if loss is not None:
                exits.normal = self._scaled(module, node.stmt, exits.normal, loss, names)
            after = self._statement(module, node, exits.normal, names)
            exits.take(after)
            exits.normal = after.normal
        return exits

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
            state = _updated(state)
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
        return _updated(state)

    def _find(self, module: Module, stmt: ast.stmt) -> Node | None:
        return next((n for n in self.view(module.scope_of(stmt)).walk() if n.stmt is stmt), None)

    def _flow(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        stmt = node.stmt
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
            return Exits(state)
        state = self._expressions(module, node, state, names)
        if isinstance(stmt, ast.Return):
            return Exits(None, function=[state])
        if isinstance(stmt, ast.Raise):
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
        for _ in range(4):
            inner = self._block(module, body, head, names)
            result.function += inner.function
            result.loop += inner.loop
            back = _join([head, inner.normal, *inner.next])
            assert back is not None
            if back == head:
                break
            head = self._expressions(module, node, back, names) if isinstance(node.stmt, ast.While) else back
        # A loop whose body steps for each of several optimizers steps all: it is taken to run at least once.
        inner = self._block(module, body, head, names)
        done = _join([inner.normal, *inner.next]) if self._over_optimizers(node) else head
        for block in otherwise:
            if done is not None:
                after = self._block(module, block, done, names)
                done = after.normal
                result.take(after)
        result.normal = _join([done, *result.loop])
        result.loop = []
        return result

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
            result.normal = _join([inner.normal, *inner.next])
        result.normal = _join([result.normal, *result.loop])
        result.loop = []
        return result

    def _over_optimizers(self, node: Node) -> bool:
        steps = [self._steps[n] for n in node.all() if isinstance(n, ast.Call) and n in self._steps]
        return bool(steps) and over_optimizers(node, steps)

    def _branches(self, module: Module, node: Node, state: State, names: Names) -> Exits:
        result = Exits(None)
        states: list[State | None] = []
        scaling = self.reader.scaling(node)
        clean: State = tuple(frozenset((CLEAN,)) for _ in state)
        for block in node.blocks:
            # Beside a branch that scales, one with a plain backward is the float32 copy: which one runs never changes.
            copy = block not in scaling and any(self.reader.backward(n) for n in block.nodes)
            after = self._block(module, block, clean if copy else state, names)
            result.take(after)
            states.append(after.normal)
        whole = isinstance(node.stmt, ast.If) and bool(node.stmt.orelse)
        if isinstance(node.stmt, ast.Match):
            whole = any(
                isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None
                for c in node.stmt.cases
            )
        if not whole and not self._always(module, node):
            states.append(state)
        result.normal = _join(states)
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
        result.normal = _join(states)
        if final is not None:
            after = self._block(module, final, result.normal or state, names)
            result.take(after)
            result.normal = after.normal if result.normal is not None else None
        return result

    # -- expressions ---------------------------------------------------------------------------------------------

    def _expressions(self, module: Module, node: Node, state: State, names: Names) -> State:
        if node.stmt not in self._parts:
            self._parts[node.stmt] = [p for p in _evaluated(node) if isinstance(p, (ast.Attribute, ast.Call))]
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
            return _some(state, keys, lambda s: frozenset((STEPPED,)))
        name = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        functions = self.project.resolved.get(part, [])
        if name == "zero_grad" and isinstance(part.func, ast.Attribute) and not functions:
            keys = self.optimizers.keys(module, part.func.value, names)
            return _some(state, keys, lambda s: s - {SCALED} | ({CLEAN} if SCALED in s else set()))
        if name == "backward" and not functions:
            if _managed(node, part):
                return state
            scaled = frozenset(i for i, s in enumerate(state) if s & {SCALED, UNSCALED})
            return self._backward(module, part, state, scaled) if len(state) == 1 else state
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
                if keys:
                    given[parameter] = keys
            states.append(self._function(function, state, given))
        named = self.reader.reads_here(module, call) and not any(self.reader.function_reads(f, 3) for f in functions)
        if named and not self._silent(node):
            self._read(module, call, state, self._concerned(module, node, names))
        if len(functions) > len(states):
            states.append(state)
        return _join(states) or state

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
        return _some(state, keys, lambda s: frozenset((SCALED,)))

    def _read(self, module: Module, node: ast.AST, state: State, keys: Keys) -> None:
        if any(SCALED in state[k] for k in keys):
            self.faults.setdefault(Fault(module, node, "read"))

    def _unscale(self, module: Module, stmt: ast.stmt, step: Step, state: State, names: Names) -> State:
        home = step.home or step.module
        here = home.scope_of(step.optimizer) is module.scope_of(stmt)
        keys = self.optimizers.keys(home, step.optimizer, names if here else {})
        if len(keys) == 1 and any(UNSCALED in state[k] or state[k] == {STEPPED} for k in keys):
            self.faults.setdefault(Fault(module, stmt, "unscaled twice"))
        return _some(state, keys, lambda s: frozenset((UNSCALED,)), sure=True)


def _managed(node: Node, call: ast.Call) -> bool:
    """A backward of what the with statement around it yields: the call in its header was followed in its place."""
    root = ast.unparse(call.func).partition(".")[0]
    return any(
        isinstance(link.stmt, WITH_NODES)
        and any(isinstance(i.optional_vars, ast.Name) and i.optional_vars.id == root for i in link.stmt.items)
        for link in chain(node)
    )


def _evaluated(node: Node) -> Iterator[ast.AST]:
    """The expressions of a statement in the order of their evaluation: what is passed before the call it is passed to."""

    def walk(part: ast.AST) -> Iterator[ast.AST]:
        if isinstance(part, ast.Lambda):
            return
        for child in ast.iter_child_nodes(part):
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                yield from walk(child)
        yield part

    yield from walk(node.stmt)


def _some(state: State, keys: Keys, change: Callable[[frozenset[str]], frozenset[str]], *, sure: bool = False) -> State:
    """Change the states of some optimizers; where it may be any of several, they may also stay as they were."""
    weak = len(keys) > 1 and not sure
    return tuple(s if i not in keys else (change(s) | s if weak else change(s)) for i, s in enumerate(state))


def _updated(state: State) -> State:
    """After an update only gradients that carry the scale are in a state of their own."""
    return tuple(frozenset(SCALED if name == SCALED else CLEAN for name in s) for s in state)


def _join(states: Iterable[State | None]) -> State | None:
    known = [s for s in states if s is not None]
    if not known:
        return None
    return tuple(frozenset().union(*parts) for parts in zip(*known, strict=True))
