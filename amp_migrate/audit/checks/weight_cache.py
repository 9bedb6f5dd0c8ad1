"""Nothing writes into a network's weights between two runs of it in one autocast region.

Autocast makes a half copy of each weight (float32, a leaf that asks for gradients) when an operation first needs it, and
takes that copy until the outermost region is left, whatever is written into the weight meanwhile. Under O2 and O3 the
weights themselves were half; O1 kept copies too, until a backward pass under `amp.scale_loss` was done. Followed: see
`passes.py`; not proved: writes in code out of sight, but for the running averages known by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit import syntax
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.module import Module
from amp_migrate.audit.passes import Passes, may_write, writers
from amp_migrate.audit.regions import Region
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP536",
        title="a network runs on half copies of weights that were written to since",
        construct="an autocast region",
        apex="O2 and O3 trained half weights: whatever was written into them counted at once. O1 made its copies anew after each "
        "backward pass.",
        native="Open a region for each run of the network, or pass cache_enabled=False to this one.",
        why="autocast keeps the half copy of a weight until its region is left: a network that got the weights of its running "
        "average, or perturbed ones, computes with the old ones.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed:
        return
    regions = [(r, body) for c in review.changes.values() for r, body in _written(both, c.after)]
    names = writers(both.after.modules) if regions else frozenset[str]()
    passes: Passes | None = None
    for region, body in regions:
        if not _may_write(both, region.module, body, names):
            continue
        if passes is None:
            passes = Passes(both.after.forwards, both.after.regions, cleared=False)
        passes.cleared = bool(both.around_of(region.module)) and all(
            s.surely_patches for s in both.around_of(region.module)
        )
        for stale in passes.run(region.module, body):
            module, node = stale.wrote
            text = syntax.text(node) if not hasattr(node, "body") else ""
            text = text if len(text) < 60 else f"{text[:57]}..."
            message = (
                f"{module.path}:{review.line(module, node)} writes into weights ({text}) between two runs of their network in "
                f"this autocast region, the second at {stale.module.path}:{review.line(stale.module, stale.node)}: that takes "
                "the half copies made for the first. Pass cache_enabled=False, or open a region for each run"
            )
            yield review.doubt(region.module, region.call, "AMP536", "an autocast region", message, "review")


def _written(both: Mixed, module: Module) -> Iterator[tuple[Region, list[ast.stmt]]]:
    """The regions that the migration wrote into a file, with what runs in them."""
    if "autocast" not in module.text:
        return
    for stmt in syntax.walk(module.tree):
        calls: list[ast.expr] = []
        if isinstance(stmt, ast.With | ast.AsyncWith):
            calls = [i.context_expr for i in stmt.items]
        elif isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = stmt.decorator_list
        for call in calls:
            region = both.after.regions.opened(module, call)
            if region is None or region.off or region.unseen or not isinstance(stmt, ast.stmt):
                continue
            cached = next((k.value for k in region.call.keywords if k.arg == "cache_enabled"), None)
            if both.written(region) and (not isinstance(cached, ast.Constant) or cached.value):
                yield region, stmt.body  # type: ignore[attr-defined]


def _may_write(both: Mixed, module: Module, body: list[ast.stmt], names: frozenset[str]) -> bool:
    nodes = [n for s in body for n in syntax.walk(s)]
    if "forward" in names or may_write(nodes):
        return True
    for node in nodes:
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if last in names:
                return True
    return False
