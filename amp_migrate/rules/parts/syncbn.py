"""`convert_syncbn_model`, `apex.parallel.SyncBatchNorm` and its process groups become torch's.

Apex: https://nvidia.github.io/apex/parallel.html
Native: https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.findings import Code, Example, Review
from amp_migrate.reading.gradients.buffers import may_normalize
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual, Native, named_arguments, value_of
from amp_migrate.rules.parts.made_before import Before, made_before
from amp_migrate.writing.calls import Argument

APEX = "https://nvidia.github.io/apex/parallel.html"
NATIVE = "https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html"
SUBGROUPS = "https://pytorch.org/docs/stable/distributed.html#torch.distributed.new_subgroups"

CODES = (
    Code(
        "AMP611",
        "convert_syncbn_model becomes SyncBatchNorm.convert_sync_batchnorm",
        "parallel.convert_syncbn_model",
        apex="Replaces every batch normalization of a model by Apex's synchronized one.",
        native="Does the same with torch.nn.SyncBatchNorm, whose channels are the second dimension of the input.",
        why="channel_last=True told Apex that the channels are the last dimension (a layout of its own, no memory format): "
        "torch has no such thing, so it is left to a person.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "import torch\nfrom apex.parallel import convert_syncbn_model\n\nmodel = convert_syncbn_model(model)\n",
                "import torch\n\nmodel = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n",
            ),
        ),
    ),
    Code(
        "AMP612",
        "Apex SyncBatchNorm becomes torch.nn.SyncBatchNorm",
        "parallel.SyncBatchNorm",
        apex="A batch normalization over the processes of a group; can fuse a ReLU and an addition.",
        native="The same normalization, state and parameter names; nothing is fused.",
        why="A fused ReLU has to be written out, so fuse_relu=True is left to a person.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "from apex.parallel import SyncBatchNorm\n\nbn = SyncBatchNorm(64, channel_last=False)\n",
                "from torch.nn import SyncBatchNorm\n\nbn = SyncBatchNorm(64)\n",
            ),
        ),
    ),
    Code(
        "AMP613",
        "create_syncbn_process_group becomes torch.distributed.new_subgroups",
        "parallel.create_syncbn_process_group",
        apex="Splits the processes into groups of one size and returns the caller's; None, all of them, for size 0.",
        native="new_subgroups returns the caller's group and all groups, and refuses size 0.",
        why="None means all processes to SyncBatchNorm as well.",
        links=(APEX, SUBGROUPS),
        examples=(
            Example(
                "import torch\nfrom apex.parallel import create_syncbn_process_group\n\n"
                "group = create_syncbn_process_group(4)\n",
                "import torch\n\ngroup = torch.distributed.new_subgroups(4)[0]\n",
            ),
        ),
    ),
)

# Where a name stands that is kept or handed on, to be called somewhere else.
HANDED = (ast.Call, ast.keyword, ast.Assign, ast.Return, ast.Dict, ast.Tuple, ast.List, ast.Lambda)

CONVERT = "apex.parallel.convert_syncbn_model"
LAYER = "apex.parallel.SyncBatchNorm"
GROUP = "apex.parallel.create_syncbn_process_group"
NAMES = frozenset({CONVERT, LAYER, GROUP})

NATIVE_CONVERT = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
NATIVE_LAYER = "torch.nn.SyncBatchNorm"
NATIVE_GROUP = "torch.distributed.new_subgroups"

LAYER_POSITIONS = (
    "num_features",
    "eps",
    "momentum",
    "affine",
    "track_running_stats",
    "process_group",
    "channel_last",
    "fuse_relu",
)


def convert(project: Project, site: Site) -> Native | Manual:
    """What becomes of a use of Apex's synchronized batch normalization."""
    if site.name == GROUP:
        return _group(site)
    if site.name == LAYER:
        return _layer(site)
    message = "torch's synchronized batch normalization"
    named = named_arguments(site.call, ("module", "process_group", "channel_last")) if site.call is not None else []
    if (manual := _channels("AMP611", named)) is not None:
        return manual
    review: Review = "as-is"
    if not may_normalize(project, site.module):
        message += "; no network in sight has a layer of it, so that nothing is converted"
    elif (before := _optimizer_before(project, site, named)) is not None:
        review = "review" if before.sure else "look"
        message += (
            f", which keeps the weights of the layers: Apex's gave them copies, so that {_never_stepped(site, before)}"
        )
    if _unpacks(site):
        review = "review"
        message += "; it takes no channel_last, which raises a TypeError if it is among what is unpacked"
    kept = tuple(Argument(argument) for name, argument in named if name != "channel_last")
    return Native("AMP611", (NATIVE_CONVERT,), message, review, arguments=kept if site.call is not None else None)


