"""`torch.onnx.export(model, torch.randn(...).half())`: what a model is traced on stays float32 as its weights do now.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
Native: https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.given_values import given_once
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.sites.half_casts import cast_to_half
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.fp16_utils import is_model, without_half

CODES = (
    Code(
        "AMP525",
        "What a model is traced or exported on stays float32",
        "half",
        apex="Under O2 and O3 the weights were half and took half inputs; under O1 the patched functions cast both.",
        native="The weights are float32, and a trace or an export stands in no autocast region, which traces cannot be made in "
        "with its cache: half inputs raise in the first layer.",
        why="The export would stop. What it writes is float32 now: trace a `.half()` copy on half inputs where half is wanted.",
        links=(
            "https://nvidia.github.io/apex/amp.html#opt-levels",
            "https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html",
        ),
    ),
)

TRACING = {
    "torch.onnx.export": "args",
    "torch.jit.trace": "example_inputs",
    "torch.export.export": "args",
}


def apply(m: Migration) -> None:
    """Take the casts off what models of the unit are traced on."""
    for module in m.unit.reach:
        if not any(name.rpartition(".")[2] in module.text for name in TRACING):
            continue
        traces = [call for call, _ in module.calls if module.qualify(call.func) in TRACING]
        for call in traces:
            if not call.args or not _is_of_unit(m, module, call.args[0]) or _half_there(m, module, call):
                continue
            for cast in _casts(module, call, traces):
                if isinstance(cast.func, ast.Attribute) and not m.edit(module).gone(cast):
                    without_half(m, module, cast, cast.func)
                    message = (
                        f"{module.source(call.func)} runs float32 weights on it now: half would raise; what is written is float32, "
                        "where it was half under O2 and O3"
                    )
                    m.output.done(module, cast, "AMP525", cast.func.attr, message, "review")


def _is_of_unit(m: Migration, module: Module, model: ast.expr) -> bool:
    """Whether what is traced is a model of the unit, or a part of one: `model.base`."""
    while not is_model(m, module, model):
        if not isinstance(model, ast.Attribute):
            return False
        model = model.value
    return True


def _half_there(m: Migration, module: Module, trace: ast.Call) -> bool:
    """Whether the function around a trace makes what is traced half itself, or opens a region around it."""
    scope, root = module.scope_of(trace), ast.unparse(trace.args[0]).partition(".")[0]
    if any(
        isinstance(a, ast.With) and "autocast" in ast.unparse(a.items[0].context_expr) for a in module.ancestors(trace)
    ):
        return True
    casts = (c for c in module.calls_in(scope) if cast_to_half(module, c) and not m.edit(module).gone(c))
    return any(root in (ast.unparse(c.func).partition(".")[0], *_targets(module, c)) for c in casts)


def _targets(module: Module, call: ast.Call) -> list[str]:
    """What the statement around a call gives a value: `copied = copy.deepcopy(model).half()`."""
    stmt = module.statement(call)
    return [ast.unparse(t) for t in stmt.targets] if isinstance(stmt, ast.Assign) else []


def _casts(module: Module, trace: ast.Call, traces: list[ast.Call]) -> Iterator[ast.Call]:
    """The casts to half of what a model is traced on, that nothing but traces gets."""
    for value in _inputs(module, trace):
        made = value
        if isinstance(value, ast.Name):
            scope = module.scope_of(trace).lookup(value.id)
            given = given_once(scope, value.id) if scope is not None else None
            taken = {v for t in traces for v in _inputs(module, t)}
            if scope is None or given is None or not taken.issuperset(scope.reads(value.id)):
                continue
            made = given
        while isinstance(made, ast.Call):
            if cast_to_half(module, made):
                yield made
                break
            made = made.func.value if isinstance(made.func, ast.Attribute) else made.func


def _inputs(module: Module, trace: ast.Call) -> list[ast.expr]:
    keyword = TRACING[module.qualify(trace.func) or ""]
    given = trace.args[1:2] or [k.value for k in trace.keywords if k.arg == keyword]
    return [e for g in given for e in (g.elts if isinstance(g, (ast.Tuple, ast.List)) else [g])]
