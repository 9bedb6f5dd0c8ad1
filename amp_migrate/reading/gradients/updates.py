"""Where the scale is updated: once, after the last step of an iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers
from amp_migrate.reading.program.turns import repeats
from amp_migrate.reading.program.view import Block, Node, chain
from amp_migrate.reading.units.unit import Step, Unit


def updates(block: Block, live: Sequence[tuple[Step, Node]]) -> list[tuple[ast.stmt, Step]]:
    """The statements of one function after which the scale is updated, each with a step that it follows."""
    held: dict[int, list[tuple[Step, Node]]] = {}
    for step, node in live:
        for link in chain(node):
            if link.parent is block:
                held.setdefault(link.index, []).append((step, node))
    direct = [
        i
        for i, items in held.items()
        if any(n is block.nodes[i] for _, n in items) or over_optimizers(block.nodes[i], [s for s, _ in items])
    ]
    found: list[tuple[ast.stmt, Step]] = []
    names = {i: {step.name for step, _ in items} for i, items in held.items()}
    for run in _runs(block, names, direct):
        if any(i in direct for i in run):
            last = run[-1]
            found.append((block.nodes[last].stmt, held[last][-1][0]))
            continue
        for i in run:
            for inner in block.nodes[i].blocks:
                found += updates(inner, held[i])
    return found


def _runs(block: Block, names: Mapping[int, set[str]], direct: Sequence[int]) -> list[list[int]]:
    """Statements with steps, split where a step made on every path is followed by a separate iteration's, and before
    one that steps an optimizer once more: a GradScaler refuses that until it has been updated."""
    runs: list[list[int]] = []
    for i in sorted(names):
        again = bool(runs) and any(names[i] & names[other] for other in runs[-1])
        if runs and not again and not _loops(block, i, direct) and not _loops(block, runs[-1][-1], direct):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _loops(block: Block, index: int, direct: Sequence[int]) -> bool:
    return repeats(block.nodes[index].stmt) and index not in direct


def over_optimizers(node: Node, steps: Iterable[Step]) -> bool:
    """`for optimizer in optimizers: optimizer.step()` counts as one step; not where a loop over batches stands within."""
    return all(_goes_through(node.stmt, s) and not _repeated_within(node.stmt, s) for s in steps)


def _goes_through(loop: ast.AST, step: Step) -> bool:
    """Whether a loop sets the optimizer of a step anew each time."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or not repeats(loop):
        return False
    named = identifiers(step.optimizer)
    for around in step.module.ancestors(step.stmt):  # `for each in [optimizer]` gives it another name
        if isinstance(around, (ast.For, ast.AsyncFor)) and around is not loop and not repeats(around):
            named |= identifiers(around.iter) if named & identifiers(around.target) else set()
    return bool(named & identifiers(loop.target))


def _repeated_within(loop: ast.AST, step: Step) -> bool:
    """Whether a step is made again and again for one optimizer of the loop."""
    around = list(step.module.ancestors(step.stmt))
    inner = takewhile(lambda a: a is not loop, around) if loop in around else ()
    return any(repeats(a) and not _goes_through(a, step) for a in inner)


def given_one_of_several(unit: Unit, step: Step) -> bool:
    """Whether a step is that of a parameter, in a function called out of sight, and losses are scaled for a collection."""
    function = unit.project.function_of(step.module, step.call)
    optimizer = step.optimizer
    if function is None or not isinstance(optimizer, ast.Name) or optimizer.id not in function.scope.params:
        return False
    if unit.project.calls.get(function):
        return False
    collections = unit.project.once(_Collections)
    return any(collections.holds(x.module, o) for x in unit.losses for o in x.optimizers)


class _Collections:
    """The attributes and names that are gone through, or added to, somewhere in their files; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self._known: dict[tuple[Module, str], bool] = {}

    def holds(self, module: Module, node: ast.expr) -> bool:
        """Whether an attribute or name is one of them."""
        text = module.source(node)
        if (module, text) not in self._known:
            nodes = (*module.named.get(text.rpartition(".")[2], ()), *module.loads.get(text, ()))
            self._known[module, text] = any(
                isinstance(n, ast.expr) and _gone_through(module, n) and module.source(n) == text for n in nodes
            )
        return self._known[module, text]


def _gone_through(module: Module, node: ast.expr) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is node:
        return True
    return isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend")
