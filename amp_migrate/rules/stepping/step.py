"""`optimizer.step()` becomes `scaler.step(optimizer)` and `scaler.update()`.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from amp_migrate.findings import Code, Example
from amp_migrate.reading.gradients.additions import adds_to_gradients
from amp_migrate.reading.gradients.paths import Fault, GradientPaths, Placements
from amp_migrate.reading.gradients.place import GradientReader, Gradients
from amp_migrate.reading.gradients.served import Served, handed_out, kept_steps
from amp_migrate.reading.gradients.spread import Spread, receiver
from amp_migrate.reading.gradients.updates import given_one_of_several
from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked, Loss, Step
from amp_migrate.reading.values.bound import bound_before, written_before
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.clamp import clamps
from amp_migrate.rules.scale.held_scale import held_scale
from amp_migrate.rules.stepping.closures import closure_argument

STEP = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step"
UPDATE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update"
CLIPPING = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"
ACCUMULATION = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation"

CODES = (
    Code(
        "AMP210",
        "optimizer.step becomes scaler.step and scaler.update",
        "optimizer.step",
        apex="After an overflow, step is replaced for one call by one that does nothing.",
        native="scaler.step skips the step when gradients are not finite; scaler.update then adjusts the scale.",
        why="One update, after the last step of an iteration: the scale must not change while gradients carry it.",
        links=(STEP, UPDATE),
        examples=(Example("optimizer.step()", "scaler.step(optimizer)\nscaler.update()"),),
    ),
    Code(
        "AMP212",
        "step with a closure",
        "optimizer.step",
        apex="Raises for step(closure).",
        native="GradScaler.step does not support closures either.",
        why="Write the closure's passes out, or leave mixed precision off for this optimizer (LBFGS). For an optimizer "
        "that calls its closure once, the pass goes before the step; for SAM, which calls it for a second pass, see "
        "AMP226. A wrapper whose step only hands a closure on, and that nothing in sight gives one, steps through the "
        "scaler; a guard refuses a closure there, as one given by position would run after the gradients were unscaled.",
        links=(STEP,),
        examples=(
            Example(
                "def closure():\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n"
                "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
                "    return loss\n\n\noptimizer.step(closure)\n",
                'optimizer.zero_grad()\nwith torch.autocast("cuda", dtype=torch.float16):\n'
                "    loss = criterion(model(x), y)\nscaler.scale(loss).backward()\n"
                "scaler.step(optimizer)\nscaler.update()\n",
            ),
            Example(
                "def step(self, closure=None):\n    self.optimizer.step(closure)\n",
                "def step(self, closure=None):\n    if closure is not None and self.scaler.is_enabled():\n"
                '        raise RuntimeError("GradScaler does not support closures")\n'
                "    self.scaler.step(self.optimizer, closure)\n    self.scaler.update()\n",
            ),
        ),
    ),
    Code(
        "AMP213",
        "The scaler cannot be handed to code that needs it",
        "GradScaler",
        apex="State is global.",
        native="A GradScaler is an object: every function that scales or steps must be given it.",
        why="Nothing in sight calls this function with one, or the function is passed around as a value.",
        links=(STEP,),
    ),
    Code(
        "AMP214",
        "A step without a scaled loss in sight",
        "optimizer.step",
        apex="Steps with whatever gradients there are.",
        native="scaler.step divides by the scale: it must only see gradients of scaled losses.",
        why="The backward before this step is a plain one, so it stays a plain step.",
        links=(STEP,),
    ),
    Code(
        "AMP216",
        "The step of a scaled loss is not in sight",
        "optimizer.step",
        apex="Gradients are unscaled when the with statement ends: any step will do.",
        native="Gradients stay scaled until scaler.step: a plain step would apply them multiplied by the scale.",
        why="The optimizer is stepped in another file, through a wrapper that hides it, by a method kept as a value, or in "
        "an expression that may leave the step out.",
        links=(STEP,),
    ),
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
    Code(
        "AMP301",
        "Gradients are unscaled before they are read",
        "clip_grad_norm_",
        apex="Gradients are unscaled when the with statement ends.",
        native="scaler.unscale_(optimizer), once, before the first reader of .grad; the step then does not unscale again.",
        why="Otherwise clipping and logging see gradients times the scale.",
        links=(CLIPPING,),
        examples=(
            Example(
                "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\noptimizer.step()",
                "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "scaler.step(optimizer)\nscaler.update()",
            ),
        ),
    ),
    Code(
        "AMP302",
        "A gradient reader moved from every micro-batch to the step",
        "clip_grad_norm_",
        apex="Gradients are unscaled after every backward, so they could be clipped after each micro-batch.",
        native="Gradients can be unscaled once per step, when they are complete.",
        why="Clipping partial sums of gradients is rarely meant; the curve differs where the clip binds. What adds to "
        "gradients, such as a penalty on the weights, adds once per step then; the finding says so.",
        links=(ACCUMULATION, CLIPPING),
    ),
    Code(
        "AMP307",
        "Gradients are read where they cannot be unscaled with certainty",
        "unscale_",
        apex="Gradients are unscaled when the with statement ends, wherever they are read.",
        native="scaler.unscale_(optimizer) once per step, after its last backward, before the first reader of .grad.",
        why="On some path to this line the gradients would be multiplied by the scale, or be unscaled twice. Read them "
        "in the function that steps, on the way from the last backward to the step.",
        links=(CLIPPING, ACCUMULATION),
    ),
    Code(
        "AMP308",
        "Only the direction of gradients is read, between two backwards",
        "grad",
        apex="Gradients are unscaled when the with statement ends, so they are read unscaled.",
        native="They stay scaled until the last backward of the step: grad / grad.norm() and grad.sign() are the same.",
        why="Adversarial training (FGM, PGD) moves weights along the gradient's direction before a second backward. The "
        "backward that follows is scaled as well (AMP217), and an overflow in either skips the step.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
    ),
    Code(
        "AMP303",
        "The scale is updated on early exits too",
        "scaler.update",
        apex="Unscaling and updating happen together.",
        native="After unscale_, update must run before the next unscale_, also when the step is left out.",
        why="Otherwise the next iteration raises: unscale_() has already been called on this optimizer.",
        links=(UPDATE,),
    ),
)

FAULTS = {
    "read": "gradients are read here while they may still be scaled: no place for unscale_ serves every path to the step; "
    "read them in the function that steps, between the last backward and the step",
    "unscaled twice": "gradients may be unscaled twice before one step; read them once per step, after its last backward",
    "updated between": "the scale would be updated here while the gradients of another optimizer still carry it: step all "
    "the optimizers of an iteration one after the other, in one function",
    "stepped twice": "the optimizer may be stepped twice before the scale is updated, which GradScaler refuses: step it once "
    "for each backward",
    "stepped again": "steps once more with gradients that were stepped with already: GradScaler would divide them by the "
    "scale again; step once for each backward",
    "added to": "a backward may add to gradients that were unscaled to be read; read them after the last backward of a step",
}


def apply(m: Migration) -> None:
    """Place unscale_, step and update in every scope that steps one of the unit's optimizers."""
    if not m.scales:
        return
    reader = m.gradients
    groups: dict[tuple[Scope, ScalerPlan], list[Step]] = {}
    for step in m.unit.steps:
        if m.live(step.module, step.call):
            groups.setdefault((step.scope, m.scaler_of(step.module, step.optimizer)), []).append(step)
    _refuse_kept(m)
    placements = Placements()
    plans: dict[Scope, Gradients] = {}
    for (scope, _), steps in groups.items():
        plan = reader.plan(scope.module, m.regions.view(scope), steps)
        plans.setdefault(scope, Gradients()).add(plan)
    spread = Spread(m.unit, reader, m.regions.view, plans)
    for (scope, _), steps in groups.items():
        for step in steps:
            if step.call not in plans[scope].plain:
                spread.extend(step)
    entries = spread.entries()
    spread.lift_updates()
    for (scope, _), steps in groups.items():
        for step in steps:
            _step(m, step, plans[scope])
        if any(step.call not in plans[scope].plain for step in steps):
            _plain_backwards(m, reader, scope, steps, plans[scope])
    for scope, plan in plans.items():
        _unscale(m, scope.module, plan, entries)
        _move(m, scope.module, plan)
        _update(m, scope.module, plan)
        _record(placements, plan)
    _refuse_unserved(m, reader, [s for steps in groups.values() for s in steps if s.call not in placements.plain])
    paths = GradientPaths(m.unit, reader, m.regions.view, placements)
    faults = paths.walk()
    if faults:
        _refuse(faults[0])
    m.idle_steps = paths.idle
    _directions(m, reader)


