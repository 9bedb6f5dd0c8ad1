"""`optimizer.step()` becomes `scaler.step(optimizer)` and `scaler.update()`.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.gradients.events import Fault, Placements
from amp_migrate.reading.gradients.paths import GradientPaths
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.positions import Gradients
from amp_migrate.reading.gradients.served import Served, handed_out, kept_steps, stays_local
from amp_migrate.reading.gradients.spread import Spread
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.units.unit import Blocked, Loss, ReadsEach, Step
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.stepping import tpu, unscale
from amp_migrate.rules.stepping.chosen import chooses
from amp_migrate.rules.stepping.closures import closure_argument
from amp_migrate.rules.stepping.plain_backwards import scale_plain_backwards

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
        "scaler; a guard refuses a closure there, as one given by position would run after the gradients were unscaled. So does "
        "a step whose closure is None wherever the loss is scaled, and a function only in the branch without Apex.",
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
        why="The backward before this step is a plain one, or none of its parameters takes a gradient (requires_grad=False), "
        "where scaler.step would raise: it stays a plain step.",
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
        "AMP307",
        "Gradients are read where they cannot be unscaled with certainty",
        "unscale_",
        apex="Gradients are unscaled when the with statement ends, wherever they are read.",
        native="scaler.unscale_(optimizer) once per step, after its last backward, before the first reader of .grad.",
        why="On some path to this line the gradients would be multiplied by the scale, or be unscaled twice. Read them "
        "in the function that steps, on the way from the last backward to the step.",
        links=(CLIPPING, ACCUMULATION),
    ),
)

FAULTS = {
    "read": "gradients are read here while they may still be scaled: no place for unscale_ serves every path to the step; "
    "read them in the function that steps, between the last backward and the step",
    "unscaled twice": "gradients may be unscaled twice before one step; read them once per step, after its last backward",
    "updated between": "the scale would be updated here while the gradients of another optimizer still carry it, and these are "
    "used after it: step all the optimizers of an iteration one after the other, in one function, or clear what is not "
    "stepped with before the next backward",
    "stepped twice": "the optimizer may be stepped twice before the scale is updated, which GradScaler refuses: step it once "
    "for each backward",
    "stepped again": "steps once more with gradients that were stepped with already: GradScaler would divide them by the "
    "scale again; step once for each backward",
    "divided": "gradients are read here where they carry the scale on some paths only: read them in the function that "
    "steps, between the last backward and the step",
    "added to": "a backward may add to gradients that were unscaled to be read; read them after the last backward of a step",
}


NEVER_SCALED = (
    "left as it is: no scaled backward comes before it. At O2 Apex stepped masters, which only scale_loss gives gradients: "
    "nothing was trained here; now it is, by a loss that is not scaled. Write scaler.scale(loss).backward(), "
    "scaler.step(optimizer) and scaler.update()"
)
NAMED_BY_NONE = (
    "no scale_loss names this optimizer: with Apex it stepped with gradients that were never unscaled at O1, and with none at "
    "O2; the scaler unscales them now, and it trains"
)

WITHOUT_GRADIENTS = (
    "left as it is: the gradients are cleared right before it, so that it trains nothing, as before; it may go where it was "
    "there for Apex (for delay_unscale, say)"
)

TAKING_NONE = (
    "left as it is: none of the parameters that this optimizer was made with takes a gradient. It steps nothing, as before, and "
    "scaler.step raises for it; it may go"
)


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
    tpu.apply(m)
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
    m.updates = {scope: [stmt for stmt, _ in plan.update_after] for scope, plan in plans.items()}
    m.plain_steps = {call for plan in plans.values() for call in plan.plain}
    for (scope, _), steps in groups.items():
        for step in steps:
            _step(m, step, plans[scope])
        if any(step.call not in plans[scope].plain for step in steps):
            scale_plain_backwards(m, reader, scope, steps, plans[scope])
    for scope, plan in plans.items():
        unscale.write(m, scope.module, plan, entries)
        _record(placements, plan)
    _refuse_unserved(m, reader, [s for steps in groups.values() for s in steps if s.call not in placements.plain])
    paths = GradientPaths(m.unit, reader, m.regions.view, placements)
    faults = paths.walk()
    if faults and not m.scale_is_one:
        _refuse(faults[0])
    m.idle_steps, m.emptied_steps = paths.idle, paths.emptied
    unscaled = [s for plan in plans.values() for s in (*(s for _, s in plan.unscale), *(s for *_, s in plan.moved))]
    m.unscaled_steps = {step.root.call for step in unscaled}
    unscale.note_directions(m, reader)


def _refuse_kept(m: Migration) -> None:
    """Refuse a unit whose optimizers may be stepped in a way that cannot be turned into a call of the scaler."""
    for module, node, reason in kept_steps(m.unit):
        if m.live(module, node):
            raise Blocked(module, node, "AMP216", "optimizer.step", reason)


def _refuse_unserved(m: Migration, reader: GradientReader, steps: list[Step]) -> None:
    """Refuse a unit with a scaled backward that none of its steps goes with, unless nothing else can step: then its
    gradients are not for the optimizer, as those of an adversarial example."""
    handed = handed_out(m.unit)
    if steps and handed is None:
        return
    reason = (
        "the step of this loss's optimizer is not in sight, and it must go through the scaler: rewrite this file "
        "together with the one that steps, or step the optimizer itself rather than a wrapper"
    )
    if steps and handed is not None:
        where, call = handed
        at = ", ".join(f"{s.module.display}:{s.call.lineno}" for s in steps[:3])
        reason = (
            f"the calls of this backward and of the step at {at} are not seen to follow each other, and what is called at "
            f"{where.display}:{call.lineno} is out of sight, is given an optimizer and may step it: call both in one function, on "
            "an object whose class is seen"
        )
    served = Served(m.unit, reader, m.regions.view, steps)
    for loss in m.unit.losses:
        if m.live(loss.module, loss.call) and not served.serves(loss):
            if handed is None and stays_local(loss):
                reason = _unstepped(loss)
            raise Blocked(loss.module, loss.call, "AMP216", "optimizer.step", reason)


def _unstepped(loss: Loss) -> str:
    """What is said of a loss whose optimizer nothing steps on its paths."""
    return (
        f"nothing steps {loss.module.source(loss.optimizers[0])} after this backward, and it is given to nothing that may: with "
        "Apex, too, this trained nothing. Step it there, and rewrite again"
    )


def _refuse(fault: Fault) -> None:
    if fault.unscaled:
        raise ReadsEach((fault.module, fault.node), FAULTS[fault.kind], fault.unscaled)
    raise Blocked(fault.module, fault.node, "AMP307", "unscale_", FAULTS[fault.kind])


def _named_by_none(m: Migration, step: Step) -> bool:
    """Whether an optimizer that Apex was given is surely none of those whose losses are scaled."""
    optimizers = m.unit.optimizers
    mine = optimizers.keys(step.home or step.module, step.optimizer, {})
    named = [optimizers.of(x.module, x.optimizers, {}) for x in m.unit.losses]
    return bool(mine and named) and not any(mine & keys for keys in named)


def _step(m: Migration, step: Step, plan: Gradients) -> None:
    module, call = step.module, step.call
    if step.call in plan.plain and not any(isinstance(a, ast.Lambda) for a in module.around(call)):
        if step.call in plan.apart:
            return
        if m.gradients.untrained.steps_nothing(step):
            m.output.note(module, call, "AMP214", "optimizer.step", TAKING_NONE, "as-is")
            return
        if _just_cleared(m, step):
            m.output.note(module, call, "AMP214", "optimizer.step", WITHOUT_GRADIENTS, "as-is")
            return
        unscaled = _never_scaled(m, step)
        message = NEVER_SCALED if unscaled else "left as it is: no scaled backward comes before it"
        m.output.note(module, call, "AMP214", "optimizer.step", message, "review" if unscaled else "look")
        return
    if any(isinstance(a, (ast.Lambda, ast.IfExp, ast.BoolOp)) for a in module.around(call)) and not chooses(
        module.statement(call), call
    ):
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
    if step.kept is not None and not any(s.kept is step.kept and s.call in m.plain_steps for s in m.unit.steps):
        edits.delete(step.kept)
    m.output.done(module, call, "AMP210", "optimizer.step", "the step goes through the scaler")
    if _named_by_none(m, step):
        m.output.note(module, call, "AMP214", "optimizer.step", NAMED_BY_NONE, "review")


def _just_cleared(m: Migration, step: Step) -> bool:
    """Whether the gradients of a step are cleared by the statement before it: `optimizer.zero_grad(); optimizer.step()`; or
    by the one before an `if` that begins with the step."""
    module, stmt = step.module, step.module.statement(step.call)
    while module.block(stmt)[0] is stmt and isinstance(above := module.parents.get(stmt), ast.If):
        stmt = above
    block = module.block(stmt)
    at = block.index(stmt)
    before = block[at - 1] if at else None
    call = before.value if isinstance(before, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "zero_grad":
        return False
    return m.gradients.clears(module, call.func, step)


def _never_scaled(m: Migration, step: Step) -> bool:
    """Whether a plain step is that of an optimizer which the same code prepares in any case, at O2 as far as can be told."""
    slot = m.project.slot(step.module, step.optimizer)
    for init in m.unit.inits:
        nodes = (*init.optimizers, *init.optimizer_targets)
        same = slot is not None and any(m.project.slot(init.module, node) == slot for node in nodes)
        guarded = any(isinstance(a, (ast.If, ast.IfExp)) for a in init.module.ancestors(init.stmt))
        if same and not guarded and init.only("opt_level") not in ("O0", "O1", "O3", None):
            return True
    return False


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
