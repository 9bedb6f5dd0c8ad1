"""FP16_Optimizer around the optimizer of a model that nothing makes half: it scaled the loss, and cast nothing.

Apex: https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer (the model is converted by its user)
"""

from __future__ import annotations

import re

from amp_migrate.findings import Review
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Migration

_HALF = re.compile(
    r"\bhalf\b|float16|HalfTensor|network_to_half|convert_network|convert_module|BN_convert|prep_param_lists|to_fp16|bfloat16"
)
_HALVED = (
    "float32 weights, a GradScaler and autocast in place of float16 weights and their masters (memory and speed can differ; "
    "checkpoints hold float32)"
)
_FLOAT = (
    "nothing in sight makes this model half: FP16_Optimizer casts nothing, and with Apex it ran in float32, its loss scaled. It "
    "runs under autocast now: take the regions and the scaler out to keep float32"
)


def what_came(m: Migration) -> tuple[str, Review]:
    """What has taken the place of the optimizer; where no file of the program has a word for what makes a model, or its
    inputs, half, that is more than there was."""
    half = any(m.project.once(_speaks_of_half, module) for module in m.project.modules)
    return (_HALVED, "look") if half else (_FLOAT, "review")


def _speaks_of_half(project: Project, module: Module) -> bool:
    """See `Project.once`: each optimizer of a program asks it of all files."""
    return _HALF.search(module.text) is not None
