"""Reads of the loss scale through Apex's private state become `scaler.get_scale()`.

Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.switch.legacy_folds import WITHOUT_EFFECT
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.initial_scale import initial_setting

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale"
SCALE_NAMES = frozenset("_loss_scale loss_scale cur_scale".split())
SETTINGS = {"_loss_scale": ("init_scale", "scale"), "_scale_seq_len": ("growth_interval", "window")}

CODES = (
    Code(
        "AMP403",
        "A read of the loss scale becomes scaler.get_scale",
        "amp._amp_state",
        apex="_amp_state.loss_scalers[0].loss_scale() is the current scale.",
        native="scaler.get_scale() is; the steps since one was skipped, `_unskipped`, are _growth_tracker of its state.",
        why="Private state has no native counterpart; the reads people use do. handle._deactivate() goes: it takes O1's "
        "patches off torch, and autocast ends with its region.",
        links=(NATIVE,),
        examples=(Example("amp._amp_state.loss_scalers[0].loss_scale()", "scaler.get_scale()"),),
    ),
    Code(
        "AMP404",
        "Apex's private state is used in a way that has no counterpart",
        "amp._amp_state",
        apex="_amp_state and _amp_stash hold everything, open to anyone.",
        native="GradScaler exposes get_scale, the factors and the growth interval.",
        why="Custom all-reduce over master gradients or edits of the stash need to be written anew: on the gradients of the "
        "model's parameters, after the last backward and before unscale_. What is reduced then carries the scale, which "
        "every process has alike, and an overflow in one becomes one in all.",
        links=(NATIVE,),
        examples=(
            Example(
                "grads = [p.grad for p in optimizer._amp_stash.all_fp32_from_fp16_params]\n"
                "for grad in grads:\n    dist.all_reduce(grad)\n    grad.div_(dist.get_world_size())\n",
                'grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]\n'
                "for grad in grads:\n    dist.all_reduce(grad)\n    grad.div_(dist.get_world_size())\n"
                "scaler.unscale_(optimizer)\n",
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    for site in m.unit.sites:
        if site.name.startswith("apex.amp._amp_state.handle.") and site.short in WITHOUT_EFFECT:
            _put_back(m, site)
        if not m.live(site.module, site.node):
            continue
        if site.short == "state_dict" and site.call is not None:
            _through_state_dict(m, site, site.call)
        elif "_amp_state" in site.name or site.name.endswith("amp.scaler"):
            _through_amp_state(m, site)


def _put_back(m: Migration, site: Site) -> None:
    """`_amp_state.handle._deactivate()` takes O1's patches off torch again: autocast ends with its region."""
    if not isinstance(site.stmt, ast.Expr):
        raise _refuse(site)
    m.edit(site.module).delete(site.stmt)
    m.output.done(
        site.module, site.node, "AMP403", site.construct, "taken out: autocast leaves nothing to take back", "look"
    )


def _through_state_dict(m: Migration, site: Site, call: ast.Call) -> None:
    module = site.module
    outer = module.parents.get(call)
    if not isinstance(outer, ast.Subscript):
        return
    last = module.parents.get(outer)
    key = last.slice if isinstance(last, ast.Subscript) else None
    if not (isinstance(key, ast.Constant) and key.value == "loss_scale") or not isinstance(last, ast.Subscript):
        raise Blocked(
            module, call, "AMP404", "amp.state_dict", "reads something of Apex's state other than the loss scale"
        )
    entry = outer.slice.value if isinstance(outer.slice, ast.Constant) else None
    digits = str(entry).removeprefix("loss_scaler") if isinstance(entry, str) else ""
    plan = m.plan_of_loss(ast.Constant(int(digits)) if digits.isdigit() else None)
    if plan is None:
        raise _refuse(site)
    _replace(m, module, last, call, plan)


def _through_amp_state(m: Migration, site: Site) -> None:
    """`_amp_state.loss_scalers[i].loss_scale()` and `._loss_scale`, read or set."""
    module = site.module
    node: ast.expr = site.node
    if _asks_for_set_up(m, site):
        return
    if not site.name.endswith("loss_scalers"):
        parent = module.parents.get(node)
        if not (isinstance(parent, ast.Attribute) and parent.attr == "loss_scalers"):
            raise _refuse(site)
        node = parent
    if _in_turn(m, site, node):
        return
    scaler = module.parents.get(node)
    if not isinstance(scaler, ast.Subscript) or scaler.value is not node:
        raise _refuse(site)
    plan = m.plan_of_loss(scaler.slice)
    if plan is None:
        _chosen(m, site, scaler)
        return
    for held in _held(m, site, scaler):
        _used(m, site, held, plan)