def _optimizer_before(
    project: Project, site: Site, named: Sequence[tuple[str | None, ast.expr | ast.keyword]]
) -> Before | None:
    """What optimizer may have been made of a model before it is converted."""
    if site.call is None:
        return Before(site.module) if isinstance(site.module.parents.get(site.node), HANDED) else None
    model = next((value_of(argument) for name, argument in named if name == "module"), None)
    return made_before(project, site.module, site.node, model) if model is not None else None


def _never_stepped(site: Site, before: Before) -> str:
    if before.stmt is None:
        return "an optimizer made before the conversion never stepped them, and does now; when this is called is out of sight"
    file = f" of {before.module.display}" if before.module is not site.module else ""
    if not before.sure:
        return f"the optimizer that is held since line {before.stmt.lineno}{file}, if of this model, never stepped them, and does now"
    return (
        f"the optimizer of line {before.lines}{file}, made before, never stepped them, and does now; make the optimizer "
        "after the conversion to be clear"
    )


def _unpacks(site: Site) -> bool:
    """Whether arguments out of sight are handed to it: unpacked at its call, or beside it where it is handed on."""
    call = site.call or site.module.parents.get(site.node)
    if not isinstance(call, ast.Call) or (call.func is site.node and site.call is None):
        return False
    return any(k.arg is None for k in call.keywords)


def _layer(site: Site) -> Native | Manual:
    if site.call is None:
        return Native("AMP612", (NATIVE_LAYER,), "torch.nn.SyncBatchNorm")
    named = named_arguments(site.call, LAYER_POSITIONS)
    if (manual := _channels("AMP612", named)) is not None:
        return manual
    for name, argument in named:
        if name == "fuse_relu" and literal(value_of(argument)) is not False:
            return Manual("AMP612", "torch.nn.SyncBatchNorm fuses no ReLU: apply it after the layer, drop fuse_relu")
    kept = tuple(Argument(argument) for name, argument in named if name not in ("channel_last", "fuse_relu"))
    return Native("AMP612", (NATIVE_LAYER,), "torch.nn.SyncBatchNorm", arguments=kept)


def _channels(code: str, named: Sequence[tuple[str | None, ast.expr | ast.keyword]]) -> Manual | None:
    """What is said where the channels may be the last dimension of the input."""
    if all(literal(value_of(argument)) in (False, 0, None) for name, argument in named if name == "channel_last"):
        return None
    return Manual(
        code,
        "channel_last=True means inputs whose last dimension is the channel, which torch.nn.SyncBatchNorm does not take: "
        "move it to the second dimension there and back (torch.channels_last is a memory format and needs nothing)",
    )


def _group(site: Site) -> Native | Manual:
    named = named_arguments(site.call, ("group_size",)) if site.call is not None else []
    if len(named) != 1 or named[0][0] != "group_size":
        return Manual("AMP613", "torch.distributed.new_subgroups(group_size)[0] gives the group of this process")
    _, argument = named[0]
    size = literal(value_of(argument))
    if size == 0:
        return Native("AMP613", (NATIVE_GROUP,), "size 0 means all processes: None", whole="None")
    new = Native(
        "AMP613",
        (NATIVE_GROUP,),
        "the group of this process, of torch.distributed.new_subgroups",
        arguments=(Argument(argument),),
        suffix="[0]",
    )
    if size is not ... or _positive(site, value_of(argument)):
        return new
    if not isinstance(value_of(argument), (ast.Name, ast.Attribute)):
        return Manual("AMP613", "write torch.distributed.new_subgroups(group_size)[0], and None where the size is 0")
    text = site.module.source(value_of(argument))
    return Native(
        new.code,
        new.names,
        f"{new.message}; None where {text} is 0",
        "look",
        new.arguments,
        suffix=f"[0] if {text} else None",
    )


def _positive(site: Site, size: ast.expr) -> bool:
    """Whether an enclosing test has ruled size 0 out: `if size:`, `if size > 0:`."""
    text = ast.unparse(size)
    around = branches_around(site.module, site.node)
    return any(b.holds and _rules_zero_out(b.test.test, text) for b in around)


def _rules_zero_out(test: ast.expr, text: str) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_rules_zero_out(value, text) for value in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.left) == text:
        bound = test.comparators[0]
        if not isinstance(bound, ast.Constant) or not isinstance(bound.value, int):
            return False
        return (isinstance(test.ops[0], ast.Gt) and bound.value >= 0) or (
            isinstance(test.ops[0], ast.NotEq) and bound.value == 0
        )
    return ast.unparse(test) == text
