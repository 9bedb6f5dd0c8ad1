"""Models that are given float64, which Apex cast and autocast leaves alone: `.float()` is written where it is given.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP524",
        "A model is given float32 where it was given float64",
        "a call of the model",
        apex="Casts every floating tensor, float64 too: O1 at each function that it patches, the other levels what the model is "
        "given.",
        native="Autocast leaves float64 alone, and a float64 input raises beside a half weight; outside of a region it raises "
        "beside a float32 one.",
        why="The model computed in half or in float32 under Apex, never in float64. Only what is cast in sight is found: at the "
        "call, or by all that the name is given.",
        links=("https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",),
        examples=(Example("loss = model(x.double()).sum()", "loss = model(x.float()).sum()"),),
    ),
)

DOUBLES = frozenset({"torch.float64", "torch.double"})
MAKING = frozenset("tensor as_tensor zeros ones rand randn full empty".split())


def apply(m: Migration) -> None:
    naming = [module for module in m.project.modules if "double" in module.text or "float64" in module.text]
    calls = ((module, c) for module in naming for c, _ in module.calls)
    runs = [(module, c) for module, c in calls if m.live(module, c) and m.regions.is_forward(module, c)]
    if not runs or any(_is_double(m, module, c) for module in m.project.modules for c, _ in module.calls):
        return
    for module, call in runs:
        for value in (*call.args, *(k.value for k in call.keywords)):
            _cast(m, module, call, value)


def _is_double(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a call makes a model float64, or all that is made."""
    if called_name(call) in ("set_default_dtype", "set_default_tensor_type"):
        return True
    cast = _cast_from(module, call)
    return cast is not None and m.regions.forwards.is_model(module, cast)


def _cast(m: Migration, module: Module, call: ast.Call, value: ast.expr) -> None:
    edits = m.edit(module)
    cast = _cast_from(module, value) if isinstance(value, ast.Call) else None
    if cast is not None:
        edits.replace(value, (cast, ".float()"))
    elif isinstance(value, ast.Name) and _holds_double(module, value) and value not in edits.insertions:
        edits.insert("after", value, ".float()")
    else:
        return
    message = f"{module.source(value)} is float64, which Apex cast and autocast does not: the model is given float32"
    m.output.note(module, call, "AMP524", "a call of the model", message, "look")


def _cast_from(module: Module, call: ast.Call) -> ast.expr | None:
    """What a call casts to float64, if it does nothing else."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return None
    if func.attr == "double" and not call.args and not call.keywords:
        return func.value
    asked = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    alone = len(call.args) + len(call.keywords) == 1 == len(asked)
    return func.value if func.attr in ("to", "type") and alone and module.qualify(asked[0]) in DOUBLES else None


def _holds_double(module: Module, name: ast.Name) -> bool:
    """Whether all that a name may be given is cast to float64, or made so."""
    owner = module.scope_of(name).lookup(name.id)
    bound = reaching(owner, name) if owner is not None and owner is module.scope_of(name) else ()
    stmts = [module.statement(b) for b in bound if isinstance(b, ast.Name)]
    single = all(isinstance(s, ast.Assign) and any(t in bound for t in s.targets) for s in stmts)
    values = [s.value for s in stmts if isinstance(s, ast.Assign)]
    return bool(bound) and len(stmts) == len(bound) and single and all(_makes_double(module, v) for v in values)


def _makes_double(module: Module, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if _cast_from(module, value) is not None:
        return True
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("cuda", "to", "contiguous", "view", "unsqueeze"):
        moved = not any(k.arg == "dtype" for k in value.keywords) and len(value.args) < 2
        device = not value.args or "dev" in ast.unparse(value.args[0]) or isinstance(value.args[0], ast.Constant)
        return moved and (device or value.func.attr == "view") and _makes_double(module, value.func.value)
    made = (module.qualify(value.func) or "").startswith("torch.") and called_name(value) in MAKING
    return made and any(k.arg == "dtype" and module.qualify(k.value) in DOUBLES for k in value.keywords)
