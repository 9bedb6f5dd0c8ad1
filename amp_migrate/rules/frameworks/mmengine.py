"""MMEngine: `dict(type="ApexOptimWrapper", opt_level="O1", ...)` becomes `dict(type="AmpOptimWrapper", ...)`.

Apex: https://mmengine.readthedocs.io/en/latest/api/generated/mmengine.optim.ApexOptimWrapper.html
Native: https://mmengine.readthedocs.io/en/latest/api/generated/mmengine.optim.AmpOptimWrapper.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.frameworks.calls import change_call, keywords, quoted, rename_import
from amp_migrate.rules.migration import Output

APEX = "https://mmengine.readthedocs.io/en/latest/api/generated/mmengine.optim.ApexOptimWrapper.html"
NATIVE = "https://mmengine.readthedocs.io/en/latest/api/generated/mmengine.optim.AmpOptimWrapper.html"
HOOKS = "https://mmengine.readthedocs.io/en/latest/migration/hook.html"

CODES = (
    Code(
        "AMP807",
        "MMEngine's ApexOptimWrapper becomes AmpOptimWrapper",
        "ApexOptimWrapper",
        apex="Initializes the model with apex.amp and scales the loss in update_params.",
        native="AmpOptimWrapper: torch.autocast with a GradScaler; loss_scale is dynamic, a float, or a dictionary of "
        "GradScaler's arguments.",
        why="The arguments that only apex.amp.initialize knows go; clipping and accumulation are the same in both.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                'optim_wrapper = dict(type="ApexOptimWrapper", opt_level="O1", optimizer=dict(type="SGD", lr=0.1))\n',
                'optim_wrapper = dict(type="AmpOptimWrapper", optimizer=dict(type="SGD", lr=0.1))\n',
            ),
        ),
    ),
    Code(
        "AMP808",
        "A hook with use_fp16 that is not part of the project",
        "DistOptimizerHook",
        apex="Projects derived from MMDetection brought a DistOptimizerHook that calls amp.scale_loss when use_fp16 is set.",
        native='MMCV 1.x: fp16 = dict(loss_scale="dynamic") and optimizer_config = dict(grad_clip=...). '
        'MMEngine: optim_wrapper = dict(type="AmpOptimWrapper", ...).',
        why="The hook itself is code of some project. Where that code is in sight it is migrated and the setting stays; "
        "here only the setting is.",
        links=(NATIVE, HOOKS),
    ),
)

OLD, NEW = "ApexOptimWrapper", "AmpOptimWrapper"
ONLY_APEX = (
    "opt_level",
    "enabled",
    "cast_model_type",
    "patch_torch_functions",
    "keep_batchnorm_fp32",
    "master_weights",
    "cast_model_outputs",
    "num_losses",
    "verbosity",
    "min_loss_scale",
    "max_loss_scale",
)


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite the wrapper where it is configured or built."""
    if OLD in module.text and not any(
        cls.name == OLD for cls in project.classes.values()
    ):  # that of the library itself
        for call, name in _wrappers(project, module):
            _wrapper(module, call, name, options, output)
        edits = output.edit(module)
        for node in module.of(ast.Constant):
            if node.value == OLD and not edits.gone(node):
                output.manual(module, node, "AMP807", OLD, f"use {NEW}, without the arguments that only Apex has")
    if "use_fp16" in module.text:
        _hooks(project, module, output)


def _wrappers(project: Project, module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls that configure or build the wrapper, with the node that names it."""
    for call, _ in module.calls:
        given = keywords(call).get("type")
        if isinstance(call.func, ast.Name) and call.func.id == "dict" and given is not None:
            if literal(given.value) == OLD:
                yield call, given.value
        elif (project.qualify(module, call.func) or "").startswith("mmengine."):
            if (project.qualify(module, call.func) or "").endswith(f".{OLD}"):
                yield call, call.func


def _wrapper(module: Module, call: ast.Call, name: ast.expr, options: Options, output: Output) -> None:
    named = keywords(call)
    reason = _reason(named)
    if call.args:
        reason = "its arguments stand without names: name them first"
    if reason is not None:
        output.manual(module, call, "AMP807", OLD, reason)
        return
    drop = [named[k] for k in ONLY_APEX if k in named]
    give: dict[str, str] = {}
    scale = named.get("loss_scale")
    value = literal(scale.value) if scale is not None else "dynamic"
    if scale is not None and isinstance(value, (int, str)) and value != "dynamic":
        give["loss_scale"] = repr(float(value))  # AmpOptimWrapper takes a float or a dictionary, no text and no int
    elif scale is not None and value is None:
        drop.append(scale)
    if options.dtype == "bfloat16":
        give["dtype"] = quoted(module, "bfloat16")
    function = None
    if name is call.func:
        function = module.source(name)[: -len(OLD)] + NEW
        rename_import(module, output, name, NEW)
    else:
        output.edit(module).replace(name, quoted(module, NEW))
    change_call(module, output, call, function=function, drop=drop, give=give)
    output.done(module, call, "AMP807", OLD, f"{NEW} is autocast with a GradScaler", "look")


def _reason(named: dict[str, ast.keyword]) -> str | None:
    level = literal(named["opt_level"].value) if "opt_level" in named else "O1"
    if level == "O0":
        return 'O0 trained in float32: use type="OptimWrapper"'
    if level is ... or ("enabled" in named and literal(named["enabled"].value) is not True):
        return f"whether Apex is used is computed: choose between OptimWrapper and {NEW} by it"
    if "loss_scale" in named and literal(named["loss_scale"].value) is ...:
        return f"the loss scale is computed: {NEW} takes a float, a dictionary or 'dynamic', no text with a number"
    if any(literal(named[k].value) is not None for k in ("min_loss_scale", "max_loss_scale") if k in named):
        return "GradScaler has no bounds: decide without them"
    return None


def _hooks(project: Project, module: Module, output: Output) -> None:
    for call, _ in module.calls:
        named = keywords(call)
        if literal(named["use_fp16"].value if "use_fp16" in named else None) is not True or "type" not in named:
            continue
        hook = literal(named["type"].value)
        if isinstance(hook, str) and not any(hook in m.text for m in project.modules if m is not module):
            output.manual(
                module,
                named["use_fp16"],
                "AMP808",
                hook,
                f"use_fp16 makes {hook} call Apex, and its code is not in sight: see `amp-migrate explain AMP808`",
            )
