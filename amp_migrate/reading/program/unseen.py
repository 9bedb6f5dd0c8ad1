"""Calls of functions out of sight that run a model over data, by their names: `inference(model, loader)`.

All that they compute ran in mixed precision under Apex, which patched torch for the whole process.
"""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

_EVALUATING = re.compile(
    r"(^|_)(eval|evaluate|evaluation|infer|inference|predict|predictions?|validate|validation|test|testing)(_|$)"
)
_TRAINING = re.compile(r"(^|_)(train|training|fit|finetune|learn|pretrain)(_|$)|Train|Learner|Runner|Engine")


def evaluates_unseen(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call hands several things to a function that a file out of sight defines, named as one that evaluates."""
    if len(call.args) + len(call.keywords) < 2 or project.resolved.get(call):
        return False
    name = module.qualify(call.func) or ""
    imported = "." in name and not name.startswith(("torch.", "apex."))
    return imported and bool(_EVALUATING.search(name.rpartition(".")[2]))


def trains_unseen(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call is of something out of sight that is named as what trains: `train_epoch(model, loader)`, `Trainer(model)`."""
    names = (called_name(call), (module.qualify(call.func) or "").rpartition(".")[2])  # an alias tells, too
    return not project.resolved.get(call) and any(map(_TRAINING.search, names))
