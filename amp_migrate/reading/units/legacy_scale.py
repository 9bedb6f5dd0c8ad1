"""The loss scale an FP16_Optimizer asks for, static or dynamic, in the terms of a GradScaler."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import argument, is_none
from amp_migrate.reading.program.logic import bracketed
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.table import Value
from amp_migrate.reading.values.there import certainly_parsed
from amp_migrate.reading.values.unpacked import literal_dict

START = "2.0**16"


@dataclass(frozen=True)
class Scale:
    """Source texts, valid where the wrapper is called. None stands for GradScaler's own default.

    start: the initial scale. interval: clean steps before it doubles. fixed: what `update` is given to hold the scale.
    off: a static scale of 1, which is no scaling. limits: the bounds of a dynamic scale, as `initialize` names them.
    begins: whether a dynamic scale has a start of its own. settled: told by `loss_scale` of the arguments (`settle_scales`).
    """

    start: str | None = None
    interval: str | None = None
    fixed: str | None = None
    off: bool = False
    limits: tuple[tuple[str, ast.expr], ...] = ()
    begins: bool = False
    settled: str = ""

    @property
    def may_be_static(self) -> bool:
        return self.fixed is not None or self.settled not in ("", "None")

    @property
    def is_static(self) -> bool:
        """Whether it is never dynamic."""
        fixed = self.fixed or self.settled
        return self.off or (bool(fixed) and fixed != "None" and self.start == fixed)


def read_scale(project: Project, group: list[Site], choice: ast.If | None) -> Scale:
    """The scale of one FP16_Optimizer, or of the two that an `if` chooses between.

    Raises Blocked where the settings are not in sight.
    """
    if choice is None:
        return _single(project, group[0])
    one, two = (_single(project, site) for site in group)
    if one == two:
        return one
    test = group[0].module.source(choice.test)
    dynamic_first = _dynamic(one)
    dynamic, static = (one, two) if dynamic_first else (two, one)
    if not _dynamic(dynamic) or _dynamic(static):
        raise Blocked.at(
            group[0],
            "AMP707",
            "the two FP16_Optimizers differ in more than static or dynamic scaling; choose first, then wrap once",
            choice,
        )
    fixed = static.fixed or "1.0"
    begins = dynamic.begins
    if dynamic_first and _is_zero(choice.test, group[1]):
        asked = _made_float(fixed)
        return Scale(
            f"{fixed} if {asked} else {dynamic.start or START}" if asked else f"{fixed} or {dynamic.start or START}",
            dynamic.interval,
            f"{fixed} if {asked} else None" if asked else f"{fixed} or None",
            limits=dynamic.limits,
            begins=begins,
        )
    first, second = ("None", fixed) if dynamic_first else (fixed, "None")
    start = dynamic.start or START
    begin, other = (start, fixed) if dynamic_first else (fixed, start)
    return Scale(
        f"{begin} if {test} else {other}",
        dynamic.interval,
        f"{first} if {test} else {second}",
        limits=dynamic.limits,
        begins=begins,
    )


def _dynamic(scale: Scale) -> bool:
    return scale.fixed is None and not scale.off


def _is_zero(test: ast.expr, site: Site) -> bool:
    """`if args.loss_scale == 0:` or `if not args.loss_scale:` before a wrapper with that static scale."""
    static = site.argument(1, "static_loss_scale")
    if static is None:
        return False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.dump(test.operand) == ast.dump(static)
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == 0
        and ast.dump(test.left) == ast.dump(static)
    )


def _made_float(fixed: str) -> str:
    """What a static scale is that becomes a float, where it may be asked first whether it is set: `float(None)` raises."""
    node = ast.parse(fixed, mode="eval").body
    given = node.args[0] if isinstance(node, ast.Call) and fixed.startswith("float(") and len(node.args) == 1 else None
    return ast.unparse(given) if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)) else ""


def _single(project: Project, site: Site) -> Scale:
    call = site.call
    assert call is not None
    static = argument(call, 1, "static_loss_scale")
    dynamic = argument(call, 2, "dynamic_loss_scale")
    settings = argument(call, 3, "dynamic_loss_args")
    moving = _moving(site, settings)
    switch = project.once(Values).truth(site.module, dynamic) if dynamic is not None else False
    if switch:
        return moving
    fixed = _number(project, site.module, static)
    if switch is False or dynamic is None:
        return Scale(off=True) if fixed == "1.0" else Scale(start=fixed, fixed=fixed)
    test = bracketed(dynamic, site.module.source(dynamic))
    return Scale(
        f"{moving.start or START} if {test} else {fixed}",
        moving.interval,
        f"None if {test} else {fixed}",
        limits=moving.limits,
        begins=moving.begins,
    )


def settings_of(calls: list[ast.Call], choice: ast.If | None) -> list[ast.expr]:
    """What is read where an FP16_Optimizer is made, besides the optimizer, to settle its loss scale."""
    asked = [choice.test] if choice is not None else []
    return [*asked, *(v for call in calls for v in (*call.args[1:], *(k.value for k in call.keywords)))]


def over_fused_adam(site: Site) -> bool:
    """Whether it is the FP16_Optimizer of apex.optimizers, made for FusedAdam alone; else that of apex.fp16_utils."""
    return "fp16_utils" not in site.name


def left_open(site: Site, scale: Scale) -> str:
    """What is said of a dynamic scale that was left to the wrapper of apex.fp16_utils, which once had other defaults."""
    if scale.is_static or over_fused_adam(site):
        return ""
    now, once = [], []
    if not scale.begins:
        now, once = ["starts at 65536"], ["at 2**32"]
    if scale.interval is None:
        now, once = [*now, "doubles after 2000 clean steps"], [*once, "after 1000"]
    told = f"; the scale {' and '.join(now)}, as in the last Apex; before Apex had amp.initialize, that was {' and '.join(once)}"
    return told if now else ""


def _moving(site: Site, settings: ast.expr | None) -> Scale:
    """A dynamic scale. The wrapper of apex.optimizers doubles it after 1000 clean steps, the other after 2000."""
    interval = "1000" if over_fused_adam(site) else None
    if settings is None or is_none(settings):
        return Scale(interval=interval)
    found = literal_dict(site.module, settings)
    if found is None:
        raise Blocked.at(
            site,
            "AMP707",
            f"dynamic_loss_args={ast.unparse(settings)} is not in sight; write its entries out",
            settings,
        )
    texts = {k: site.module.source(v) for k, v in found.items()}
    limits = tuple((k, v) for k, v in found.items() if k in ("min_loss_scale", "max_loss_scale"))
    start = texts.get("init_scale")
    return Scale(start, texts.get("scale_window", interval), limits=limits, begins=start is not None)


def _number(project: Project, module: Module, node: ast.expr | None) -> str:
    """A static scale as text that is a float: `GradScaler.update` accepts nothing else."""
    if node is None:
        return "1.0"
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        text = module.source(node)
        return text if isinstance(node.value, float) and float(node.value) != 1.0 else repr(float(node.value))
    text = module.source(node)
    return text if _is_float(project, module, node) else f"float({text})"


def _is_float(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is a float by its form, whatever way it comes, or a command-line option declared as one."""
    values = project.once(Values).may_be(module, node)
    parsed = all(value.kind != "option" for value in values) or certainly_parsed(project, module, node)
    return parsed and all(_makes_float(value) for value in values)


def _makes_float(value: Value) -> bool:
    node = value.node
    if isinstance(node, ast.BinOp):
        return any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in walk(node))
    if isinstance(node, ast.Call) and value.kind == "option":
        made, default = argument(node, 99, "type"), argument(node, 99, "default")
        # argparse gives a default that is no text as it is: `type=float, default=1` is an int. No scale is 0.
        whole = isinstance(default, ast.Constant) and isinstance(default.value, int) and default.value != 0
        return not whole and isinstance(made, ast.Name) and made.id == "float"
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "float"
    return isinstance(value.constant, float)
