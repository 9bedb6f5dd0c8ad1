"""Nothing writes into a network's weights between two runs of it in one autocast region, and the first has gradients if
the second has.

Autocast makes a half copy of each weight (float32, a leaf that asks for gradients) when an operation first needs it, and
takes that copy until the outermost region is left, whatever is written into the weight meanwhile. Under O2 and O3 the
weights themselves were half; O1 kept copies too, until a backward pass under `amp.scale_loss` was done, and made anew those
of a run without gradients. Torch before 2.10 keeps the latter as well, which have no history. Followed: see `passes.py`; not
proved: writes in code out of sight, but for the running averages known by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.happened import Stale
from amp_migrate.audit.sites.passes import MOST, Passes
from amp_migrate.audit.sites.regions import Region
from amp_migrate.audit.sites.writers import GRADLESS, gradients_off, gradless, may_write, writers
from amp_migrate.findings import Code

FEW = 60  # functions gone through where nothing writes

CODES = (
    Code(
        code="AMP536",
        title="a network runs on half copies of weights that were written to since, or that have no history",
        construct="an autocast region",
        apex="O2 and O3 trained half weights: whatever was written into them counted at once. O1 made its copies anew after each "
        "backward pass.",
        native="Open a region for each run of the network, or pass cache_enabled=False to this one.",
        why="autocast keeps the half copy of a weight until its region is left: a network that got the weights of its running "
        "average, or perturbed ones, computes with the old ones. A copy made under no_grad has no history: before torch 2.10 a "
        "run with gradients that takes it gives its weights none (pytorch/pytorch#112583).",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed:
        return
    regions = [(r, body) for c in review.changes.values() for r, body in _written(both, c.after)]
    modules = both.after.modules if regions else []
    names, blind = writers(modules), gradless(modules)
    passes: Passes | None = None
    for region, body in regions:
        nodes = [n for s in body for n in syntax.walk(s)]
        written = may_write(nodes) or _calls(nodes, names)
        if not written:
            trained = not gradients_off(review.after, region.module, body[0])
            if not trained or not _calls(nodes, blind | GRADLESS):
                continue
        if passes is None:
            passes = Passes(both.after.forwards, both.after.regions, cleared=False)
        passes.cleared = bool(both.around_of(region.module)) and all(
            s.surely_patches for s in both.around_of(region.module)
        )
        for stale in passes.run(region.module, body, MOST if written else FEW):
            message = _blind(review, stale) if stale.blind else _stale(review, stale)
            doubt = review.doubt(region.module, region.call, "AMP536", "an autocast region", message, "review")
            yield replace(doubt, remedy=(doubt.path, review.line(region.module, body[0])))


def _stale(review: Review, stale: Stale) -> str:
    module, node = stale.wrote
    return (
        f"{module.path}:{review.line(module, node)} writes into weights ({stale.written}) between two runs of their network in "
        f"this autocast region, the second at {stale.module.path}:{review.line(stale.module, stale.node)}: that takes "
        "the half copies made for the first. Pass cache_enabled=False, or open a region for each run"
    )


def _blind(review: Review, stale: Stale) -> str:
    module, node = stale.wrote
    return (
        f"{syntax.text(stale.node.func)} at {stale.module.path}:{review.line(stale.module, stale.node)} runs with gradients what "
        f"{module.path}:{review.line(module, node)} ran without in this autocast region: before torch 2.10 it takes the half "
        "copies made there, which have no history, and these weights get no gradient. Pass cache_enabled=False, or open a "
        "region for each run"
    )


OPENING = frozenset({ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef})


def _written(both: Mixed, module: Module) -> Iterator[tuple[Region, list[ast.stmt]]]:
    """The regions that the migration wrote into a file, with what runs in them."""
    if "autocast" not in module.text:
        return
    for stmt in syntax.walk(module.tree):
        if type(stmt) not in OPENING:
            continue
        calls: list[ast.expr] = []
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            calls = [i.context_expr for i in stmt.items]
        elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = stmt.decorator_list
        for call in calls:
            region = both.after.regions.opened(module, call)
            if region is None or region.off or region.unseen or not isinstance(stmt, ast.stmt):
                continue
            cached = next((k.value for k in region.call.keywords if k.arg == "cache_enabled"), None)
            if both.written(region) and (not isinstance(cached, ast.Constant) or cached.value):
                yield region, stmt.body  # type: ignore[attr-defined]


def _calls(nodes: list[ast.AST], names: frozenset[str]) -> bool:
    return bool(names) and (
        "forward" in names or any(isinstance(n, ast.Call) and syntax.last(n.func) in names for n in nodes)
    )
