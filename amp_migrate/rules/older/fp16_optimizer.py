"""`FP16_Optimizer` becomes a `torch.amp.GradScaler` beside the optimizer it wrapped.

Apex: https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.chains import exclusive
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.switch.legacy_folds import WITHOUT_EFFECT
from amp_migrate.reading.units.legacy import WRAPPER, LegacyInit, choice_of_inner
from amp_migrate.reading.units.legacy_scale import left_open, over_fused_adam
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked, Loss
from amp_migrate.reading.values.closures import given_closures
from amp_migrate.rules.gradients.master_params import model_parameters
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.float_models import what_came
from amp_migrate.rules.older.state import load, load_by_helpers, save
from amp_migrate.rules.regions.none_in_sight import needs_region
from amp_migrate.rules.scale.scale_loss import scaled

APEX = "https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler"
CLIPPING = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"

CODES = (
    Code(
        "AMP701",
        "FP16_Optimizer becomes a GradScaler",
        "FP16_Optimizer",
        apex="Wraps an optimizer over float16 weights; keeps float32 master weights and a loss scale of its own.",
        native="A torch.amp.GradScaler beside the optimizer; autocast over float32 weights needs no master weights.",
        why="The statement that wrapped goes; its static or dynamic scale becomes the scaler's. That of the first versions of "
        "apex.fp16_utils, before amp.initialize, began at 2**32 and doubled after 1000 clean steps.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
                'scaler = torch.amp.GradScaler("cuda")',
            ),
            Example(
                "optimizer = FP16_Optimizer(optimizer, static_loss_scale=128.0)",
                'scaler = torch.amp.GradScaler("cuda", init_scale=128.0)',
            ),
        ),
    ),
    Code(
        "AMP702",
        "optimizer.backward becomes a scaled backward",
        "FP16_Optimizer.backward",
        apex="Scales the loss, runs backward, copies the gradients to the master weights and unscales them.",
        native="scaler.scale(loss).backward(); the gradients stay scaled until unscale_ or step.",
        why="update_master_grads=False and the later update_master_grads() have no counterpart and need none.",
        links=(APEX, "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale"),
        examples=(Example("optimizer.backward(loss)", "scaler.scale(loss).backward()"),),
    ),
    Code(
        "AMP703",
        "clip_master_grads becomes unscale_ and clip_grad_norm_",
        "FP16_Optimizer.clip_master_grads",
        apex="Clips the master gradients, already unscaled; returns their norm, or -1 after an overflow.",
        native="scaler.unscale_(optimizer), then clip_grad_norm_ over its parameters; returns the norm.",
        why="A clip of model.parameters() beside an FP16_Optimizer clipped scaled float16 gradients, without effect on "
        "the step: after migration it works.",
        links=(APEX, CLIPPING),
        examples=(
            Example(
                "optimizer.clip_master_grads(1.0)",
                "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
        ),
    ),
    Code(
        "AMP705",
        "optimizer.loss_scale becomes scaler.get_scale, overflow a comparison of scales",
        "FP16_Optimizer.loss_scale",
        apex="loss_scale is the current scale; overflow tells whether the last step was skipped.",
        native="scaler.get_scale(); a skipped step shows in a scale that dropped.",
        why="GradScaler does not say whether it skipped.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale",),
        examples=(Example("print(optimizer.loss_scale)", "print(scaler.get_scale())"),),
    ),
    Code(
        "AMP707",
        "FP16_Optimizer is used in a way that has no counterpart",
        "FP16_Optimizer",
        apex="Master weights, flat groups and the scaler are open to any program; subclasses override them.",
        native="The optimizer holds the parameters themselves; GradScaler exposes its scale.",
        why="What reads or overrides the master weights needs to be written anew.",
        links=(APEX, NATIVE),
    ),
)


def apply(m: Migration) -> None:
    """Unwrap the optimizers, scale the losses, and answer what was asked of the wrapper."""
    inits = [i for i in m.unit.inits if isinstance(i, LegacyInit) and i.wraps]
    if not inits:
        return
    if not m.unit.losses:
        raise Blocked.at(
            inits[0].site,
            "AMP707",
            "no backward through this optimizer is in sight; rewrite this file together with the one that trains",
        )
    needs_region(m)
    _each_its_own(m, inits)
    for step in m.unit.steps:
        if given_closures(step.call):
            raise Blocked(
                step.module,
                step.call,
                "AMP212",
                f"{inits[0].site.construct}.step",
                "FP16_Optimizer evaluated the closure; GradScaler does not: write its passes out around scaler.step",
            )
    for init in inits:
        _unwrap(m, init)
    for loss in m.unit.losses:
        if loss.item is None and m.live(loss.module, loss.call):
            _backward(m, loss)
    for site in m.unit.sites:
        if site.name.startswith(WRAPPER) and (site.short in WITHOUT_EFFECT or m.live(site.module, site.node)):
            _site(m, site)
        elif choice_of_inner(site.module, site.node) is not None:  # which `.optimizer` takes away
            m.output.done(site.module, site.node, "AMP701", site.construct, "nothing wraps the optimizer any more")
    load_by_helpers(m)
    for module in m.unit.modules:
        _zero_grad(m, module)
        _clipped_in_vain(m, module)


def _each_its_own(m: Migration, inits: list[LegacyInit]) -> None:
    """Each FP16_Optimizer has a loss scale of its own.

    Raises Blocked where it cannot be told which of several a backward, a step or a question is about.
    """
    texts = {ast.dump(t) for i in inits for t in i.optimizer_targets}
    if not m.scales or (len(texts) < 2 and not m.unit.own_scales):
        return
    asked = [(x.module, o) for x in m.unit.losses for o in x.optimizers] + [
        (s.module, s.optimizer) for s in m.unit.steps
    ]
    asked += [(s.module, s.node.value) for s in m.unit.sites if isinstance(s.node, ast.Attribute) and _of_wrapper(s)]
    scopes = {i.site.scope for i in inits}
    for module, optimizer in asked:
        known = m.unit.optimizers.number(module, optimizer) in m.unit.apart
        if not known and (m.unit.own_scales or len(scopes) == 1 or len({str(i.scale) for i in inits}) > 1):
            raise Blocked(
                module,
                optimizer,
                "AMP707",
                inits[0].site.construct,
                "each FP16_Optimizer scales its loss by itself, and which of them this is about cannot be told here: give "
                "each a GradScaler and hand it along with its optimizer",
            )


def _of_wrapper(site: Site) -> bool:
    return site.name.startswith(WRAPPER) and site.short not in WITHOUT_EFFECT


# -- wrapping and backward -----------------------------------------------------------------------------------------


def _unwrap(m: Migration, init: LegacyInit) -> None:
    module = init.module
    edits = m.edit(module)
    (optimizer,) = init.optimizers[:1]
    for call in init.calls:
        stmt = module.statement(call)
        if (
            isinstance(stmt, ast.Assign)
            and stmt.value is call
            and [ast.unparse(t) for t in stmt.targets] == [ast.unparse(optimizer)]
        ):
            edits.delete(stmt)
        else:
            first = call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "init_optimizer")
            edits.replace(call, (first,))
    choice = init.choice
    if choice is not None and len(choice.body) == len(choice.orelse) == 1:
        (assignment,) = choice.body
        assert isinstance(assignment, ast.Assign)
        if assignment in edits.statements:
            edits.delete(choice)
        else:
            edits.splice(choice, "body")
    message, review = what_came(m)
    message += left_open(init.site, init.scale) if m.scales else ""
    m.output.done(module, init.call, "AMP701", init.site.construct, message, review)
    if init.scale.may_be_static and m.scales and not over_fused_adam(init.site):  # the other skipped such steps too
        m.output.note(
            module,
            init.call,
            "AMP114",
            init.site.construct,
            "a static scale stays as it is; unlike Apex, a step whose gradients overflow is skipped",
        )


def _backward(m: Migration, loss: Loss) -> None:
    module = loss.module
    keywords = [k for k in loss.call.keywords if k.arg not in ("loss", "update_master_grads")]
    inner: list[str | ast.expr | ast.stmt] = [*scaled(m, loss), ".backward("]
    for index, keyword in enumerate(keywords):
        inner += [", " if index else "", f"{keyword.arg}=" if keyword.arg else "**", keyword.value]
    if len(loss.call.args) > 2:
        inner += ["retain_graph=", loss.call.args[2]]
    m.edit(module).replace(loss.call, (*inner, ")"))
    message = "the scaled backward" if m.scales else m.plain
    m.output.done(module, loss.call, "AMP702", loss.site.construct, message)


# -- everything else -------------------------------------------------------------------------------------------------


def _site(m: Migration, site: Site) -> None:
    module, stmt, edits = site.module, site.stmt, m.edit(site.module)
    short = site.short
    if short == "clip_master_grads" and site.call is not None:
        _clip(m, site, site.call)
    elif short == "update_master_grads" and isinstance(stmt, ast.Expr):
        edits.delete(stmt)
        m.output.done(module, site.node, "AMP702", site.construct, "gradients need no copying")
    elif short in ("loss_scale", "cur_scale", "loss_scaler"):
        _scale(m, site)
    elif short == "overflow" and isinstance(site.node.ctx, ast.Load):  # type: ignore[attr-defined]
        _overflow(m, site)
    elif short == "optimizer":
        _inner(m, site)
    elif short == "dynamic_loss_scale" and isinstance(stmt, ast.Assign) and stmt.targets == [site.node]:
        edits.delete(stmt)
        m.output.done(
            module, site.node, "AMP701", site.construct, "the scaler is dynamic or static from the start", "look"
        )
    elif short == "state_dict" and site.call is not None:
        save(m, site, site.call)
    elif short == "load_state_dict" and site.call is not None:
        load(m, site, site.call)
    else:
        raise Blocked.at(
            site,
            "AMP707",
            f"{short} belongs to FP16_Optimizer alone; without master weights and flat groups it has no counterpart",
        )


def _inner(m: Migration, site: Site) -> None:
    """`optimizer.optimizer` is the optimizer itself; a choice between the two has nothing left to choose."""
    module, node, stmt, edits = site.module, site.node, site.stmt, m.edit(site.module)
    assert isinstance(node, ast.Attribute)
    edits.replace(node, (node.value,))
    choice = next((a for a in module.ancestors(node) if isinstance(a, ast.IfExp)), None)
    if choice is not None and edits.text(choice.body) == edits.text(choice.orelse):
        edits.replace(choice, (choice.orelse,) if node in walk(choice.body) else (choice.body,))
    if isinstance(stmt, ast.Assign) and [module.source(t) for t in stmt.targets] == [edits.text(stmt.value)]:
        edits.delete(stmt)
    m.output.done(module, node, "AMP701", site.construct, "nothing wraps the optimizer any more")


def _clip(m: Migration, site: Site, call: ast.Call) -> None:
    """The clip of the master gradients, over the parameters that the folded branch or the optimizer names."""
    module = site.module
    assert isinstance(site.node, ast.Attribute)
    optimizer = site.node.value
    plain = next((pair[call] for pair in m.pairs.values() if call in pair), None)
    text = module.source(plain) if plain is not None else model_parameters(m, site, optimizer)
    quote = m.style(module).quote
    limits = [*call.args, *(k.value for k in call.keywords)]
    parameters: tuple[str | ast.expr | ast.stmt, ...] = (
        (text,)
        if text is not None
        else ("(p for group in ", optimizer, f".param_groups for p in group[{quote}params{quote}])")
    )
    parts: list[str | ast.expr | ast.stmt] = [f"{_clipper(m, module, call, plain)}(", *parameters]
    for limit in limits:
        parts += [", ", limit]
    m.edit(module).replace(call, (*parts, ")"))
    used = not isinstance(module.parents.get(call), ast.Expr)
    message = "the norm after an overflow is inf or nan, not -1" if used else "gradients are unscaled, then clipped"
    m.output.done(module, call, "AMP703", site.construct, message, "look" if used else "as-is")


def _clipper(m: Migration, module: Module, call: ast.Call, plain: ast.expr | None) -> str:
    """How the file names clip_grad_norm_."""
    if plain is not None:
        other = module.parents.get(plain)
        if isinstance(other, ast.Call) and (module.qualify(other.func) or "").startswith("torch.nn"):
            return module.source(other.func).removesuffix("_") + "_"
    return clip_name(m, module, module.scope_of(call))


def clip_name(m: Migration, module: Module, scope: Scope) -> str:
    """How a scope writes torch's clip_grad_norm_: by the name that the file imports, if any."""
    for name, target in module.root.imports.items():
        if target == "torch.nn.utils.clip_grad_norm_":
            return name
    return f"{m.torch(module, scope)}.nn.utils.clip_grad_norm_"


