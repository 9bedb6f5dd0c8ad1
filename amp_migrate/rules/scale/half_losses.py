"""A loss that is the mean of what the model put out: in float16, its gradient is the scale itself.

Native: https://pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32 (`mean` is none of them)
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.autocast import covered, wanted
from amp_migrate.rules.regions.half_values import HalfValues
from amp_migrate.rules.regions.promised import promises_float32

CODES = (
    Code(
        "AMP518",
        "The mean of outputs that becomes a loss is taken in float32",
        "mean",
        apex="O2 and O3 made outputs float32; under O1 the mean of a float16 output was float16 as well.",
        native="Autocast takes means, variances and deviations in float16: the gradient of such a loss is the scale.",
        why="65536 is infinite in float16: the step would be skipped until the scale is 32768, and each time it grows back.",
        links=("https://pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32",),
        examples=(Example("loss = output.mean()", "loss = output.float().mean()"),),
    ),
)


def apply(m: Migration) -> None:
    """Make the outputs float32 that a scaled loss is the mean of."""
    if not m.scales:
        return
    for scope in {loss.module.scope_of(loss.call): None for loss in m.unit.losses if m.live(loss.module, loss.call)}:
        module = scope.module
        if m.switch.read_in(scope) == "False":
            continue  # O0: nothing is float16
        found = m.regions.read(scope)
        half = HalfValues(m, found, covered(m, found, wanted(m, found)), set())
        scaled = [n for x in m.unit.losses if x.module is module for n in walk(x.loss)]
        for call in dict.fromkeys(n for n in [*found.averages, *scaled] if isinstance(n, ast.Call)):
            taken = found.outputs.averages(call)
            if taken is None or half.is_float32(taken):
                continue
            graded = (
                found.outputs.has_gradient(taken) and _is_whole(module, call, taken) and not _only_shown(module, call)
            )
            if not graded and not promises_float32(m):
                continue  # a number in the loss, which O1 computed in half as well
            if isinstance(taken, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                m.edit(module).insert("after", taken, ".float()")
            elif isinstance(call.func, ast.Attribute) and taken is call.func.value:
                m.edit(module).replace(call.func, ("(", taken, f").float().{call.func.attr}"))
            else:
                m.edit(module).insert("before", taken, "(")
                m.edit(module).insert("after", taken, ").float()")
            why = "O2 and O3 gave it so"
            if graded:
                why = "in float16 the gradient of that would be the loss scale, and 65536 is infinite there"
            message = f"{module.source(taken)} becomes float32 before its mean: {why}"
            m.output.note(module, call, "AMP518", "mean", message, "as-is")


def _is_whole(module: Module, call: ast.Call, taken: ast.expr) -> bool:
    """Whether a mean is the loss, or is added or averaged to it as it is: of one along an axis, `output.mean(dim=1)`, each item
    has a part of the gradient, where what comes next does not hand it all of that."""
    along = any(k.arg in ("dim", "axis") for k in call.keywords) or any(a is not taken for a in call.args)
    parent = module.parents[call]
    over = module.parents[parent] if isinstance(parent, ast.Attribute) else parent
    return not along or (isinstance(over, ast.Call) and called_name(over) in ("sum", "mean"))


def _only_shown(module: Module, call: ast.Call) -> bool:
    """Whether a variable that a mean is given to is read for its number alone from there on: in a log."""
    stmt = module.statement(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    scope = module.scope_of(stmt)
    if not isinstance(target, ast.Name) or scope.lookup(target.id) is not scope or not scope.is_function:
        return False
    again = any(isinstance(a, LOOP_NODES) for a in module.ancestors(stmt))
    later = [module.parents[n] for n in scope.reads(target.id) if again or n.lineno > stmt.lineno]
    return all(isinstance(at, ast.Attribute) and at.attr in ("item", "detach", "tolist") for at in later)
