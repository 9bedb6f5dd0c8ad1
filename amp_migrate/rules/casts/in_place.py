"""`dist.addmm_(x, y.t())`, `cosine.scatter_(1, label, margin)`: in-place products and writes, which take no part in autocast,
are given arguments of the dtype of what they are written into.

Native: https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module
from amp_migrate.rules.migration import Migration

IN_PLACE = frozenset("addmm_ addmv_ addbmm_ baddbmm_ addr_".split())
# Which argument of a method is written: `cosine.scatter_(1, label, margin)`; functions are given the tensor first.
_BY_INDEX = "scatter scatter_ scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_copy index_copy_"
WRITES = {
    **dict.fromkeys([*_BY_INDEX.split(), "index_reduce", "index_reduce_"], 2),
    **dict.fromkeys("index_put_ masked_scatter masked_scatter_ put_".split(), 1),
    "lerp_": 0,
}

WRITTEN = ("src", "source", "tensor", "values", "end")

CODES = (
    Code(
        "AMP542",
        "an in-place product or write is given arguments of the dtype that it is written into",
        "tensor.addmm_",
        apex="Casts the arguments of a product to the dtype of the tensor that is written into. O2 computed all of a network in "
        "half: what `scatter_`, `index_add_` and their like write was of one dtype there.",
        native="In-place products and writes take no part in autocast, and raise on float16 and float32 together.",
        why="A distance of features, `dist.addmm_(x, y.t(), beta=1, alpha=-2)`, is float32 where its squares were summed, and the "
        "features are float16 in the region; a margin is float32 after `pow`, and the cosines that it is scattered into are not.",
        links=("https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior",),
    ),
)


def apply(m: Migration) -> None:
    """Cast what such products are given, and what is assigned by a mask or by indices, where the audit saw float16 beside float32."""
    for module in m.project.modules:
        lines = m.mended_lines(module, "AMP542")
        for call, _ in module.calls if lines else ():
            if call.lineno in lines and isinstance(call.func, ast.Attribute):
                if call.func.attr in WRITES:
                    _write_call(m, module, call, call.func)
                _cast(m, module, call, call.func)
        assignments: list[ast.Assign | ast.AugAssign] = (
            [*module.of(ast.Assign), *module.of(ast.AugAssign)] if lines else []
        )
        for stmt in assignments:
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
            if stmt.lineno in lines and isinstance(target, ast.Subscript):
                _write(m, module, stmt, target.value)


def _write(m: Migration, module: Module, stmt: ast.Assign | ast.AugAssign, into: ast.expr) -> None:
    if _as_taken(m, module, into, stmt.value):
        message = (
            f"what is assigned by a mask or by indices is of the dtype of {module.source(into)}: no other is taken"
        )
        m.output.done(module, stmt, "AMP542", "tensor.__setitem__", message)


def _write_call(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> None:
    """`cosine.scatter_(1, label, margin)`, `torch.scatter(cosine, 1, label, margin)`."""
    given = list(call.args)
    into = given.pop(0) if (module.qualify(func) or "").startswith("torch.") and given else func.value
    named = [k.value for k in call.keywords if k.arg in WRITTEN]
    values = given[WRITES[func.attr] :][:1] or named
    if values and not any(isinstance(a, ast.Starred) for a in given) and _as_taken(m, module, into, values[0]):
        message = (
            f"takes no part in autocast: what it writes is of the dtype of {module.source(into)}, as no other is taken"
        )
        m.output.done(module, call, "AMP542", f"tensor.{func.attr}", message)


def _as_taken(m: Migration, module: Module, into: ast.expr, value: ast.expr) -> bool:
    """Cast a value to the dtype of a tensor that has a name."""
    edits = m.edit(module)
    if not isinstance(into, (ast.Name, ast.Attribute)) or isinstance(value, ast.Constant) or value in edits.insertions:
        return False
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        edits.insert("before", value, "(")
        edits.insert("after", value, ")")
    edits.insert("after", value, f".to({module.source(into)}.dtype)")
    return True


def _cast(m: Migration, module: Module, call: ast.Call, func: ast.Attribute) -> None:
    into = func.value
    factors = [
        *call.args[-2:],
        *(k.value for k in call.keywords if k.arg in ("mat1", "mat2", "batch1", "batch2", "vec")),
    ]
    factors = [f for f in factors if not isinstance(f, (ast.Constant, ast.Starred))]
    if func.attr not in IN_PLACE or not isinstance(into, (ast.Name, ast.Attribute)) or not factors:
        return
    edits = m.edit(module)
    name = module.source(into)
    for factor in factors:
        if isinstance(factor, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            edits.insert("after", factor, f".to({name}.dtype)")
        else:
            edits.insert("before", factor, "(")
            edits.insert("after", factor, f").to({name}.dtype)")
    levels = frozenset[str]().union(*(i.levels for i in m.unit.inits)) - {"O0"}
    message = f"takes no part in autocast: its arguments are cast to the dtype of {name}"
    if not levels or "O1" in levels:  # the others patch no function
        message += ", as Apex cast them" if levels <= {"O1"} else ", as O1 cast them"
    m.output.done(module, call, "AMP542", "tensor.addmm_", message)