def _scale(m: Migration, site: Site) -> None:
    """`optimizer.loss_scale`, and the same through `optimizer.loss_scaler`."""
    module = site.module
    node: ast.AST | None = site.node
    if site.short == "loss_scaler":
        node = module.parents.get(site.node)
        if not isinstance(node, ast.Attribute) or node.attr not in ("loss_scale", "cur_scale", "_loss_scale"):
            raise Blocked.at(site, "AMP707", "reaches into the loss scaler beyond its current scale")
    assert isinstance(node, ast.Attribute)
    assert isinstance(site.node, ast.Attribute)
    optimizer = site.node.value
    edits = m.edit(module)
    if isinstance(node.ctx, ast.Store):
        stmt = site.stmt
        if not isinstance(stmt, ast.Assign) or stmt.targets != [node]:
            raise Blocked.at(site, "AMP707", "changes the loss scale in place")
        if m.scales:
            edits.replace(stmt, (f"{m.scaler_at(module, stmt, optimizer)}.update(float(", stmt.value, "))"))
        else:
            edits.delete(stmt)
    else:
        edits.replace(node, f"{m.scaler_at(module, node, optimizer)}.get_scale()" if m.scales else "1.0")
    m.output.done(module, site.node, "AMP705", site.construct, "the scaler's scale")


