"""Gradients between backward and step: who reads them, where they must be unscaled, where the scale is updated."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise

from amp_migrate.reading.gradients.heard import fires
from amp_migrate.reading.gradients.positions import Gradients
from amp_migrate.reading.gradients.readers import Readers
from amp_migrate.reading.gradients.updates import over_optimizers, updates
from amp_migrate.reading.gradients.walked import leaving
from amp_migrate.reading.program.definitions import Function, called_name, dotted
from amp_migrate.reading.program.module import LOOP_NODES, WITH_NODES, Module
from amp_migrate.reading.program.processes import is_script
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.program.turns import repeats
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.unit import Blocked, Step


class GradientReader(Readers):
    """Answers, for one unit, where gradients are unscaled and the scale is updated in each function."""

    # -- one function --------------------------------------------------------------------------------------------

    def plan(self, module: Module, block: Block, steps: list[Step]) -> Gradients:
        """Positions for the steps that stand in one function (or at module level)."""
        result = Gradients()
        live: list[tuple[Step, Node]] = []
        for step in steps:
            if (node := find(block, step.stmt)) is None:
                continue
            if self.untrained.steps_nothing(step):
                result.plain.add(step.call)
                continue
            if self._unscaled_here(module, block, node):
                self._refuse_hidden(module, block, step)
                result.plain.add(step.call)
                if self._starts_here(module, block):
                    result.apart.add(step.call)
                continue
            live.append((step, node))
        for step, node in live:
            self.readers(module, step, node, live, result)
        levels = [(step, result.levels.get(step.call, node)) for step, node in live]
        result.update_after += updates(block, levels)
        return result

    def _unscaled_here(self, module: Module, block: Block, node: Node) -> bool:
        """Whether the only backward before a step is a plain one, or none can be: those gradients were never scaled."""
        scaled = {loss.with_stmt for loss in self.unit.losses}

        def scales(node: Node) -> bool:
            return node.stmt in scaled or any(parent in scaled for parent in module.ancestors(node.stmt))

        # Where a loss is scaled there is a backward, in whatever words: `go = scaled_loss.backward; go()`.
        backwards = [
            n for n in block.walk() if not n.blocks and (scales(n) or any(self.uses.runs_backward(a) for a in n.calls))
        ]
        if not backwards:
            return self._starts_here(module, block)
        if self._in_plain_branch(node):
            return True
        if node.stmt.lineno < min(b.stmt.lineno for b in backwards) and not any(
            repeats(link.stmt) for link in chain(node)
        ):
            return True  # a step before anything was scaled
        return not any(
            scales(b)
            or any(self.calls_scaled(link) for link in chain(b))  # also in `with scaling(loss) as scaled_loss:`
            for b in backwards
        )

    def _in_plain_branch(self, node: Node) -> bool:
        """Whether a step follows a plain backward in its own branch, and another branch scales: the float32 copy. Which of
        them runs never changes."""
        plain = False
        for link in chain(node):
            branch, holder = link.parent, link.parent.holder
            if holder is None or any(self.scaled(n) for n in branch.walk()):
                return False
            plain = plain or any(self.backward(n) for n in branch.nodes[: link.index])
            others = holder.blocks if isinstance(holder.stmt, ast.If) else ()
            if plain and any(self.scaled(n) for b in others if b is not branch for n in b.walk()):
                return True
        return False

    def _starts_here(self, module: Module, block: Block) -> bool:
        """Whether a run begins with statements of which none scales a loss: a test, what a script does by itself."""
        scope = module.scope_of(block.walk()[0].stmt)
        function = self.project.functions.get(scope.node)
        if function is None:
            begins = scope.is_module and is_script(module)
        else:
            begins = (
                function.name.startswith("test") and role(module) == "test" and not self.project.calls.get(function)
            )
        scaling = {f.name for f in self._scaling_functions}
        return begins and not any(called_name(n) in scaling for node in block.walk() for n in node.calls)

    def _refuse_hidden(self, module: Module, block: Block, step: Step) -> None:
        """Refuse a step after the backward of something unknown, where objects of the program scale in a method of that
        name: whether it is one of them or a tensor cannot be told."""
        for loss in self.unit.losses:
            method = self.project.function_of(loss.module, loss.call)
            if method is None or method.cls is None or method.name != "backward":
                continue
            if set(method.positional) <= method.defaults.keys() and any(
                self.uses.runs_backward(n, 0) for link in block.walk() for n in link.calls
            ):
                raise Blocked(
                    module,
                    step.call,
                    "AMP307",
                    "optimizer.step",
                    f"the backward before it may be {method.cls.name}.backward, which scales, or that of a tensor, which "
                    "does not: write out which",
                )

    @cached_property
    def _scaling_functions(self) -> set[Function]:
        """Functions that scale one of the unit's losses, and all that call them."""
        functions = self.project.functions

        def around(places: Iterable[tuple[Module, ast.Call]]) -> list[Function]:
            return [functions[a] for module, call in places for a in module.ancestors(call) if a in functions]

        losses = around((x.module, x.call) for x in self.unit.losses)
        return set(reached(losses, lambda function: around(self.project.calls.get(function, ()))))

    def calls_scaled(self, node: Node) -> bool:
        """Whether a statement calls a function that scales one of the unit's losses."""
        called = (f for n in node.calls for f in self.project.resolved.get(n, ()))
        if any(f in self._scaling_functions for f in called):
            return True
        return any(dotted(c.func) == "self.backward" and not self.project.resolved.get(c) for c in node.calls)

    def readers(self, module: Module, step: Step, node: Node, live: list[tuple[Step, Node]], result: Gradients) -> None:
        """Find what reads this optimizer's gradients before its step."""
        here = self.between(module, node, step)
        if self.unit.inner_clip(step) is not None:
            here.append(node)  # its clipping goes right before it
        here = self._heard(node, here, result)
        inside: list[tuple[Node, list[Node]]] = []  # readers in the branch that steps, but not in the step's own block
        around: list[Node] = []  # readers beside the backward, outside of that branch
        branches: list[Node] = []
        level, loop, either = node, None, node  # either: what steps in both of its branches, and whatever goes with it
        for inner, outer in pairwise(chain(node)):
            if repeats(outer.stmt):
                if not over_optimizers(outer, [step]):
                    break
                loop = outer.stmt
            if either is inner and isinstance(outer.stmt, (*LOOP_NODES, *WITH_NODES)):
                either = outer
            if isinstance(outer.stmt, ast.If) and self._steps_anyway(outer, step, live):
                either = outer
            elif isinstance(outer.stmt, ast.If):
                branches.append(outer)
            found = self.between(module, outer, step)
            if isinstance(outer.stmt, ast.If) and self.reads_own(module, outer):
                found.append(outer)
            if any(self.backward(n) for n in outer.parent.nodes[: outer.index]):
                heard = self._heard(outer, [], result)
                if branches:
                    result.heard += [n.stmt for n in heard]
                elif heard:
                    found = _in_order([*found, *heard])
                around, level = found, outer if found else node
                break
            if found:
                inside.append((outer, found))
        checked = any(_reads_results(around, branch) for branch in branches)
        if around and branches and not checked:
            self._counting(module, around, branches)
            self._conditions(module, around, level, result)
            first = inside[-1][1][0] if inside else self._first_after_backward(node)
            if len(around) == 1 and not inside:
                result.inner[around[0].stmt] = self.deep(module, around[0]).stmt
            result.moved.append(([n.stmt for n in around], first.stmt, step))
            self._kept(around, node, result)
            start, level = first, inside[-1][0] if inside else node
        elif around:
            alone = len(around) == 1 and not inside and not here
            start = self.deep(module, around[0]) if alone else around[0]
            level = level if checked else either
            result.unscale.append((start.stmt, step))
            start = around[0]
        elif inside:
            level, readers = inside[-1]
            start = readers[0]
            alone = len(readers) == len(inside) == 1 and not here
            result.unscale.append(((self.deep(module, start) if alone else start).stmt, step))
        elif here:
            start = here[0]
            result.unscale.append(((self.deep(module, start) if len(here) == 1 else start).stmt, step))
        else:
            return
        if level is not node:
            result.levels[step.call] = level
        if isinstance(loop, ast.For) and (around or inside):
            result.loops[result.moved[-1][1] if around and branches and not checked else result.unscale[-1][0]] = loop
        self._early_exits(start, level, step, result)

    def _counting(self, module: Module, readers: list[Node], branches: list[Node]) -> None:
        """Refuse to move a reader into a branch that asks for what the reader sets: it counts the micro-batches too; and an
        event, which others listen to."""
        asked = {n.attr for b in branches for n in b.own if isinstance(n, ast.Attribute)}
        for reader in readers:
            for call in reader.all_calls:
                for method in self.uses.named.run(call):
                    if self.function_reads(method, 3):
                        message = (
                            f"{method.cls.name if method.cls else ''}.{method.name}, which this runs by its name, reads the "
                            "gradients of every micro-batch, and they stay scaled until the step: read them beside the step"
                        )
                        raise Blocked(module, reader.stmt, "AMP307", "unscale_", message)
                for function in self.project.resolved.get(call, ()):
                    for node in function.inside:
                        counted = _counted(node)
                        if counted in asked:
                            message = (
                                f"{function.name} reads the gradients of every micro-batch, which stay scaled until the step, "
                                f"and counts {counted}, which decides on the step: read them beside the step, or divide "
                                "what is read by the loss scale"
                            )
                            raise Blocked(module, reader.stmt, "AMP307", "unscale_", message)

    def _conditions(self, module: Module, readers: list[Node], outer: Node, result: Gradients) -> None:
        """A reader taken out of a branch that decides whether it runs at all stays under the same condition."""
        for reader in readers:
            parts: list[str] = []
            for node in chain(reader):
                holder = node.parent.holder
                if holder is None or holder in chain(outer):
                    break
                if not isinstance(holder.stmt, ast.If):
                    continue
                test = holder.stmt.test
                if any(isinstance(n, (ast.Call, ast.Subscript, ast.NamedExpr)) for n in walk(test)):
                    raise Blocked(
                        module,
                        reader.stmt,
                        "AMP307",
                        "unscale_",
                        "reads the gradients of every micro-batch in one branch of a condition; with GradScaler it "
                        "belongs to the step, under the same condition: move it there by hand",
                    )
                text = module.source(test) if test.lineno == test.end_lineno else module.written(test)
                if node.parent is not holder.blocks[0]:
                    text = f"not ({text})" if isinstance(test, (ast.BoolOp, ast.Compare)) else f"not {text}"
                elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
                    text = f"({text})"
                parts.append(text)
            if parts:
                result.conditions[reader.stmt] = " and ".join(reversed(parts))

    def _steps_anyway(self, branch: Node, step: Step, live: list[tuple[Step, Node]]) -> bool:
        """Whether both branches of an `if` step the same optimizer: it does not decide on the step."""
        nodes = {n for other, n in live if other.name == step.name}

        def stepping(node: Node) -> bool:
            """Also through what the program has for another back end: `scaler.step(optimizer)`, `xm.optimizer_step(optimizer)`."""
            steps = ("step", "optimizer_step")
            handed = (a.args[:1] for a in node.calls if called_name(a) in steps)
            return node in nodes or any(step.module.source(o) == step.name for given in handed for o in given)

        return len(branch.blocks) == 2 and all(any(map(stepping, block.walk())) for block in branch.blocks)

    def _first_after_backward(self, node: Node) -> Node:
        nodes = node.parent.nodes
        last = max((i for i in range(node.index) if self.backward(nodes[i])), default=-1)
        return nodes[last + 1]

    def between(self, module: Module, node: Node, step: Step) -> list[Node]:
        """Readers in a node's block between the last backward and the node."""
        nodes = node.parent.nodes
        backwards = [i for i in range(node.index) if self.backward(nodes[i])]
        start = backwards[-1] + 1 if backwards else 0
        found = self._about(module, nodes[start : node.index], step)
        if backwards:
            # A reader may also stand behind the backward, inside the compound statement that holds it.
            held = nodes[backwards[-1]]
            if held.blocks and not repeats(held.stmt):
                for block in self.scaling(held):
                    deeper = [i for i, n in enumerate(block.nodes) if self.backward(n)]
                    if deeper:
                        found = self._about(module, block.nodes[deeper[-1] + 1 :], step) + found
        return found

    def _heard(self, node: Node, readers: list[Node], result: Gradients) -> list[Node]:
        """Readers before a step with the events that are fired between the backward beside it and the step."""
        nodes = node.parent.nodes
        last = max((i for i in range(node.index) if self.backward(nodes[i])), default=None)
        between = nodes[last + 1 : node.index] if last is not None else []
        heard = [n for n in between if n not in readers and any(fires(self.project, c) for c in n.all_calls)]
        result.fired.update(n.stmt for n in heard)
        return _in_order([*readers, *heard]) if heard else readers

    def _about(self, module: Module, nodes: Iterable[Node], step: Step) -> list[Node]:
        """Of some statements those that read the gradients of a step's optimizer."""
        return [n for n in nodes if self.reads(module, n) and self.concerns(module, n, step)]

    def scaling(self, held: Node) -> list[Block]:
        """The branches of a statement that scale; all where none does so plainly. A float32 copy reads its own."""
        found = [b for b in held.blocks if any(self.scaled(n) for n in b.walk())]
        return found or held.blocks

    def scaled(self, node: Node) -> bool:
        """Whether a statement runs a scaled backward: one of the unit's losses, or a call of a function with one."""
        if node not in self._scaled:
            self._scaled[node] = node.stmt in self._bodies or self.calls_scaled(node)
        return self._scaled[node]

    def deep(self, module: Module, node: Node) -> Node:
        """The place for `unscale_`: as deep as all readers of a statement allow, never inside a loop."""
        if not node.blocks or self.reads_own(module, node) or isinstance(node.stmt, (*LOOP_NODES, ast.Try)):
            return node
        reading = [b for b in node.blocks if any(self.reads(module, n) for n in b.nodes)]
        if len(reading) != 1:
            return node
        first = next(n for n in reading[0].nodes if self.reads(module, n))
        return self.deep(module, first)

    def _kept(self, readers: list[Node], node: Node, result: Gradients) -> None:
        """Values of moved readers that code outside the step's branch still uses keep their last one."""
        assigned = {
            n.id
            for r in readers
            for n in r.all()
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id != "_"
        }
        outer = chain(node)
        loop = next((n for n in outer if repeats(n.stmt)), None)
        if loop is None:
            return
        inside = {id(a) for n in node.parent.nodes for a in n.all()} | {id(a) for r in readers for a in r.all()}
        for name in sorted(assigned):
            if any(
                isinstance(a, ast.Name) and a.id == name and isinstance(a.ctx, ast.Load) and id(a) not in inside
                for a in loop.all()
            ):
                result.kept_values.append((name, loop.stmt))

    def _early_exits(self, start: Node, node: Node, step: Step, result: Gradients) -> None:
        """`continue` and `return` between unscaling and the step: the scaler must be updated on that path too."""
        if start.parent is not node.parent:
            return
        after = node.index + (node.stmt is not step.stmt)
        for between in node.parent.nodes[start.index : after]:
            for stmt in leaving(between):
                result.update_before.append((stmt, step))


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda n: n.stmt.lineno)


def _counted(node: ast.AST) -> str:
    """The attribute that a statement counts up: `self.number += 1`, `self.number = self.number + 1`."""
    target: ast.expr | None = node.target if isinstance(node, ast.AugAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        if ast.unparse(node.targets[0]) == ast.unparse(node.value.left):
            target = node.targets[0]
    return target.attr if isinstance(target, ast.Attribute) else ""


def _reads_results(readers: list[Node], branch: Node) -> bool:
    """Whether a branch is taken by what reading the gradients gave, such as their norm."""
    given = {n.id for r in readers for n in r.all() if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return branch in readers or any(isinstance(n, ast.Name) and n.id in given for n in branch.own)
