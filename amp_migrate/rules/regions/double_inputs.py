"""Models that are given float64, which Apex cast and autocast leaves alone: `.float()` is written where it is given.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.arrays import Kind
from amp_migrate.reading.values.doubles import Doubles
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
        why="The model computed in half or in float32 under Apex, never in float64. What is cast to float64 in sight is found, and "
        "what NumPy computes in it where nothing says otherwise (`np.zeros(3)`, integers divided; what is not known is floating "
        "once it is divided), also in the data set of a "
        "loader, whose `collate` makes float64 of Python's numbers, too. What may be float64 or something that is not seen is "
        "told with [AMP544](#amp544-float64-reaches-a-layer-or-a-product-that-runs-in-half).",
        links=("https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",),
        examples=(Example("loss = model(x.double()).sum()", "loss = model(x.float()).sum()"),),
    ),
)

DOUBLES = frozenset({"torch.float64", "torch.double"})


def apply(m: Migration) -> None:
    if not m.project.once(_computes_double):
        return
    models = m.unit.model_slots | m.regions.forwards.parts | m.regions.forwards.selves
    about = ((module, c) for module in m.unit.cast for c, _ in m.project.once(Occurrences, module).calls_about(models))
    runs = [(module, c) for module, c in about if m.regions.is_forward(module, c) and m.live(module, c)]
    if not runs or any(_is_double(m, module, c) for module in m.project.modules for c, _ in module.calls):
        return
    for module, call in runs:
        for value in (*call.args, *(k.value for k in call.keywords)):
            _cast(m, module, call, value)


def _computes_double(project: Project) -> bool:
    """Whether any file names float64, or NumPy, which computes in it where nothing says otherwise."""
    return any(word in module.text for module in project.modules for word in ("double", "float64", "numpy"))


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
    elif isinstance(value, ast.Starred) or value in edits.insertions:
        return
    else:
        _by_default(m, module, call, value)
        return
    message = f"{module.source(value)} is float64, which Apex cast and autocast does not: the model is given float32"
    m.output.note(module, call, "AMP524", "a call of the model", message, "look")


def _by_default(m: Migration, module: Module, call: ast.Call, value: ast.expr) -> None:
    """Cast what NumPy makes float64 where nothing says otherwise, if it is floating in any case; tell of what may be so."""
    cls = m.project.class_around(module.scope_of(call))
    helpers = (f for f in m.project.resolved.get(call, ()) if f.cls is None or not f.cls.is_module)
    if (cls is not None and cls.is_module) or any(helpers):
        return  # what runs the network gives it float32; what is handed to a function is cast in it
    found = m.project.once(Doubles).of(module, value)
    doubles = [k for k in found if k.dtype == "double" and k.module is not None and isinstance(k.node, ast.expr)]
    if not all(k.tensor for k in doubles) or not doubles or any(k.dtype == "scalar" for k in found):
        return  # an array, or a number, is no tensor yet
    made, text = ", ".join(sorted({_place(k, module) for k in doubles})), module.source(value)
    sure = all(k.among("double", "single") or (k.dtype == "floating" and k.tensor) for k in found)
    if sure:
        plain = isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        if not plain:
            m.edit(module).insert("before", value, "(")
        m.edit(module).insert("after", value, ".float()" if plain else ").float()")
        ways = "is float64" if len(doubles) == len(found) else "is float64 on some way"
        message = f"{text} {ways} ({made}), which Apex cast and autocast does not: the model is given float32"
        m.output.note(module, call, "AMP524", "a call of the model", message, "look")
        return
    message = (
        f"{text} may be float64 ({made}), which Apex cast and autocast leaves alone: what raises on it beside half or float32 did "
        "not before. Write .float() where it is given, if it is no integer"
    )
    m.output.note(module, call, "AMP544", "a call of the model", message, "review")


def _place(made: Kind, near: Module) -> str:
    """What made a value float64, and where."""
    assert made.module is not None
    assert isinstance(made.node, ast.expr)
    where = f"line {made.node.lineno}" + (f" of {made.module.display}" if made.module is not near else "")
    text = " ".join(made.module.source(made.node).split())
    return f"{text if len(text) < 60 else text[:57] + '...'}: {where}"


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
