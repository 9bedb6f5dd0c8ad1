"""Catalyst: `APEXEngine(apex_kwargs=...)` becomes `AMPEngine()`, `fp16=dict(apex=True, ...)` becomes `fp16=True`.

Apex: https://catalyst-team.github.io/catalyst/v21.09/api/engines.html
Native: https://catalyst-team.github.io/catalyst/api/engines.html
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import is_none, literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.frameworks.calls import belongs_to, calls_of, change_call, keywords, rename_import
from amp_migrate.rules.migration import Output

APEX = "https://catalyst-team.github.io/catalyst/v21.09/api/engines.html"
NATIVE = "https://catalyst-team.github.io/catalyst/api/engines.html"

CODES = (
    Code(
        "AMP806",
        "Catalyst's Apex engines become its AMP engines",
        "APEXEngine",
        apex="Engines named APEX and the setting fp16=dict(apex=True, opt_level=...) call apex.amp.initialize.",
        native="Catalyst 21: AMPEngine, DataParallelAMPEngine, DistributedDataParallelAMPEngine, with scaler_kwargs for the "
        "GradScaler; before that fp16=True. Catalyst 22: GPUEngine(fp16=True) and its siblings.",
        why="The engine of the same version is chosen, so nothing else of the program changes.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                'from catalyst import dl\n\nengine = dl.APEXEngine("cuda:1", apex_kwargs=dict(opt_level="O1"))\n',
                'from catalyst import dl\n\nengine = dl.AMPEngine("cuda:1")\n',
            ),
            Example(
                "from catalyst import dl\n\nrunner = dl.SupervisedRunner()\n"
                'runner.train(model=model, fp16=dict(apex=True, opt_level="O1"))\n',
                "from catalyst import dl\n\nrunner = dl.SupervisedRunner()\nrunner.train(model=model, fp16=True)\n",
            ),
        ),
    ),
)

ENGINE = re.compile(r"catalyst\.(?:\w+\.)*((?:DistributedDataParallel|DataParallel)?)(?:APEX|Apex)Engine")
POSITION = {"": 1, "DataParallel": 0}  # of apex_kwargs
HARMLESS = frozenset(("opt_level", "verbosity"))


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite engines and the fp16 setting of runners; report engines that are not called in sight."""
    if "catalyst" not in module.text or belongs_to(module, "catalyst"):
        return
    for call, name in calls_of(project, module, ENGINE):
        _engine(module, call, name, output)
    edits = output.edit(module)
    for node in module.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and not edits.gone(node):
            found = ENGINE.fullmatch(project.qualify(module, node) or "")
            parent = module.parents.get(node)
            if found and not (isinstance(parent, ast.Call) and parent.func is node):
                output.manual(module, node, "AMP806", "APEXEngine", f"use {found[1]}AMPEngine")
    for call, _ in module.calls:
        _runner(module, call, output)


def _engine(module: Module, call: ast.Call, name: str, output: Output) -> None:
    match = ENGINE.fullmatch(name)
    assert match is not None, "the name was found by this pattern"
    kind = match[1]
    named = keywords(call)
    position = POSITION.get(kind)
    settings: list[ast.expr | ast.keyword] = [named[k] for k in ("apex_kwargs", "opt_level") if k in named]
    if position is not None and len(call.args) > position:
        settings.append(call.args[position])
    reason = next((r for s in settings if (r := _reason(s)) is not None), None)
    if "ddp_kwargs" in named:
        reason = "ddp_kwargs are those of Apex's DistributedDataParallel: keep what torch's has too"
    if reason is not None:
        output.manual(module, call, "AMP806", f"{kind}APEXEngine", f"{reason}; then use {kind}AMPEngine")
        return
    new = f"{kind}AMPEngine"
    function = re.sub(r"\w+$", new, module.source(call.func)) if isinstance(call.func, ast.Attribute) else new
    rename_import(module, output, call.func, new)
    change_call(module, output, call, function=function, drop=settings)
    output.done(module, call, "AMP806", f"{kind}APEXEngine", f"{new} is autocast with a GradScaler", "look")


def _reason(setting: ast.expr | ast.keyword) -> str | None:
    value = setting.value if isinstance(setting, ast.keyword) else setting
    if isinstance(setting, ast.keyword) and setting.arg == "opt_level":
        return "O0 trains in float32: use DeviceEngine" if literal(value) == "O0" else None
    entries = dictionary(value)
    if entries is None:
        return "what apex_kwargs holds is not in sight: give GradScaler's part of it as scaler_kwargs"
    if entries.get("opt_level") == "O0":
        return "O0 trains in float32: use DeviceEngine"
    others = set(entries) - HARMLESS
    return (
        f"{min(others)} has no counterpart in the engine: GradScaler's arguments go into scaler_kwargs"
        if others
        else None
    )


def dictionary(node: ast.expr) -> dict[str, object] | None:
    """The entries of a dictionary or `dict(...)`, computed values as Ellipsis; None for anything else."""
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {str(literal(k)): literal(v) for k, v in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        if all(k.arg is not None for k in node.keywords):
            return {str(k.arg): literal(k.value) for k in node.keywords}
    if is_none(node):
        return {}
    return None


def _runner(module: Module, call: ast.Call, output: Output) -> None:
    """`runner.train(fp16=...)`, and `distributed_params=` of older versions."""
    named = keywords(call)
    for name in ("fp16", "distributed_params"):
        entries = dictionary(named[name].value) if name in named else None
        if not entries or not entries.keys() & {"apex", "opt_level"} or entries.get("apex") is False:
            continue
        if entries.get("opt_level") == "O0" or set(entries) - HARMLESS - {"apex", "amp"} or name != "fp16":
            output.manual(
                module, named[name], "AMP806", name, f"{name} asks for Apex: fp16=True is autocast with a GradScaler"
            )
            continue
        output.edit(module).replace(named[name].value, "True")
        output.done(module, named[name], "AMP806", name, "fp16=True is autocast with a GradScaler", "look")
