"""A model of half weights under torch's DistributedDataParallel and SyncBatchNorm, which Apex's took as they came.

Says where the model that is wrapped changes the dtype of its own parts once it runs: Apex's sorted the gradients by dtype
after the backward, torch's registered the parameters when it wrapped the model. Says where a model with synchronized batch
normalization is made half: torch's counts elements in the dtype of its statistics.

Cannot prove anything of a model that is out of sight.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.ranks import TORCH_DDP, was_apexs
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.near import runs_itself
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.built import built
from amp_migrate.audit.sites.made_half import made_half
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP654",
        title="Parts of a wrapped model that change their dtype",
        construct="apex.parallel.DistributedDataParallel",
        apex="Reads the gradients after the backward, whatever dtype they have by then.",
        native="Registers the parameters as they are when it wraps the model.",
        why="A forward that makes a part of a half model float32 gives it other parameters: torch's class raises in the second "
        "iteration, or at once with find_unused_parameters. Make the part float32 before the model is wrapped.",
        links=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    ),
    Code(
        code="AMP655",
        title="Synchronized batch normalization of a half model",
        construct="apex.parallel.convert_syncbn_model",
        apex="Counts the elements of all processes in whole numbers.",
        native="torch.nn.SyncBatchNorm counts them in the dtype of its running statistics.",
        why="Half ends at 65504: with more elements of a channel (8 images of 100 by 100) the statistics are not finite. Keep "
        "batch normalization in float32.",
        links=("https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",),
    ),
)

CONVERTS = (
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm",
)
CASTS = frozenset({"float", "half", "double", "bfloat16"})


def check(review: Review) -> Iterable[Doubt]:
    for module, call, _ in review.calls_after(*TORCH_DDP):
        if not call.args or not was_apexs(review, module, call) or not _trains(review, module):
            continue
        halved = _halved(module, call, call.args[0])
        changed = next(_changing(built(review, module, call.args[0]).classes), None) if halved is not None else None
        if changed is not None:
            cls, stmt, part = changed
            message = (
                f"{part} of {cls.name} changes its dtype where the model runs ({cls.module.path}:"
                f"{review.line(cls.module, stmt)}): torch's DistributedDataParallel has its parameters from when it wrapped the "
                "model, and raises in the second iteration; Apex's took the gradients as they came. Cast it before that"
            )
            yield review.doubt(module, call, "AMP654", "DistributedDataParallel", message, "review")
    for module, call, _ in review.calls_after(*CONVERTS):
        change = review.changes.get(module.path)
        if change is None or module.statement(call) in change.same or not call.args:
            continue
        halved = _halved(module, call, call.args[0])
        if halved is not None:
            message = (
                f"line {review.line(module, halved)} makes {syntax.text(call.args[0])} half: torch's SyncBatchNorm counts in the "
                "dtype of its statistics, and half ends at 65504 elements of a channel, where Apex's counted whole numbers. "
                "Keep batch normalization in float32"
            )
            yield review.doubt(module, call, "AMP655", "SyncBatchNorm", message, "review")


def _trains(review: Review, module: Module) -> bool:
    """Whether a backward may run in the programs that a file is part of: none does in a script that only evaluates."""
    if not runs_itself(module):
        return True
    return any("backward" in m.text for m in (module, *mixed(review).nearness.imports.get(module, ())))


def _halved(module: Module, near: ast.Call, model: ast.expr) -> ast.Call | None:
    """Where, in the function around a call, the model is made half that it is given."""
    function, name = module.function_around(near), syntax.text(model)
    halved = (call for call, holder in made_half(module) if syntax.text(holder) == name)
    return next((call for call in halved if module.function_around(call) is function), None)


def _changing(classes: Iterable[Class]) -> Iterator[tuple[Class, ast.stmt, str]]:
    """The statements by which networks cast their own parts once they run: `self.head = self.head.float()`."""
    for cls in classes:
        for name, methods in cls.methods.items():
            if name == "__init__":
                continue
            for stmt in (n for f in methods for n in syntax.every(f.node, ast.Assign)):
                part = syntax.text(stmt.targets[0])
                value = stmt.value
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in CASTS:
                    if part.startswith("self.") and syntax.text(value.func.value) == part:
                        yield cls, stmt, part
