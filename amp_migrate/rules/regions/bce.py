"""`BCELoss` and `binary_cross_entropy`, which autocast refuses on CUDA: kept outside of regions, on float32 inputs.

Native: https://pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import children, walk
from amp_migrate.reading.program.view import find
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.regions.spans import Region, statements
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.tensors import only_described
from amp_migrate.rules.migration import Migration

METHODS = frozenset("view reshape squeeze flatten sigmoid detach contiguous unsqueeze t mean sum clamp".split())

CODES = (
    Code(
        "AMP505",
        "binary_cross_entropy stands outside autocast, on float32 inputs",
        "BCELoss",
        apex="O1 raises; O2 computes it in float32.",
        native="Raises under autocast on CUDA (CPU autocast accepts it).",
        why="Probabilities are too coarse in half precision; binary_cross_entropy_with_logits is the safe form.",
        links=(
            "https://pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy",
        ),
    ),
)


def parts(m: Migration, found: Regions, region: Region) -> list[Region]:
    """A region without the statements that autocast refuses: what stands before, between and after them.

    Raises Blocked where such a statement stands deeper in the region.
    """
    module = found.scope.module
    out: list[Region] = []
    run: list[ast.stmt] = []
    stmts = region.join.body if region.join is not None else statements(m.regions.view(found.scope), region)
    if not any(_refused(m, found, s) for s in stmts):
        for inner in (n for s in stmts for n in walk(s) if isinstance(n, ast.stmt)):
            if _refused(m, found, inner):
                message = "binary_cross_entropy stands deep in what autocast must cover; take it out of there"
                raise Blocked(module, inner, "AMP505", "BCELoss", message)
        return [region]
    for stmt in stmts:
        if not _refused(m, found, stmt):
            run.append(stmt)
            continue
        out += [Region(run[0], run[-1])] if run else []
        run = []
    return out + ([Region(run[0], run[-1])] if run else [])


def islands(m: Migration, found: Regions, regions: list[Region]) -> list[ast.stmt]:
    """The refused statements of a scope, those with a forward inside too."""
    view = m.regions.view(found.scope)
    held = [s for r in regions for s in (r.join.body if r.join is not None else statements(view, r))]
    return list(dict.fromkeys([*found.islands, *(s for s in held if _refused(m, found, s))]))


def _refused(m: Migration, found: Regions, stmt: ast.stmt) -> bool:
    node = find(m.regions.view(found.scope), stmt)
    return node is not None and m.regions.refused(found.scope.module, node)


def take_out(m: Migration, found: Regions, stmt: ast.stmt, inside: set[ast.stmt], cast: set[str]) -> None:
    """Make what a refused statement is given float32, its forwards first put into a region of their own."""
    module = found.scope.module
    edits = m.edit(module)
    forwards: list[ast.Call] = []
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call) and m.regions.is_forward(module, node):
            forwards.insert(0, node)
        else:
            stack.extend(children(node))
    for call, name in zip(forwards, _fresh(found, len(forwards)), strict=True):
        header = m.autocast(module, stmt)
        text = f"with {header}:\n{m.style(module).indent}{name} = {module.source(call)}"
        edits.insert_before(stmt, text)
        edits.replace(call, f"{name}.float()")
    computed = {n.id for s in inside for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for read in (n for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)):
        if read.id not in (computed & found.values) - cast or any(a in forwards for a in module.ancestors(read)):
            continue
        value = _tensor(module, read)
        if value is not None:
            edits.insert("after", value, ".float()")
    m.output.note(module, stmt, "AMP505", "BCELoss", "computed outside autocast, on float32 inputs", "look")


def _fresh(found: Regions, count: int) -> list[str]:
    """Names for the outputs of forwards that had none."""
    names: list[str] = []
    for _ in range(count):
        left = (n for n in ("output", "prediction", "model_output") if n not in names)
        names.append(unbound(found.scope, [*left, *(f"output_{i}" for i in range(2, count + 2) if i > len(names))]))
    return names


def _tensor(module: Module, name: ast.Name) -> ast.expr | None:
    """The tensor that a name stands for where it is an argument: itself, or a part of it, or whose dtype is asked;
    None for anything else."""
    value: ast.expr = name
    parent = module.parents[value]
    while isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is value:
        outer = module.parents[parent]
        if isinstance(outer, ast.Call) and outer.func is parent:
            return value if isinstance(parent, ast.Attribute) and parent.attr in METHODS else None
        if only_described(module, value):
            return value if isinstance(parent, ast.Attribute) and parent.attr == "dtype" else None
        value, parent = parent, outer
    if only_described(module, value) or (isinstance(parent, ast.Call) and parent.func is value):
        return None
    return value if isinstance(parent, (ast.Call, ast.BinOp, ast.UnaryOp, ast.keyword)) else None