def _overflow(m: Migration, site: Site) -> None:
    """`if not optimizer.overflow:` after the step: whether the scale dropped."""
    module, node = site.module, site.node
    if not m.scales:
        m.edit(module).replace(node, "False")
        return
    scope = site.scope
    before = [s for s in m.unit.steps if s.module is module and s.scope is scope and s.call.lineno < node.lineno]
    if m.unit.own_scales:
        before = [s for s in before if ast.dump(s.optimizer) == ast.dump(node.value)]  # type: ignore[attr-defined]
    around = [site.stmt, *(a for a in module.ancestors(site.stmt) if isinstance(a, ast.stmt))]
    step = next((s for s in reversed(before) if any(b in module.block(s.stmt) for b in around)), None)
    if step is None:
        raise Blocked.at(
            site,
            "AMP707",
            "overflow is asked for where no step comes right before: compare get_scale() before and after the step",
        )
    name = unbound(scope, ("scale", "scale_before_step"))
    scaler = m.scaler_at(module, step.call, step.optimizer)
    edits = m.edit(module)
    line = f"{name} = {scaler}.get_scale()"
    if line not in edits.before.get(step.stmt, []):
        edits.insert_before(step.stmt, line)
    parent = module.parents.get(node)
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        edits.replace(parent, f"{scaler}.get_scale() >= {name}")
    else:
        edits.replace(node, f"{scaler}.get_scale() < {name}")
    m.output.done(module, node, "AMP705", site.construct, "a skipped step shows in a scale that dropped", "look")


def _zero_grad(m: Migration, module: Module) -> None:
    """`zero_grad(set_grads_to_None=...)`: the plain optimizer's keyword is set_to_none."""
    if "set_grads_to_None" not in module.text:
        return
    for node in walk(module.tree):
        if not isinstance(node, ast.keyword) or node.arg != "set_grads_to_None":
            continue
        call = module.parents.get(node)
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and m.project.slot(module, func.value) in m.unit.optimizer_slots:
            m.edit(module).replace(node, ("set_to_none=", node.value))


def _clipped_in_vain(m: Migration, module: Module) -> None:
    """Say where a clip of the model's own gradients, without effect under FP16_Optimizer, now works."""
    for node in walk(module.tree):
        if not isinstance(node, ast.Call) or "clip_grad_norm" not in ast.unparse(node.func):
            continue
        beside = [x for x in m.unit.losses if x.module.scope_of(x.call) is module.scope_of(node)]
        if any(not exclusive(module, node, x.call) for x in beside) and m.live(module, node):
            m.output.note(
                module,
                node,
                "AMP703",
                "clip_grad_norm_",
                "clipped gradients that were still scaled; the optimizer's are unscaled now, so the clip acts on the step",
                "review",
            )