def _asks_for_set_up(m: Migration, site: Site) -> bool:
    """`hasattr(amp._amp_state, "opt_properties")`, which says whether `initialize` was called; whether it is that."""
    module, node = site.module, site.node
    call = module.parents.get(node)
    if not isinstance(call, ast.Call) or called_name(call) != "hasattr" or call.args[:1] != [node]:
        return False
    name = call.args[1] if len(call.args) > 1 else None
    if not isinstance(name, ast.Constant) or name.value != "opt_properties":
        return False
    if any(stmt in module.ancestors(i.call) for i in m.unit.inits for stmt in [module.statement(node)]):
        raise _refuse(site)  # what it asks for decides on the set-up itself
    m.edit(module).replace(call, f"{m.scaler_at(module, node)}.is_enabled()" if m.scales else "True")
    message = "asks the scaler whether it is enabled; Apex counted a set-up with O0 or enabled=False, too"
    m.output.done(module, node, "AMP403", "amp._amp_state", message, "look")
    return True


def _chosen(m: Migration, site: Site, scaler: ast.Subscript) -> None:
    """The scale of a loss whose id is known at run time: of what scales now, the one that stands there."""
    module = site.module
    read, plans = _scale_read(module, scaler), m.plans_by_loss()
    if read is None or not plans or isinstance(scaler.slice, ast.Slice):
        number = module.source(scaler.slice)
        message = f"which scaler {number} means is only known at run time, and there are several: hand the one over that is meant"
        raise Blocked.at(site, "AMP404", message)
    scalers = ", ".join(plan.at(module, read) for plan in plans)
    m.edit(module).replace(read, (f"[{scalers}][", scaler.slice, "].get_scale()") if m.scales else "1.0")
    m.output.done(module, site.node, "AMP403", "loss scale", f"reads the scale of the one that is meant: {scalers}")


def _scale_read(module: Module, held: ast.expr) -> ast.expr | None:
    """The whole expression that reads the scale of what stands for a scaler of Apex's; None where it is used otherwise."""
    attribute = module.parents.get(held)
    if not isinstance(attribute, ast.Attribute) or attribute.attr not in SCALE_NAMES:
        return None
    outer = module.parents.get(attribute)
    if isinstance(outer, ast.Call) and outer.func is attribute:
        return outer
    return attribute if isinstance(attribute.ctx, ast.Load) else None


def _held(m: Migration, site: Site, scaler: ast.Subscript) -> list[ast.expr]:
    """What stands for one of Apex's scalers where it is used: itself, or each read of the one variable that it is put in."""
    module, stmt = site.module, site.stmt
    if not isinstance(stmt, ast.Assign) or stmt.value is not scaler:
        return [scaler]
    name = stmt.targets[0]
    if len(stmt.targets) != 1 or not isinstance(name, ast.Name) or not site.scope.is_function:
        raise _refuse(site)
    reads: list[ast.expr] = [n for n in module.loads.get(name.id, ()) if module.scope_of(n) is site.scope]
    inner = [n for n in module.loads.get(name.id, ()) if site.scope in list(module.scope_of(n).chain())[1:]]
    if len(site.scope.bindings[name.id]) != 1 or inner:
        raise _refuse(site)
    m.edit(module).delete(stmt)
    return reads


def _used(m: Migration, site: Site, held: ast.expr, plan: ScalerPlan) -> None:
    """One use of a scaler of Apex's: its scale read or set, its window set."""
    module = site.module
    attribute = module.parents.get(held)
    if not isinstance(attribute, ast.Attribute):
        raise _refuse(site)
    if isinstance(attribute.ctx, ast.Store):
        stmt = module.statement(attribute)
        if not isinstance(stmt, ast.Assign):
            raise _refuse(site)
        _assigned(m, site, stmt, attribute, plan)
        return
    if attribute.attr == "_unskipped" and isinstance(attribute.ctx, ast.Load):
        _counted(m, site, attribute, plan)
        return
    read = _scale_read(module, held)
    if read is None:
        raise _refuse(site)
    _replace(m, module, read, site.node, plan)


def _counted(m: Migration, site: Site, read: ast.Attribute, plan: ScalerPlan) -> None:
    """`loss_scalers[0]._unskipped`, the steps since one was skipped or the scale grew: the scaler counts them alike, where it is
    enabled. At O0 Apex counted steps that it never skipped."""
    if not _below_step(m, site.module, read):
        message = "asks whether a step will be skipped before it is taken, which a GradScaler knows once it is updated"
        raise Blocked.at(site, "AMP404", f"{message}: ask below the step, and of its state")
    text = "1"
    if m.scales:
        quote = m.style(site.module).quote
        always = all(home.flag.of_scaler.always for home in plan.homes)
        key = f"{quote}_growth_tracker{quote}"
        text = f"{plan.at(site.module, read)}.state_dict()" + (f"[{key}]" if always else f".get({key}, 1)")
    m.edit(site.module).replace(read, text)
    message = "reads the steps that the scaler counts since one was skipped or the scale grew"
    m.output.done(site.module, site.node, "AMP403", "loss scale", message, "look")


def _below_step(m: Migration, module: Module, read: ast.expr) -> bool:
    """Whether something stands below a step: Apex counted where a loss was scaled, the scaler counts where it is updated."""
    scope = module.scope_of(read)
    return any(s.module is module and s.scope is scope and s.stmt.lineno < read.lineno for s in m.unit.steps)


