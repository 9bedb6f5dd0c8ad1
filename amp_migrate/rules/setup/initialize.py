"""`amp.initialize` becomes a `torch.amp.GradScaler`, created where the call stood.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import LOOP_NODES
from amp_migrate.reading.program.processes import framework_of
from amp_migrate.reading.scaler.from_users import FromUsers
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home, covers
from amp_migrate.reading.scaler.made_again import made_again
from amp_migrate.reading.switch.sure_above import not_sure
from amp_migrate.reading.units.legacy import LegacyInit, is_legacy
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.reading.values.absent import may_be_none
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.reading.values.unpacked import fills
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.clamp import first_scale
from amp_migrate.rules.scale.initial_scale import initial_setting
from amp_migrate.rules.scale.legacy import scaler_arguments
from amp_migrate.rules.scale.run_time_scale import preparation, variable
from amp_migrate.rules.setup.left_early import before_leaving
from amp_migrate.rules.setup.out_of_sight import no_initialize, no_loss, other_framework
from amp_migrate.rules.setup.rebinding import (
    drop_list,
    fold_same,
    give_back,
    is_none_here,
    leave_loop,
    not_given_back,
    rebindings,
)
from amp_migrate.writing.edits import joined

APEX = "https://nvidia.github.io/apex/amp.html#apex.amp.initialize"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler"

LINE_LENGTH = 120

CODES = (
    Code(
        "AMP110",
        "amp.initialize becomes a GradScaler",
        "amp.initialize",
        apex="Casts models and wraps optimizers as the opt level says, and creates the loss scalers.",
        native="Models and optimizers stay as they are; a torch.amp.GradScaler holds the scale, torch.autocast casts.",
        why="The scaler is created where initialize stood, with the switch that guarded it as enabled=, so that one path "
        "serves both settings.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
                'scaler = torch.amp.GradScaler("cuda")',
            ),
            Example(
                'if args.fp16:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
                'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)',
            ),
        ),
    ),
    Code(
        "AMP111",
        "The arguments of amp.initialize are not in sight",
        "amp.initialize",
        apex="Takes its settings from wherever they come.",
        native="GradScaler and autocast need the switch, the scale and the dtype separately.",
        why="What a GradScaler needs of a mapping is read from it by name, once, where the scaler is created; its other "
        "entries have no effect any more. Of *things, the lists have to be in sight that they may be; models or optimizers hidden "
        "in **kwargs cannot be told.",
        links=(APEX,),
        examples=(
            Example(
                "model, optimizer = amp.initialize(model, optimizer, **options)",
                'loss_scale = options.get("loss_scale")\n'
                'loss_scale = None if loss_scale in (None, "dynamic") else float(loss_scale)\n'
                "scaler = torch.amp.GradScaler(\n"
                '    "cuda",\n'
                "    init_scale=loss_scale or 2.0**16,\n"
                '    enabled=options.get("enabled", True) and options.get("opt_level", "O1") != "O0",\n'
                ")",
            ),
        ),
    ),
    Code(
        "AMP112",
        "O2 or O3 becomes autocast over float32 weights",
        "amp.initialize",
        apex="O2 keeps float16 weights with float32 master weights; O3 runs purely in float16.",
        native="Autocast keeps float32 weights and casts per operation, as O1 did.",
        why="There is no native O2. Results are at least as accurate; memory and speed can differ; checkpoints hold float32, as "
        "before.",
        links=(
            "https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision",
            "https://pytorch.org/docs/stable/amp.html",
        ),
    ),
    Code(
        "AMP113",
        "The switch for mixed precision is out of reach where the scaler must live",
        "amp.initialize",
        apex="State is global: the caller needs no switch.",
        native="A GradScaler is an object and must be created where its users see it, knowing whether it is enabled.",
        why="The function that calls initialize only prepares, so its callers create the scaler, with the arguments and "
        "defaults of their call in place of its parameters. Where the condition needs what only the function knows, they "
        "cannot.",
        links=(NATIVE,),
    ),
    Code(
        "AMP114",
        "A static loss scale is kept static",
        "amp.initialize",
        apex="loss_scale=N never changes and never skips a step.",
        native="update(N) holds the scale at N; a step whose gradients overflow is skipped.",
        why="GradScaler has no static mode of its own. Skipping a step with infinite gradients is the one difference. A scale "
        "known only at run time is None (dynamic) or a float, which update is given; where the step cannot see it, or "
        "several programs with different scales share a step, it goes with the scaler.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update",),
        examples=(
            Example(
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=128.0)',
                'scaler = torch.amp.GradScaler("cuda", init_scale=128.0)\n...\nscaler.update(128.0)',
            ),
        ),
    ),
    Code(
        "AMP115",
        "Where no loss is scaled, autocast alone is left of initialize",
        "amp.initialize",
        apex="initialize(model) without an optimizer only sets up casting; so does O1 where no loss is scaled.",
        native="torch.autocast around the forward and the loss is all that is needed.",
        why="Nothing is scaled without a backward, or before a plain one: that stays, and small float16 gradients are lost as they "
        "were. At O2 a step after a plain backward found no gradients, and at O3 it was one of half weights: such a program is "
        "left as it is.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.autocast",),
        examples=(
            Example(
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n...\n'
                "loss = criterion(model(x), y)\nloss.backward()\noptimizer.step()",
                'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(x), y)\n'
                "loss.backward()\noptimizer.step()",
            ),
        ),
    ),
    Code(
        "AMP116",
        "The program's own initialize or loop is not in sight",
        "amp.initialize",
        apex="State is global: any file may scale a loss that another file prepared.",
        native="The scaler is an object that both files must share.",
        why="A unit is migrated whole or not at all; give the other files too.",
        links=(APEX,),
    ),
)


def apply(m: Migration) -> None:
    """Emit the scaler and take the initialize calls out."""
    _complete(m)
    sites = [*((x.module, x.call) for x in m.unit.losses), *((s.module, s.call) for s in m.unit.steps)]
    acting = {*m.regions.scopes(), *(module.scope_of(call) for module, call in sites)}
    for plan in m.scalers if m.scales else ():
        for home in plan.homes if not isinstance(plan, FromUsers) else ():
            if home.idle:
                continue
            if (earlier := next((other for other in plan.created if _served(other, home)), None)) is not None:
                plan.served[home.init] = earlier
                continue
            if (
                later := next((o for o in plan.homes[::-1] if _takes_its_place(o, home, plan.homes)), None)
            ) is not None:
                plan.served[home.init] = later
                continue
            if (again := next((o for o in plan.homes if made_again(plan, home, o, acting)), None)) is not None:
                plan.served[home.init] = again
                continue
            _create(m, plan, home)
            plan.created.append(home)
        m.created += plan.created
    for init in m.unit.inits:
        if not isinstance(init, LegacyInit):
            _remove(m, init)


def _complete(m: Migration) -> None:
    """A unit needs both ends: something that initializes and, unless for inference, something that scales."""
    unit = m.unit
    for site in [*(i.site for i in unit.inits), *(x.site for x in unit.losses)]:
        if (framework := m.project.once(framework_of, site.module)) is not None:
            raise Blocked.at(site, "AMP116", other_framework(framework))
    if unit.unreadable:
        raise unit.unreadable[0]
    if not unit.inits and unit.losses and not isinstance(m.scaler, FromUsers):
        loss = unit.losses[0]
        raise Blocked(loss.module, loss.call, "AMP116", "amp.scale_loss", no_initialize(m, loss.site))
    if unit.inits and not unit.trained and not unit.only_inference and not is_legacy(unit):
        init = unit.inits[0]
        raise Blocked(init.module, init.call, "AMP116", "amp.initialize", no_loss(m))
    if not unit.inits and not unit.losses and not unit.only_casts and not isinstance(m.scaler, FromUsers):
        site = unit.sites[0]
        raise Blocked.at(site, "AMP116", no_initialize(m, site))


def _takes_its_place(other: Home, home: Home, homes: Sequence[Home]) -> bool:
    """Whether a later creation would stand right below a home's, of the same name: those of the branches of one test."""
    later = homes.index(other) > homes.index(home) and not other.idle and other.kind == home.kind == "local"
    same = other.scope is home.scope and other.anchor is home.anchor and other.after == home.after
    return later and same and other.carrier == home.carrier


