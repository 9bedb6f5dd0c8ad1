"""torch's DistributedDataParallel in the place of Apex's brings inputs to the GPU of this process, not to the first of all.

Proved, of each call in the place of one of Apex's or kept beside it: what `device_ids` names first is number 0, as it is written
or as all that its variables were given. Not proved: that processes see more than one GPU each; what a function is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.checks.ranks import TORCH_DDP, was_apexs
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP656",
        title="torch's DistributedDataParallel brings inputs to the first GPU in every process",
        construct="apex.parallel.DistributedDataParallel",
        apex="Leaves the inputs where they are, and knows no device_ids.",
        native="Moves them to device_ids[0] before each forward.",
        why="Where each process has a GPU of its own, every one but the first computes with weights on that and inputs on GPU 0, and "
        "raises. A branch that no run with Apex came to was never tried. Leave device_ids out: torch then takes the device of the "
        "model.",
        links=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    for module, call, _ in review.calls_after(*TORCH_DDP):
        given = argument(call, "device_ids", 1)
        if given is not None and _first(review, module, given) and was_apexs(review, module, call):
            message = (
                f"device_ids={syntax.text(given)} is GPU 0 in every process, and torch's DistributedDataParallel brings the inputs "
                "there, as Apex's did not: every process whose model is on another raises at its first forward. Leave it out, or "
                "name the GPU of the process"
            )
            yield review.doubt(module, call, "AMP656", "DistributedDataParallel", message, "review")


def _first(review: Review, module: Module, value: ast.expr, depth: int = 4) -> bool:
    """Whether a device, or the first of some, is surely number 0."""
    if isinstance(value, ast.Constant):
        return value.value == "cuda:0" or (type(value.value) is int and value.value == 0)
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and _first(review, module, value.elts[0], depth)
    if isinstance(value, ast.Starred):
        return _first(review, module, value.value, depth)
    if isinstance(value, ast.ListComp) and len(value.generators) == 1 and not value.generators[0].ifs:
        return syntax.text(value.elt) == syntax.text(value.generators[0].target) and _first(
            review, module, value.generators[0].iter, depth
        )
    if isinstance(value, ast.Call) and value.args:
        called = syntax.text(value.func)
        if called == "range":
            return len(value.args) == 1 or _first(review, module, value.args[0], depth)
        if called in ("list", "tuple", "sorted"):
            return _first(review, module, value.args[0], depth)
        dotted = review.after.dotted(module.scope_of(value), value.func)
        return dotted == "torch.device" and _first(review, module, value.args[-1], depth)
    if isinstance(value, ast.Name) and depth:  # a field may be set in ways that are not seen, a parameter by a launcher
        owner = module.scope_of(value).binder(value.id)
        given = owner.bindings[value.id] if owner is not None else []
        stmts = [g for g in given if isinstance(g, ast.Assign) and len(g.targets) == 1]
        plain = len(stmts) == len(given) and all(isinstance(s.targets[0], ast.Name) for s in stmts)
        return bool(stmts) and plain and all(_first(review, module, s.value, depth - 1) for s in stmts)
    return False