def _in_turn(m: Migration, site: Site, node: ast.expr) -> bool:
    """`for scaler in _amp_state.loss_scalers:`, where what is done in turn only reads the scale; whether it is that."""
    module = site.module
    given, holder = node, module.parents.get(node)
    if isinstance(holder, ast.Call) and module.qualify(holder.func) is None and called_name(holder) == "enumerate":
        given, holder = holder, module.parents.get(holder)
    if not isinstance(holder, (ast.For, ast.comprehension)) or holder.iter is not given:
        return False
    target = holder.target
    if given is not node and isinstance(target, ast.Tuple):
        target = target.elts[-1]
    if not isinstance(target, ast.Name):
        raise _refuse(site)
    reads: list[ast.expr] = []
    around = holder if isinstance(holder, ast.For) else module.parents[holder]
    for use in module.loads.get(target.id, ()):
        if module.scope_of(use) is not module.scope_of(target):
            continue
        read, outer = module.parents[use], module.parents.get(module.parents[use])
        if around not in module.ancestors(use) or not isinstance(read, ast.Attribute):
            raise _refuse(site)
        if read.attr not in SCALE_NAMES or not isinstance(read.ctx, ast.Load):
            raise _refuse(site)
        reads.append(outer if isinstance(outer, ast.Call) and outer.func is read else read)
    scalers = [plan.at(module, node) for plan in m.scalers] if m.scales else []
    edits = m.edit(module)
    edits.replace(node, f"[{', '.join(scalers)}]")
    for read in reads:
        edits.replace(read, f"{target.id}.get_scale()")
    message = (
        f"goes through what scales now: {', '.join(scalers) or 'nothing'}; Apex had a scaler for each of num_losses"
    )
    m.output.done(module, site.node, "AMP403", "loss scale", message, "look")
    return True


def _assigned(m: Migration, site: Site, stmt: ast.Assign, attribute: ast.Attribute, plan: ScalerPlan) -> None:
    """A setting of the scaler: an argument of the GradScaler right after initialize, a call where it comes later."""
    module, edits = site.module, m.edit(site.module)
    if attribute.attr not in SETTINGS:
        raise _refuse(site)
    argument, meaning = SETTINGS[attribute.attr]
    if attribute.attr == "_loss_scale" and m.scales:
        for init in m.unit.inits:
            _refuse_static(site, init)
    if not m.scales or any(initial_setting(m, init, attribute.attr, plan) is stmt for init in m.unit.inits):
        edits.delete(stmt)
        message = f"the {meaning} is the scaler's {argument}" if m.scales else "taken out: there is no scaler"
        m.output.done(module, site.node, "AMP403", site.construct, message, "look")
        return
    scaler = plan.at(module, stmt)
    quote = m.style(module).quote
    whole = isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, float)
    value: tuple[str | ast.expr | ast.stmt, ...] = (stmt.value,) if whole else ("float(", stmt.value, ")")
    if attribute.attr == "_scale_seq_len":
        edits.replace(stmt, (f"{scaler}.set_growth_interval(", stmt.value, ")"))
    elif _scaled_before(m, module, stmt):
        edits.replace(stmt, (f"{scaler}.update(", *value, ")"))
    else:  # update() refuses before the first scale()
        state = f"{scaler}.load_state_dict({{**{scaler}.state_dict(), {quote}scale{quote}: "
        edits.replace(stmt, (state, *value, "})"))
    m.output.done(module, site.node, "AMP403", site.construct, f"sets the {meaning}", "review")


def _refuse_static(site: Site, init: Init) -> None:
    """A scale that is static is the one that `initialize` asks for: a scaler that is off has none, another keeps that."""
    levels = init.levels
    if static_scale(init) is None and levels != {"O0"}:
        return
    given = init.arguments.get("loss_scale")
    asked = f"loss_scale={init.module.source(given)}" if given is not None else f"{', '.join(levels)} alone"
    message = f"sets the scale that {asked} made static; write the scale that is meant as loss_scale= of initialize"
    raise Blocked.at(site, "AMP404", message)


def _scaled_before(m: Migration, module: Module, stmt: ast.stmt) -> bool:
    """Whether a loss has surely been scaled when a statement runs: it stands below one in the same scope."""
    return any(
        loss.module is module and module.scope_of(loss.call) is module.scope_of(stmt) and loss.call.lineno < stmt.lineno
        for loss in m.unit.losses
    )


def _replace(m: Migration, module: Module, node: ast.expr, site_node: ast.expr, plan: ScalerPlan) -> None:
    text = f"{plan.at(module, node)}.get_scale()" if m.scales else "1.0"
    m.edit(module).replace(node, text)
    m.output.done(module, site_node, "AMP403", "loss scale", "reads the scaler's scale")


def _refuse(site: Site) -> Blocked:
    message = "uses Apex's private state beyond reading the loss scale; write it anew on the GradScaler"
    if "opt_properties" in site.construct:
        message = (
            "uses Apex's private settings; where they cast again what a model is given or gives, delete that: autocast casts "
            "in a region around the call of the model, and .float() what leaves it"
        )
    return Blocked.at(site, "AMP404", message)