def _refuse_kept(m: Migration) -> None:
    """Refuse a unit whose optimizers may be stepped in a way that cannot be turned into a call of the scaler."""
    for module, node, what in kept_steps(m.unit):
        if m.live(module, node):
            raise Blocked(
                module,
                node,
                "AMP216",
                "optimizer.step",
                f"{what}; GradScaler must make the call: write scaler.step(optimizer) where it is called, and one "
                "scaler.update() after the last optimizer's step",
            )


def _refuse_unserved(m: Migration, reader: GradientReader, steps: list[Step]) -> None:
    """Refuse a unit with a scaled backward that none of its steps goes with, unless nothing else can step: then its
    gradients are not for the optimizer, as those of an adversarial example."""
    if steps and not handed_out(m.unit):
        return
    served = Served(m.unit, reader, m.regions.view, steps)
    for loss in m.unit.losses:
        if m.live(loss.module, loss.call) and not served.serves(loss):
            raise Blocked(
                loss.module,
                loss.call,
                "AMP216",
                "optimizer.step",
                "the step of this loss's optimizer is not in sight, and it must go through the scaler: rewrite this file "
                "together with the one that steps, or step the optimizer itself rather than a wrapper",
            )


def _record(placements: Placements, plan: Gradients) -> None:
    """What a plan puts where, for the walk over all paths."""
    for stmt, step in plan.unscale:
        there = placements.unscale.setdefault(stmt, [])
        if not any(step.name == s.name for s in there):
            there.append(step)
    for stmts, target, step in plan.moved:
        placements.unscale.setdefault(plan.inner.get(stmts[0], target), []).append(step)
        placements.moved.setdefault(target, []).extend(stmts)
    placements.update.update(stmt for stmt, _ in plan.update_before)
    placements.updated.update(stmt for stmt, _ in plan.update_after)
    placements.plain |= plan.plain


