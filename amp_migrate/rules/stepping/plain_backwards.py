"""A plain backward whose gradients go into a scaled step carries the scale as well.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.chains import exclusive
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.positions import Gradients
from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.unit import Blocked, Step
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP217",
        "A plain backward into a scaled step is scaled too",
        "backward",
        apex="The gradients of scaled losses are unscaled at once, so a plain backward may add to them.",
        native="Gradients stay scaled until the step: everything that adds to them must carry the same scale.",
        why="Adversarial training and auxiliary losses often call backward on their own.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
        examples=(Example("adversarial_loss.backward()", "scaler.scale(adversarial_loss).backward()"),),
    ),
)


def scale_plain_backwards(
    m: Migration, reader: GradientReader, scope: Scope, steps: list[Step], plan: Gradients
) -> None:
    """A plain backward whose gradients go into a scaled step must be scaled as well: Apex had unscaled the others."""
    module = scope.module
    scaled = _scaled(m, scope)
    if not scaled:
        return
    every = sorted(
        (c for c in module.calls_in(scope) if isinstance(c.func, ast.Attribute) and c.func.attr == "step"),
        key=lambda c: c.lineno,
    )
    mine = {s.call for s in steps if s.call not in plan.plain}
    for call in module.calls_in(scope):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
            continue
        receiver = call.func.value
        if m.project.resolved.get(call) or not isinstance(receiver, (ast.Name, ast.Attribute, ast.BinOp)):
            continue
        if not m.live(module, call) or any(a in scaled.values() for a in module.ancestors(call)):
            continue
        following = next((c for c in every if c.lineno > call.lineno and _is_optimizer_step(m, module, c)), None)
        if following not in mine or any(exclusive(module, call, stmt) for stmt in scaled.values()):
            continue
        step = next(s for s in steps if s.call is following)
        if _cleared(reader, step, call, scaled):
            continue
        m.edit(module).insert("before", receiver, f"{m.scaler_at(module, call, step.optimizer)}.scale(")
        m.edit(module).insert("after", receiver, ")")
        m.output.note(
            module,
            call,
            "AMP217",
            "backward",
            "scaled too: its gradients go into the same step as scaled ones",
            "review",
        )


def _scaled(m: Migration, scope: Scope) -> dict[ast.Call, ast.stmt]:
    """Where a scope scales a loss, itself or in a function that it calls, with the statement of each."""
    module = scope.module
    losses = [x for x in m.unit.losses if x.module is module and module.scope_of(x.call) is scope]
    leading = {f for x in m.unit.losses for f in m.project.callers(m.project.function_of(x.module, x.call))}
    calls = [c for c in module.calls_in(scope) if not leading.isdisjoint(m.project.resolved.get(c, ()))]
    return {**{c: module.statement(c) for c in calls}, **{x.call: x.with_stmt for x in losses}}


def _cleared(reader: GradientReader, step: Step, call: ast.Call, scaled: Iterable[ast.Call]) -> bool:
    """Whether the gradients of a plain backward are gone before the first scaled one below it.

    Raises Blocked where they are read in between: they would have to be both scaled and not.
    """
    module = step.module
    first = min(scaled, key=lambda c: c.lineno)
    if call.lineno > first.lineno:
        return False
    if _innermost_loop(module, call) is not _innermost_loop(module, first):
        return True
    between = [n for n in walk(step.scope.node) if call.lineno < getattr(n, "lineno", 0) < first.lineno]
    if any(isinstance(n, ast.Attribute) and reader.clears(module, n, step) for n in between):
        return True
    if any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in between):
        raise Blocked(
            module,
            call,
            "AMP217",
            "backward",
            "the gradients of this backward are read, and then go into the same step as scaled ones: take the step apart, "
            "or clear the gradients in between",
        )
    return False


def _innermost_loop(module: Module, node: ast.AST) -> ast.AST | None:
    return next((a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)), None)


def _is_optimizer_step(m: Migration, module: Module, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    slot = m.project.slot(module, call.func.value)
    return slot in m.unit.optimizer_slots or "opt" in ast.unparse(call.func.value).lower()
