"""`optimizer._amp_stash`, where Apex keeps master weights and gradients: refused with the whole unit (AMP404).

Apex: https://nvidia.github.io/apex/advanced.html
Native: https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.folds import asks_too_early
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

NAME = "_amp_stash"
ASKING = ("getattr", "hasattr", "setattr", "delattr")


def apply(m: Migration) -> None:
    for module in m.unit.reach:
        if NAME not in module.text:
            continue
        for node in module.nodes:
            if isinstance(node, ast.If) and asks_too_early(m.unit, module, node.test):
                m.edit(module).fold(node, "orelse")
                message = (
                    "this only runs before initialize, where the optimizer is not prepared yet: the other branch stays"
                )
                m.output.done(module, node, "AMP404", f"optimizer.{NAME}", message)
            elif isinstance(node, ast.If) and _does_nothing(node):
                m.edit(module).delete(node)
                m.output.done(module, node, "AMP404", f"optimizer.{NAME}", "asks for what Apex keeps, and does nothing")
        for node, holder in _uses(module):
            mine = module in m.unit.modules or m.project.slot(module, holder) in m.unit.optimizer_slots
            if (
                mine
                and m.live(module, node)
                and not m.edit(module).gone(node)
                and not _asks_whether_prepared(m, module, node)
            ):
                raise Blocked(
                    module,
                    node,
                    "AMP404",
                    f"optimizer.{NAME}",
                    "uses what Apex keeps on the optimizer; with GradScaler the model's parameters and their .grad are "
                    "what the step uses, scaled until unscale_: write this anew on them",
                )


def _does_nothing(node: ast.If) -> bool:
    """`if hasattr(optimizer, "_amp_stash"): pass`."""
    asks = (
        isinstance(node.test, ast.Call) and ast.unparse(node.test.func) == "hasattr" and NAME in ast.unparse(node.test)
    )
    return asks and not node.orelse and all(isinstance(s, ast.Pass) for s in node.body)


def _asks_whether_prepared(m: Migration, module: Module, node: ast.expr) -> bool:
    """`if hasattr(optimizer, "_amp_stash"):`, which asks whether initialize was given the optimizer, of branches that are
    one now."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr"):
        return False
    return any(
        isinstance(a, ast.If)
        and (a in m.pairs or asks_too_early(m.unit, module, a.test))
        and any(n is node for n in walk(a.test))
        for a in module.ancestors(node)
    )


def _uses(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each use of the stash, by attribute or by name as a string, with the expression that holds it."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == NAME:
            yield node, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING:
            if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value == NAME:
                yield node, node.args[0]
