"""Objects of other libraries that scale losses through Apex, and their native counterparts.

timm: https://github.com/huggingface/pytorch-image-models/blob/v1.0.22/timm/utils/cuda.py. Both are called with the loss and
the optimizer, do the backward, the clip and the step, and keep their state in a checkpoint under `state_dict_key`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk


@dataclass(frozen=True)
class External:
    """A class that scales through Apex beside one of the same library that does so natively."""

    native: str
    key: str  # where checkpoints hold the state of Apex's
    native_key: str  # and of the native one


SCALERS = {
    f"timm.utils.{home}ApexScaler": External(f"timm.utils.{home}NativeScaler", "amp", "amp_scaler")
    for home in ("", "cuda.")
}


def made(project: Project, module: Module, block: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.Call, str]]:
    """What a block binds to an instance of a class out of sight: the target, the call, and the class's dotted name."""
    for stmt in block:
        for node in walk(stmt):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                call = node.value
                name = project.qualify(module, call.func)
                if (
                    name
                    and name.split(".")[0] not in ("apex", "torch")
                    and project.find_class(module, call.func) is None
                ):
                    yield ast.unparse(node.targets[0]), call, name


def known(project: Project, module: Module, block: Iterable[ast.stmt]) -> External | None:
    """The external scaler through Apex that a block makes, if it is one that is known."""
    return next((SCALERS[name] for _, _, name in made(project, module, block) if name in SCALERS), None)


def counterpart(project: Project, module: Module, mine: list[ast.stmt], other: list[ast.stmt]) -> bool:
    """Whether one block makes an external scaler through Apex, and another gives the same name to a native one: the
    known counterpart, or any other object, if autocast is set up beside it."""
    theirs = {target: name for target, _, name in made(project, module, other)}
    autocast = any(sets_autocast(project, module, s) for s in other)
    for target, _, name in made(project, module, mine):
        if target in theirs and theirs[target] != name:
            if name in SCALERS:
                return theirs[target] == SCALERS[name].native
            return autocast and "." in name
    return False


def sets_autocast(project: Project, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement binds a name to torch's autocast, or to something that makes one."""
    if not isinstance(stmt, ast.Assign):
        return False
    names = [project.qualify(module, n) or "" for n in walk(stmt.value) if isinstance(n, (ast.Name, ast.Attribute))]
    return any(name.startswith("torch.") and name.endswith(".autocast") for name in names)
