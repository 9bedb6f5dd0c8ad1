"""What is clipped once an optimizer's gradients are unscaled are gradients of that optimizer, not of a model it has one part of.

Proved, where the optimizer is seen to be made: no arm of the tests above gives it the parameters of one part of a model alone
(`model.head.parameters()`) whose whole is clipped then. Cannot prove it of optimizers with several parts, nor where the
program freezes parameters: the rest may have no gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP310",
        title="More is clipped than the optimizer steps",
        construct="clip_grad_norm_",
        apex="Gradients of the optimizers that scale_loss is given, or of the FP16_Optimizer, are unscaled, and no others.",
        native="So does scaler.unscale_(optimizer): other parameters keep gradients times the scale.",
        why="Those make the norm that is clipped to, so that what is stepped becomes next to nothing.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",),
    ),
)
PARAMETERS = ("parameters", "named_parameters")
CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        module = change.after
        for call, _ in module.method_calls("unscale_"):
            if not change.changed(call) or not call.args:
                continue
            parts = list(_parts(review, module, call.args[0]))
            for clip, model in _clips(module, call) if parts else ():
                made = {o.node for o in review.values_after.of(module, model)}
                for home, part in parts:
                    if any(made & {o.node for o in review.values_after.of(home, b)} for b in _above(part)):
                        yield _told(review, module, clip, model, call.args[0], home, part)
                        break


def _told(
    review: Review,
    module: Module,
    clip: ast.Call,
    model: ast.expr,
    optimizer: ast.expr,
    home: Module,
    part: ast.expr,
) -> Doubt:
    name = syntax.text(optimizer)
    message = (
        f"{home.path}:{review.line(home, part)} makes {name} with the parameters of {syntax.text(part)} alone, and those of all "
        f"of {syntax.text(model)} are clipped here: what else has gradients keeps them times the scale, and makes the norm; clip "
        f"those of the groups of {name}"
    )
    return review.doubt(module, clip, "AMP310", syntax.last(clip.func), message, "review")


def _clips(module: Module, unscale: ast.Call) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls further down that clip the parameters of a model, and that."""
    for name in CLIPS:
        for clip in module.calls_named.get(name, ()):
            given = argument(clip, "parameters", 0)
            if clip.lineno <= unscale.lineno or module.function_around(clip) is not module.function_around(unscale):
                continue
            if (
                isinstance(given, ast.Call)
                and isinstance(given.func, ast.Attribute)
                and given.func.attr == "parameters"
            ):
                yield clip, given.func.value


def _parts(review: Review, module: Module, optimizer: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """The parts of models that an optimizer may be made with alone."""
    for origin in review.values_after.of(module, optimizer):
        home = origin.module
        given = argument(origin.node, "params", 0) if isinstance(origin.node, ast.Call) else None
        if given is None or "requires_grad" in home.text:
            continue
        for stmts in _arms(home, given):
            taken = [
                c.func.value
                for s in stmts
                for c in syntax.walk(s)
                if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute) and c.func.attr in PARAMETERS
            ]
            if len({syntax.text(t) for t in taken}) == 1 and isinstance(taken[0], ast.Attribute):
                if taken[0].attr != "module":
                    yield home, taken[0]


def _arms(module: Module, given: ast.expr) -> Iterator[list[ast.stmt] | list[ast.expr]]:
    """What an optimizer is made with: as it stands, or as each arm of a test above puts it together."""
    if not isinstance(given, ast.Name):
        yield [given]
        return
    owner = module.scope_of(given).binder(given.id)
    for stmt in owner.bindings[given.id] if owner is not None else ():
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            around = module.parents.get(stmt)
            block = around.body if isinstance(around, ast.If) and stmt in around.body else getattr(around, "orelse", [])
            yield [s for s in block if s.lineno <= stmt.lineno] if isinstance(around, ast.If) else [stmt.value]


def _above(part: ast.expr) -> Iterator[ast.expr]:
    """What a part is one of: `self.model` of `self.model.head`."""
    while isinstance(part, ast.Attribute):
        part = part.value
        yield part
