"""The clipping that the old FusedAdam did inside of its step stands before the step.

Apex: https://github.com/NVIDIA/apex/tree/master/apex/contrib/optimizers
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.switch.comes_before import Place, set_before
from amp_migrate.reading.switch.elsewhere import through_field
from amp_migrate.reading.switch.given_again import given_again
from amp_migrate.reading.units.inner_clip import InnerClip
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked, Step
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.fp16_optimizer import clip_name

CLIPPING = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"
CONSTRUCT = "optimizers.FusedAdam"
FACTORIES = 3  # functions that hand a limit on

CODES = (
    Code(
        "AMP704",
        "max_grad_norm of FusedAdam becomes clip_grad_norm_",
        CONSTRUCT,
        apex="apex.optimizers.FP16_Optimizer handed the norms of the gradients to FusedAdam's step, which limited each "
        "parameter group's to max_grad_norm. Both left apex.optimizers for apex.contrib.optimizers in 2019.",
        native="scaler.unscale_(optimizer), then clip_grad_norm_ over the parameters of each group, right before the step.",
        why="The same limit, group by group, in runs with mixed precision only: the optimizer of other runs did not clip.",
        links=("https://github.com/NVIDIA/apex/tree/master/apex/contrib/optimizers", CLIPPING),
        examples=(
            Example(
                "optimizer = FP16_Optimizer(FusedAdam(groups, lr=1e-4, max_grad_norm=1.0), dynamic_loss_scale=True)\n"
                "optimizer.backward(loss)\noptimizer.step()",
                "optimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.0)\n"
                "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
                "for group in optimizer.param_groups:\n"
                '    torch.nn.utils.clip_grad_norm_(group["params"], 1.0)\n'
                "scaler.step(optimizer)\nscaler.update()",
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    """Write the clipping before each step of an optimizer that did it inside."""
    for step in m.unit.steps:
        clip = m.unit.inner_clip(step) if m.live(step.module, step.call) else None
        if clip is not None:
            _write(m, step, clip)
    m.output.clipped |= {c for i in m.unit.inits if i.inner_clip is not None for c in i.inner_clip.calls}


def _write(m: Migration, step: Step, clip: InnerClip) -> None:
    module, scope = step.module, step.scope
    if clip.limit is None:
        raise Blocked(
            module,
            step.call,
            "AMP704",
            CONSTRUCT,
            "the step limited the gradients of each group to a max_grad_norm of its own, with norms that FP16_Optimizer "
            "handed it: clip each group by hand after unscaling, and drop max_grad_norm",
        )
    limit = clip.module.source(clip.limit)
    seen = _at_step(m, step, clip.module, clip.limit)
    text = seen.pop() if len(seen) == 1 else None
    if text is None or step.each or not isinstance(step.stmt, (ast.Expr, ast.Assign, ast.Return)):
        raise Blocked(
            module,
            step.call,
            "AMP704",
            CONSTRUCT,
            f"the step limited the gradients of each group to max_grad_norm={limit}, which "
            "cannot be written before it: clip them by hand after unscaling, and drop max_grad_norm",
        )
    indent, quote = m.style(module).indent, m.style(module).quote
    group = unbound(scope, ("group", "param_group", "clipped_group"))
    clipper = clip_name(m, module, scope)
    lines = [f"for {group} in {step.name}.param_groups:", f"{indent}{clipper}({group}[{quote}params{quote}], {text})"]
    switch = m.switch.at(module, step.stmt)
    asked = ([] if switch is None else [_tested(switch)]) + ([] if _is_above_zero(text) else [f"{text} > 0"])
    if condition := " and ".join(asked):
        lines = [*_unscaling(m, step), *lines]  # which serves the clipping alone: scaler.step does so by itself
        lines = [f"if {condition}:", *(indent + line for line in lines)]
    m.edit(module).insert_before(step.stmt, "\n".join(lines))
    m.output.note(
        module,
        step.call,
        "AMP704",
        CONSTRUCT,
        "each parameter group is clipped before the step, as Apex did inside of it",
    )


def _at_step(m: Migration, step: Step, module: Module, limit: ast.expr, depth: int = FACTORIES) -> set[str | None]:
    """How a limit reads before a step. Of a parameter it is what the calls of its function give, those in the file of the step
    if there are any; None where that is not to be read there."""
    home = module.scope_of(limit)
    text = module.source(limit)
    if isinstance(limit, ast.Constant):
        return {text}
    if seen := m.scaler.as_seen(text, home, step.scope) or through_field(m.project, text, home, step.scope):
        if any(_changes(m, (module, limit), *read) for read in {(text, home), (seen, step.scope)}):
            raise Blocked(
                step.module,
                step.call,
                "AMP704",
                CONSTRUCT,
                f"the step limited the gradients of each group to max_grad_norm={text} as that was where the optimizer was made "
                f"({module.display}:{limit.lineno}), and it is given another value after that: keep the one of then under a name "
                "of its own, and rewrite again, or clip by hand after unscaling",
            )
        return {seen}
    function = m.project.function_of(module, limit)
    if function is None or not isinstance(limit, ast.Name) or not depth:
        return {None}
    if not all(isinstance(node, ast.arg) for node in function.scope.bindings.get(limit.id, [None])):
        return {None}
    calls = m.project.calls.get(function, ())
    found: set[str | None] = set()
    for where, call in [c for c in calls if c[0] is step.module] or calls:
        given = dict(m.project.arguments(function, call)).get(limit.id)
        there, value = (where, given) if given is not None else (module, function.defaults.get(limit.id))
        found |= _at_step(m, step, there, value, depth - 1) if value is not None else {None}
    return found


def _changes(m: Migration, made: Place, text: str, scope: Scope) -> bool:
    """Whether what an expression names may be another thing at the step than it was where the optimizer was made."""

    def before(module: Module, node: ast.AST, holder: ast.expr | None) -> bool:
        return set_before(m.project, (module, node), holder, made)

    return given_again(m.project, text, scope, before)


def _is_above_zero(limit: str) -> bool:
    """Whether a limit is a number above zero: zero meant that nothing is clipped."""
    value = ast.parse(limit, mode="eval").body
    number = value.value if isinstance(value, ast.Constant) else None
    return isinstance(number, (int, float)) and number > 0


def _unscaling(m: Migration, step: Step) -> list[str]:
    """What unscales the gradients of a step right before it, taken out of there."""
    before = m.edit(step.module).before
    found = [c for c in before.get(step.stmt, ()) if isinstance(c, str) and c.endswith(f".unscale_({step.name})")]
    found = found[:1] if found and "\n" not in found[0] else []
    if found:
        before[step.stmt] = [c for c in before[step.stmt] if c not in found]
    return [str(c) for c in found]


def _tested(switch: str) -> str:
    """A switch as a test asks it: an `if` needs no bool."""
    tree = ast.parse(switch, mode="eval").body
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "bool":
        return ast.get_source_segment(switch, tree.args[0]) or switch
    return switch