def _refuse(fault: Fault) -> None:
    raise Blocked(fault.module, fault.node, "AMP307", "unscale_", FAULTS[fault.kind])


def _step(m: Migration, step: Step, plan: Gradients) -> None:
    module, call = step.module, step.call
    if step.call in plan.plain and not any(isinstance(a, ast.Lambda) for a in _within_statement(module, call)):
        m.output.note(
            module,
            call,
            "AMP214",
            "optimizer.step",
            "left as it is: the backward before it is not scaled",
        )
        return
    if any(isinstance(a, (ast.Lambda, ast.IfExp, ast.BoolOp)) for a in _within_statement(module, call)):
        raise Blocked(
            module,
            call,
            "AMP216",
            "optimizer.step",
            "the step stands in an expression that may leave it out, or run it elsewhere: write it as a statement of its "
            "own, which scaler.step and scaler.update can take the place of",
        )
    scaler = m.scaler_at(module, call, step.optimizer)
    closure = closure_argument(m, step, scaler)
    edits = m.edit(module)
    parts: list[str | ast.expr | ast.stmt] = [f"{scaler}.step(", step.optimizer]
    if closure:
        parts.append(f", {closure}")
    for keyword in call.keywords:
        if keyword.arg != "closure":  # GradScaler refuses the keyword, even where it gives None
            parts += [f", {keyword.arg}=" if keyword.arg else ", **", keyword.value]
    edits.replace(call, (*parts, ")"))
    m.output.done(module, call, "AMP210", "optimizer.step", "the step goes through the scaler")


def _directions(m: Migration, reader: GradientReader) -> None:
    """Name the functions that read gradients while they carry the scale, and why they may."""
    for function, calls in m.project.calls.items():
        if not calls or function.module not in m.unit.tied or "grad" not in function.module.text:
            continue
        found = reader.uses.grads.directions(function.module, function.scope)
        if found.free and any(reader.uses.grads.of_parameter(function.module, n) for n in found.grads):
            m.output.note(
                function.module,
                found.grads[0],
                "AMP308",
                "grad",
                f"{function.name} may read gradients before they are unscaled: only their direction matters to it",
                "look",
            )


