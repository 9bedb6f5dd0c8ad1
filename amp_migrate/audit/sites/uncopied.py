"""Weights of which autocast and O1 make no half copies: those of layers that compute in float32, and parameters that a network
of the program makes itself and computes with as they are.

Copies are made of what is handed to an operation on the half list. A parameter that any file hands to such a one, or to a
function that is not told, may have one.
"""

from __future__ import annotations

import ast

from amp_migrate.audit.dtypes import ALIKE, FLOAT_BOTH, FLOAT_LAYERS
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module, Scope
from amp_migrate.audit.values.values import Values

LAYERS = FLOAT_LAYERS | {"Embedding", "EmbeddingBag", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"}
PARAMETER = "torch.nn.Parameter"


def uncopied(values: Values, scope: Scope, weight: ast.expr) -> bool:
    """Whether no copies are made of a weight as it is written: `self.embedding.weight.data[0]`, `self.shift.data`."""
    own = weight
    while isinstance(own, ast.Subscript) or (isinstance(own, ast.Attribute) and own.attr == "data"):
        own = own.value
    owner = values.program.is_self(scope, own.value) if isinstance(own, ast.Attribute) else None
    if owner is not None and isinstance(own, ast.Attribute) and _computed_with(values, owner, own.attr):
        return True
    layer = own
    while isinstance(layer, ast.Subscript) or (
        isinstance(layer, ast.Attribute) and layer.attr in ("data", "weight", "bias")
    ):
        layer = layer.value
    makers = {values.maker(o) or "" for o in values.origins(scope, layer)}
    names = {m.rpartition(".")[2] for m in makers if m.startswith("torch.nn.")}
    return bool(makers) and len(names) == len(makers) and names <= LAYERS


@kept
def _computed_with(values: Values, owner: Class, name: str) -> bool:
    """Whether a class makes a parameter under a name, and all that any file keeps under it is only computed with as it is: what
    another class keeps so is something else."""
    family = values.program.family(owner)

    def may_be_it(module: Module, at: ast.Attribute) -> bool:
        of = values.program.is_self(module.scope_of(at), at.value)
        return of is None or of in family

    stored = [s for s in values.fields(name) if may_be_it(s[0], s[1])]
    made = all(_is_parameter(values, module, given) for module, _, given, _ in stored)
    own = any(values.program.is_self(module.scope_of(at), at.value) is owner for module, at, _, _ in stored)
    read = (
        (module, node)
        for module in values.program.having(name)
        for node in syntax.every(module.tree, ast.Attribute)
        if node.attr == name and isinstance(node.ctx, ast.Load) and may_be_it(module, node)
    )
    return own and made and all(_plainly(values, module, node) for module, node in read)


def _is_parameter(values: Values, module: Module, given: ast.expr | None) -> bool:
    return isinstance(given, ast.Call) and values.program.dotted(module.scope_of(given), given.func) in (
        PARAMETER,
        "torch.nn.parameter.Parameter",
    )


def _plainly(values: Values, module: Module, read: ast.Attribute) -> bool:
    """Whether a read of a parameter hands it itself, no view of it, to no operation that may be on the half list."""
    around = module.parents.get(read)
    if isinstance(around, ast.BinOp):
        return not isinstance(around.op, ast.MatMult)
    if isinstance(around, ast.Attribute):
        return around.attr not in ALIKE
    if isinstance(around, ast.Call) and read in around.args:
        dotted = values.program.dotted(module.scope_of(around), around.func) or ""
        return dotted.startswith("torch.") and dotted.rpartition(".")[2] in FLOAT_BOTH
    return isinstance(around, (ast.UnaryOp, ast.Expr)) or (isinstance(around, ast.Subscript) and around.value is read)
