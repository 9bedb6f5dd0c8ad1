"""Gradients that are looked at before the last backward of a step: divided by the loss scale where they are read. What is
added to them there is multiplied by it.

Native: https://pytorch.org/docs/stable/generated/torch.amp.GradScaler.html (get_scale; 1.0 where the scaler is disabled)
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.reading.gradients.divisible import added, asks_about, bound_of, whole_gradient
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP309",
        "Gradients are divided by the loss scale where they are read",
        "grad",
        apex="Gradients are unscaled when the with statement ends, after each backward of a step.",
        native="They carry the scale until unscale_, which is for complete gradients: p.grad / scaler.get_scale() before.",
        why="What looks at the gradients of one micro-batch, or between the backwards of two losses, sees the values that "
        "Apex gave it; the gradients themselves stay as they are. What is added to them after every micro-batch, a penalty "
        "on the weights, is multiplied by the scale: p.grad.add_(decay * p * scaler.get_scale()).",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
        examples=(
            Example(
                "fisher[name] += p.grad ** 2",
                "fisher[name] += (p.grad / scaler.get_scale()) ** 2",
            ),
        ),
    ),
    Code(
        "AMP311",
        "The norm of scaled gradients is clipped to a bound times the loss scale",
        "clip_grad_norm_",
        apex="Gradients are unscaled after every backward, so they could be clipped after each micro-batch.",
        native="They carry the scale until unscale_, which is for complete gradients. Norms are linear: "
        "clip_grad_norm_(parameters, max_norm * scaler.get_scale()) does the same; get_scale() is 1.0 where the scaler is off.",
        why="A function that runs the backward and clips, and that is called for every micro-batch of a step, has no place for "
        "unscale_; a clip in the function that steps moves to the step (AMP302). The scale only changes in update. A norm that is "
        "used is divided by it. To clip values has no such counterpart: it makes numbers of infs, and no step would be skipped.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
        examples=(
            Example(
                "scaled_loss.backward()\nclip_grad_norm_(amp.master_params(optimizer), max_norm)",
                "scaler.scale(loss).backward()\nclip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())",
            ),
        ),
    ),
)

NAMES = ("loss_scale", "grad_scale", "current_loss_scale")
ADDED = (
    "AMP309",
    "grad",
    "added times the loss scale, as often as before: the gradients of each micro-batch carry it until the step, which divides "
    "them by it",
)
CLIPPED = (
    "AMP311",
    "clip_grad_norm_",
    "clipped as often as before, after each backward of a step, by a bound times the loss scale: the gradients carry it until the "
    "step. Apex clipped the sum so far, too; where that was not meant, unscale and clip once, right before the step",
)
_OVER_PARAMETERS = re.compile(r"param|group|weights|\bgrads?\b", re.IGNORECASE)


def apply(m: Migration) -> None:
    """Divide what `Migration.divided` names, by a scale that is asked for once where a loop goes through the parameters."""
    told: set[tuple[Module, ast.AST]] = set()
    held: dict[ast.stmt, str] = {}
    for grad, module in m.divided.items():
        whole = whole_gradient(module, grad)
        if asks_about(module, whole) or not m.live(module, grad):
            continue
        if len(m.scalers) > 1:
            message = "several scalers serve the optimizers, and which one scaled what is read here cannot be told"
            raise Blocked(module, grad, "AMP307", "unscale_", message)
        clips = isinstance(grad, ast.Call)
        more = bound_of(module, grad) if isinstance(grad, ast.Call) else added(module, whole)
        loop = _over_parameters(m, module, grad)
        if loop is None:
            scale = f"{m.scaler_at(module, grad)}.get_scale()"
        else:
            if loop not in held:
                held[loop] = unbound(module.scope_of(loop), NAMES)
                m.edit(module).insert_before(loop, f"{held[loop]} = {m.scaler_at(module, loop)}.get_scale()")
            scale = held[loop]
        if more is not None:
            _multiply(m, module, more, scale)
            m.output.note(module, grad if clips else more, *(CLIPPED if clips else ADDED), "look")
            if not clips or isinstance(module.parents.get(grad), ast.Expr):
                continue
        alone = isinstance(module.parents.get(whole), (ast.Call, ast.keyword, ast.Assign, ast.AugAssign))
        m.edit(module).insert("before", whole, "" if alone else "(")
        m.edit(module).insert("after", whole, f" / {scale}" if alone else f" / {scale})")
        stmt = module.statement(grad)
        if (module, stmt) not in told and not clips:
            told.add((module, stmt))
            message = "read divided by the loss scale: more is added to these gradients before the step"
            m.output.note(module, grad, "AMP309", "grad", message, "look")


def _multiply(m: Migration, module: Module, more: ast.expr, scale: str) -> None:
    product = isinstance(more, ast.BinOp) and isinstance(more.op, (ast.Mult, ast.Div))
    alone = product or isinstance(more, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
    m.edit(module).insert("before", more, "" if alone else "(")
    m.edit(module).insert("after", more, f" * {scale}" if alone else f") * {scale}")


def _over_parameters(m: Migration, module: Module, node: ast.AST) -> ast.stmt | None:
    """The outermost of the loops around an expression that go through parameters, or a function without a backward or a step
    goes through: the scale is one for all of them."""
    function = m.project.function_of(module, node)
    calls = [n for n in function.inside if isinstance(n, ast.Call)] if function is not None else []
    only_adds = bool(calls) and not any(called_name(c) == "step" or m.gradients.uses.runs_backward(c) for c in calls)
    found: ast.stmt | None = None
    for parent in module.ancestors(node):
        if isinstance(parent, (*FUNCTION_NODES, ast.ClassDef, ast.Lambda)):
            break
        if isinstance(parent, LOOP_NODES):
            if not isinstance(parent, ast.For):
                break
            if not only_adds and not _OVER_PARAMETERS.search(ast.unparse(parent.iter)):
                break
            found = parent
    return found