def _served(earlier: Home, home: Home) -> bool:
    """Whether an earlier creation serves a home as well: same place, on the same path, under the same condition."""
    return covers(earlier, home) and (earlier.flag.always or earlier.flag.same(home.flag))


# -- creation --------------------------------------------------------------------------------------------------------


def create_switch(m: Migration, plan: ScalerPlan) -> None:
    """Emit the variable that tells functions without a scaler whether mixed precision is on."""
    for home in plan.homes:
        if any(_served(other, home) for other in plan.created):
            continue
        if home.kind == "local" and not home.carrier and home.scope not in plan.named:
            continue  # wherever it is asked for there, it is written out
        cls = m.project.class_of(home.scope)
        if home.kind == "self" and cls is not None and cls.family not in plan.named:
            continue
        if _read_above(plan, home):
            continue
        plan.created.append(home)
        target = plan.target(home)
        if home.kind == "self":
            m.output.fields.setdefault(target, []).append(home)
        value = as_bool(m.project, home.scope, (home.own or home.flag).text())
        m.create(home, [f"{target} = {value}"], [f"{target} = False"])
        before_leaving(m, home, f"{target} = False")


def _read_above(plan: ScalerPlan, home: Home) -> bool:
    """Whether all that reads the variable in the scope of a home stands above it, so that nothing reads what it is given there."""
    module, reads = home.scope.module, plan.reads.get(home.scope, [])
    if home.kind != "local" or home.carrier or not reads:
        return False
    if any(isinstance(a, LOOP_NODES) for a in module.ancestors(home.anchor)):
        return False
    here = all(where is module and module.scope_of(node) is home.scope for where, node in reads)
    return here and all(module.statement(node).lineno < home.anchor.lineno for _, node in reads)


