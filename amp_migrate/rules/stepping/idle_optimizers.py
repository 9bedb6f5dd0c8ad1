"""Several optimizers under one scaler, of which one may get no gradient in an iteration.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.view import Node, chain, find
from amp_migrate.reading.units.places import models_given, place_name
from amp_migrate.reading.units.unit import Blocked, Step
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.stepping.only_with_gradients import only_with_gradients

CODES = (
    Code(
        "AMP219",
        "An optimizer may get no gradient in an iteration",
        "optimizer.step",
        apex="Steps with whatever gradients there are: with None it does nothing, with zeros, which torch's zero_grad left before "
        "2.0, momentum and weight decay still move the weights (O2 cleared those of its float16 weights to None).",
        native="scaler.step raises where none of the optimizer's parameters has a gradient: No inf checks were recorded "
        "for this optimizer.",
        why="A forward that only some iterations run leaves the parameters of its model without gradients in the others: "
        "step that optimizer under the same condition. A batch that is skipped before its backward, because its loss is "
        "not finite, must skip the step as well, and so must a last step after the loop where no backward came since "
        "the one before. Where a step by itself is all that is done on such a path, it is written under a test for a gradient.",
        links=(
            "https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
        ),
    ),
)

GONE = "no gradient is left there, and scaler.step raises"
KEPT = "the gradients still there would be divided by the scale once more, and without any scaler.step raises"
NOTHING = (
    "Apex's step did nothing there where zero_grad sets gradients to None, as torch does since 2.0; where it left zeros, momentum "
    "and weight decay still moved the weights"
)


def apply(m: Migration) -> None:
    if not m.scales:
        return
    for step in m.unit.steps:
        if step.call in m.idle_steps:
            _without_gradients(m, step)
    scopes: dict[Scope, list[Step]] = {}
    for step in (s for s in m.unit.steps if s.call not in m.idle_steps):
        if m.live(step.module, step.call):
            scopes.setdefault(step.scope, []).append(step)
    for scope, steps in scopes.items():
        if len({scope.module.source(step.optimizer) for step in steps}) > 1:
            _review(m, scope, steps)


def _without_gradients(m: Migration, step: Step) -> None:
    """A step that some path comes to without a backward since the one before: taken where there is a gradient only."""
    gone = m.idle_steps[step.call]
    path = f"on some path no backward comes between the last step of {step.name} and this one, "
    if step.call in m.emptied_steps:
        path += "which clears the gradients"
    else:
        path += "where a batch is skipped or after the last one"
    if gone and only_with_gradients(m, step):
        message = f"steps where there is a gradient only: {path}, and scaler.step raises without any. {NOTHING}"
        m.output.note(step.module, step.call, "AMP219", "optimizer.step", message, "look")
        return
    if step.call in m.emptied_steps:
        message = f"{path}: {GONE}. Step once for each backward: in an else of the condition of the other step, say"
        raise Blocked(step.module, step.call, "AMP219", "optimizer.step", message)
    why = f"{GONE}. {NOTHING}" if gone else KEPT
    message = f"{path}: {why}; leave the step out on that path"
    m.output.note(step.module, step.call, "AMP219", "optimizer.step", message, "review")


def _review(m: Migration, scope: Scope, steps: list[Step]) -> None:
    """Say so at each step that stands outside of a condition which a forward of some model stands under."""
    module, view = scope.module, m.regions.view(scope)
    nodes = list(view.walk())
    forwards = [
        (n, call) for n in nodes for call in n.own if isinstance(call, ast.Call) and m.regions.is_forward(module, call)
    ]
    for step in steps:
        stepped = find(view, step.stmt)
        if stepped is None:
            continue
        own, entries = _models_of(m, step), _entries_of(m, step)
        rare = {
            ast.unparse(call.func)
            for node, call in forwards
            if _rarer(node, stepped)
            and (own is None or m.project.slot(module, call.func) in own)
            and (entries is None or place_name(call.func) in entries)
        }
        always = {
            ast.unparse(call.func)
            for node in nodes
            if node.stmt.lineno < step.stmt.lineno and not _rarer(node, stepped)
            for call in node.own
            if isinstance(call, ast.Call)
        }
        if not rare - always:
            continue
        m.output.note(
            module,
            step.call,
            "AMP219",
            "optimizer.step",
            f"a forward above runs under a condition: where {module.source(step.optimizer)} gets no gradient, scaler.step "
            "raises; step it under the same condition",
            "review",
        )


def _models_of(m: Migration, step: Step) -> set[Slot] | None:
    """Where the models are whose parameters an optimizer was made with; None where that is not in sight."""
    optimizer = set(m.project.sources(step.module, step.optimizer))
    found: set[Slot] = set()
    for module in m.unit.reach:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
                continue
            slot = m.project.slot(module, node.targets[0])
            if slot is None or slot not in m.unit.optimizer_slots or not optimizer & m.project.reaches([slot]):
                continue
            for part in walk(node.value):
                if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters"):
                    found |= set(m.project.sources(module, part.value))
    return m.project.reaches(m.project.origins(found)) if found else None


def _entries_of(m: Migration, step: Step) -> set[str] | None:
    """The models, as they are written, whose parameters an entry of a mapping was made with: `nets["one"]` of `steppers["one"]`.
    None of an optimizer that is no entry, or of which that is not in sight."""
    if not isinstance(step.optimizer, ast.Subscript):
        return None
    name = place_name(step.optimizer)
    found = m.project.once(models_given, step.module).get(name or "")
    return found if found and all("[" in model or "." in model for model in found) else None


def _rarer(forward: Node, step: Node) -> bool:
    """Whether a forward stands under an `if` without a counterpart in its else, beside the step."""
    above = chain(step)
    for node in chain(forward)[1:]:
        if node in above:
            return False
        if isinstance(node.stmt, ast.If) and not node.stmt.orelse:
            return any(a.parent is node.parent for a in above) and node.stmt.lineno < step.stmt.lineno
    return False