def _within_statement(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The expressions around a node."""
    return takewhile(lambda a: not isinstance(a, ast.stmt), module.ancestors(node))


def _plain_backwards(m: Migration, reader: GradientReader, scope: Scope, steps: list[Step], plan: Gradients) -> None:
    """A plain backward whose gradients go into a scaled step must be scaled as well: Apex had unscaled the others."""
    module = scope.module
    losses = [x for x in m.unit.losses if x.module is module and module.scope_of(x.call) is scope]
    if not losses:
        return
    every = sorted(
        (c for c, s in module.calls if s is scope and isinstance(c.func, ast.Attribute) and c.func.attr == "step"),
        key=lambda c: c.lineno,
    )
    mine = {s.call for s in steps if s.call not in plan.plain}
    for call, inner in module.calls:
        if inner is not scope or not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
            continue
        receiver = call.func.value
        if m.project.resolved.get(call) or not isinstance(receiver, (ast.Name, ast.Attribute, ast.BinOp)):
            continue
        if not m.live(module, call) or any(a is x.with_stmt for x in losses for a in module.ancestors(call)):
            continue
        following = next((c for c in every if c.lineno > call.lineno and _is_optimizer_step(m, module, c)), None)
        if following not in mine or _other_side(module, call, losses):
            continue
        step = next(s for s in steps if s.call is following)
        if _cleared(reader, step, call, losses):
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


def _cleared(reader: GradientReader, step: Step, call: ast.Call, losses: list[Loss]) -> bool:
    """Whether the gradients of a plain backward are gone before the first scaled one below it.

    Raises Blocked where they are read in between: they would have to be both scaled and not.
    """
    module = step.module
    first = min((x.call for x in losses), key=lambda c: c.lineno)
    if call.lineno > first.lineno:
        return False
    if _innermost_loop(module, call) is not _innermost_loop(module, first):
        return True
    between = [n for n in ast.walk(step.scope.node) if call.lineno < getattr(n, "lineno", 0) < first.lineno]
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


def _other_side(module: Module, call: ast.Call, losses: list[Loss]) -> bool:
    """Whether a backward stands in the branch beside a scaled one: only one of them runs."""
    for loss in losses:
        around = set(module.ancestors(loss.with_stmt))
        for parent in module.ancestors(call):
            if isinstance(parent, ast.If) and parent in around:
                return True
    return False


def _unscale(m: Migration, module: Module, plan: Gradients, entries: list[ast.stmt]) -> None:
    edits = m.edit(module)
    seen: set[tuple[ast.stmt, str]] = set()
    for stmt, step in plan.unscale:
        text = step.name
        if (stmt, text) in seen:
            continue
        seen.add((stmt, text))
        edits.insert_before(stmt, *_unscaling(m, module, plan, stmt, step))
        message = f"gradients of {text} are unscaled before they are read"
        if stmt in entries:
            message += (
                "; nothing in sight calls this: call it once per step, after the last backward, and step after it"
            )
        m.output.note(module, stmt, "AMP301", "unscale_", message, "review" if stmt in entries else "as-is")
    for stmt, step in plan.update_before:
        line = _update_line(m, module, stmt, step)
        edits.insert_before(stmt, *line)
        m.output.note(
            module, stmt, "AMP303", "scaler.update", "leaving here skips the step; the scale is updated first"
        )


def _unscaling(m: Migration, module: Module, plan: Gradients, stmt: ast.stmt, step: Step) -> list[str]:
    """The unscaling of an optimizer before a statement; of each where a later loop steps them."""
    scaler = _scaler(m, module, stmt, step)
    loop = plan.loops.get(stmt)
    if loop is not None:
        header = f"for {module.source(loop.target)} in {_before(m, module, stmt, step, module.source(loop.iter))}:"
    else:
        header = step.each or _comprehension(m, stmt, step)
    name = step.name if header else _before(m, module, stmt, step, step.name)
    root = scaler.partition(".")[0]
    if not bound_before(module, module.scope_of(stmt), root, stmt):  # what keeps it is made further down
        scaler = m.scaler_at(module, stmt)
    line = f"{scaler}.unscale_({name})"
    return [f"{header}\n{m.style(module).indent}{line}"] if header else [line]


def _before(m: Migration, module: Module, stmt: ast.stmt, step: Step, source: str) -> str:
    """An optimizer as it can be written before a statement, which may stand above what gives it the name it has at its
    step: by what the name stands for, or as the scaled loss of the same function names it."""
    text = written_before(module, source, stmt)
    if text is not None:
        return text
    scope = module.scope_of(stmt)
    named = {
        module.source(o)
        for x in m.unit.losses
        if x.module is module and module.scope_of(x.call) is scope
        for o in x.optimizers
    }
    if len(named) == 1 and source == step.name:
        return named.pop()
    raise Blocked(
        module,
        stmt,
        "AMP307",
        "unscale_",
        f"gradients are read here, above the statement that makes {source}, which is stepped: unscaling has to "
        "name the optimizer, so make it further up",
    )


def _comprehension(m: Migration, stmt: ast.stmt, step: Step) -> str:
    """The loop over the optimizers of a comprehension that steps: `for optimizer in optimizers:`."""
    module = step.module
    for around in _within_statement(module, step.call):
        if isinstance(around, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            *more, last = around.generators
            if more or last.ifs:
                raise Blocked(
                    module,
                    step.call,
                    "AMP216",
                    "optimizer.step",
                    "gradients are read before this, and unscaled there for each optimizer that is stepped here: write the "
                    "steps as a loop of statements",
                )
            return f"for {module.source(last.target)} in {_before(m, module, stmt, step, module.source(last.iter))}:"
    return ""


def _scaler(m: Migration, module: Module, stmt: ast.stmt, step: Step) -> str:
    """The scaler of a step where a statement stands, which may be in a caller of the function that steps."""
    if step.passed:
        return m.scaler_of(step.home or module, step.optimizer).at(module, stmt)
    if step.within is None:
        return m.scaler_at(module, stmt, step.optimizer)
    inner = _scaler(m, step.within.module, step.within.stmt, step.within)
    name, _, rest = inner.partition(".")
    holder = receiver(step.module, step.call)
    if rest and name == step.within.scope.self_name and holder is not None:
        return f"{holder}.{rest}"
    root = step
    while root.within is not None:
        root = root.within
    return m.scaler_of(root.module, root.optimizer).at(module, stmt)


def _move(m: Migration, module: Module, plan: Gradients) -> None:
    edits = m.edit(module)
    moved: set[ast.stmt] = set()
    for stmts, target, step in plan.moved:
        fresh = [s for s in stmts if s not in moved]
        lines = _unscaling(m, module, plan, target, step)
        edits.insert_before(plan.inner.get(stmts[0], target), *lines)
        for stmt in fresh:
            moved.add(stmt)
            edits.move(stmt, target, plan.conditions.get(stmt, ""))
            message = "read the gradients after every micro-batch; moved to the step, where they are complete"
            if adds_to_gradients(m.project, stmt):
                message += "; what it adds to them it now adds once per step, not once per micro-batch"
            m.output.note(module, stmt, "AMP302", "clip_grad_norm_", message, "review")
    for name, loop in plan.kept_values:
        edits.insert_before(loop, f"{name} = 0.0")


def _update(m: Migration, module: Module, plan: Gradients) -> None:
    edits = m.edit(module)
    for stmt, step in plan.update_after:
        lines = _update_line(m, module, stmt, step)
        if isinstance(stmt, ast.Return) and stmt.value is not None:  # `return optimizer.step()`
            name = unbound(module.scope_of(stmt), ("result", "step_result"))
            edits.replace(stmt, (f"{name} = ", stmt.value), *lines, f"return {name}")
        else:
            edits.insert_after(stmt, *lines)
        if given_one_of_several(m.unit, step):
            m.output.note(
                module,
                step.call,
                "AMP210",
                "optimizer.step",
                "the scale is updated after each call of this function: where several optimizers step with the gradients "
                "of one loss, update it once, after the last of them",
                "review",
            )


def _update_line(m: Migration, module: Module, stmt: ast.stmt, step: Step) -> list[str]:
    scaler = _scaler(m, module, stmt, step)
    held = held_scale(m, module, stmt, step)
    return [f"{scaler}.update({held.value})", *clamps(m, scaler, module, stmt, step, held.dynamic)]