def _create(m: Migration, plan: ScalerPlan, home: Home) -> None:
    init = home.init
    module = home.scope.module
    target = plan.target(home)
    quote = m.style(module).quote
    arguments = [f"{quote}{m.options.device}{quote}"]
    before: list[str] = []
    scale = static_scale(init)
    flag = not_sure(m.project, (home.own or home.flag).of_scaler, home.anchor)
    enabled = None if flag.always else as_bool(m.project, flag.scope, flag.text())
    if isinstance(scale, float):
        if scale == 1.0:
            enabled = "False"
        else:
            arguments.append(f"init_scale={scale!r}")
    elif isinstance(scale, ast.expr):
        before, start = preparation(m, home, scale)
        arguments.append(f"init_scale={start}")
    first = initial_setting(m, init, "_loss_scale", plan)
    if not any(a.startswith("init_scale") for a in arguments):
        lowered = init.module.source(first.value) if first is not None else first_scale(m, home)
        arguments += [f"init_scale={lowered}"] if lowered is not None else []
    window = initial_setting(m, init, "_scale_seq_len", plan)
    if window is not None:
        arguments.append(f"growth_interval={init.module.source(window.value)}")
    if isinstance(init, LegacyInit):
        arguments += scaler_arguments(m, init, home)
        enabled = "False" if init.scale.off else enabled
    if enabled is not None:
        arguments.append(f"enabled={enabled}")
    torch = m.torch(module, home.scope)
    line = f"{target} = {torch}.amp.GradScaler({', '.join(arguments)})"
    if len(line) + home.anchor.col_offset > LINE_LENGTH:
        indent = m.style(module).indent
        line = f"{target} = {torch}.amp.GradScaler(\n{indent}" + f",\n{indent}".join(arguments) + ",\n)"
    for switch in home.dissolved:
        m.edit(module).splice(switch, "body")
    # Where its settings are not reached, a scaler that does nothing stands for it, and a scale to give it.
    held = [f"{variable(m, home, scale)} = None"] if isinstance(scale, ast.expr) else []
    home.lines = [*before, line]
    m.create(home, home.lines, [*held, f"{target} = {m.scaler_off(module, home.scope)}"])


# -- removal ---------------------------------------------------------------------------------------------------------


def _remove(m: Migration, init: Init) -> None:
    module, call, stmt = init.module, init.call, init.site.stmt
    edits = m.edit(module)
    parent = module.parents.get(call)
    for keyword in call.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Name) and init.spread is None:
            for filling in fills(module, keyword.value):
                edits.delete(filling)
    if init.held is not None and not drop_list(m, module, init.held) and not isinstance(parent, ast.Expr):
        give_back(m, init, init.held)
        return
    if isinstance(parent, ast.Expr):
        edits.delete(stmt)
        return
    models = init.arguments.get("models")
    optimizers = init.arguments.get("optimizers")
    if models is None:
        raise Blocked(module, call, "AMP111", "amp.initialize", "the models of initialize cannot be told")
    has_optimizer = optimizers is not None and not is_none_here(m, module, stmt, optimizers)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        pairs = rebindings(module, parent.targets[0], models, optimizers if has_optimizer else None)
        if pairs is not None:
            pairs = not_given_back(m, module, stmt, pairs)
            if not pairs:
                edits.delete(stmt)
                leave_loop(m, module, init)
            else:
                left = ", ".join(module.source(t) for t, _ in pairs)
                edits.replace(stmt, (f"{left} = ", *joined((value for _, value in pairs), ", ")))
                fold_same(m, module, stmt, pairs)
            return
    if has_optimizer:
        assert optimizers is not None
        bare = isinstance(parent, (ast.Return, ast.Assign))
        if isinstance(optimizers, ast.Name) and may_be_none(m.project, module, optimizers):
            choice = ("(", models, ", ", optimizers, f") if {optimizers.id} is not None else ", models)
            edits.replace(call, choice if bare else ("(", *choice, ")"))
            return
        edits.replace(call, ("" if bare else "(", models, ", ", optimizers, "" if bare else ")"))
    else:
        edits.replace(call, (models,))
