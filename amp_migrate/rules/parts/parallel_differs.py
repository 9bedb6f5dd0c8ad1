"""What torch's DistributedDataParallel does otherwise than Apex's, as far as that can come up around the model that it wraps.

Apex: https://nvidia.github.io/apex/parallel.html
Native: https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from amp_migrate.reading.gradients.buffers import may_have_buffers
from amp_migrate.reading.gradients.wrapped import classifier_of_torchvision, never_trained
from amp_migrate.reading.program.branches import Branch, branches_around
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, names_stored, walk
from amp_migrate.reading.sites.apex import Site

NATIVE_DDP = "torch.nn.parallel.DistributedDataParallel"
NATIVE_PARAMETERS = frozenset(
    {
        "module",
        "device_ids",
        "output_device",
        "dim",
        "broadcast_buffers",
        "init_sync",
        "process_group",
        "bucket_cap_mb",
        "find_unused_parameters",
        "check_reduction",
        "gradient_as_bucket_view",
        "static_graph",
        "mixed_precision",
        "device_mesh",
        "forward_sync_buffers",
    }
)
UNUSED = "find_unused_parameters"


def differs(project: Project, module: Module, given: Collection[str]) -> str:
    """What torch's does otherwise, unless its own arguments decide it already, or the program has no buffers to broadcast."""
    parts = []
    if UNUSED not in given:
        parts.append(
            "it raises where a parameter gets no gradient, which Apex's let pass (find_unused_parameters=True if the model "
            "has any and the last forward before each backward uses all that the others do, static_graph=True if all steps "
            "are alike)"
        )
    if not {"broadcast_buffers", "forward_sync_buffers"} & set(given) and may_have_buffers(project, module):
        parts.append(
            "it broadcasts buffers before forwards, which Apex's did not (its attribute broadcast_buffers=False keeps them)"
        )
    return "".join(f"; {part}" for part in parts)


def waits_in_vain(project: Project, site: Site, call: ast.Call) -> bool:
    """Whether a parameter of what a call wraps may get no gradient."""
    stmt = site.module.parents.get(call)
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and never_trained(project, site.module, stmt.targets[0]):
        return False
    return not (call.args and classifier_of_torchvision(project, site.module, call.args[0]))


def beside(site: Site, call: ast.Call) -> ast.Call | None:
    """The call of torch's own that wraps the same model elsewhere in the function, where mixed precision is off, in a branch that
    this call does not stand in: the program knows what its model needs. Only what can be read here, too."""
    module, target = site.module, _wrapped(site.module, call)
    around = {id(a) for a in module.ancestors(call)}
    for native, _ in native_calls(module, [module.tree]) if target is not None else ():
        if module.scope_of(native) is not module.scope_of(call) or _wrapped(module, native) != target:
            continue
        apart = [
            b for b in branches_around(module, native, module.scopes) if id(b.test) not in around or _parted(b, call)
        ]
        if not apart or len(native.args) != 1 or not all(k.arg in NATIVE_PARAMETERS for k in native.keywords):
            continue
        branch = apart[-1]
        own = (branch.test.body if branch.holds else branch.test.orelse) if isinstance(branch.test, ast.If) else []
        return native if not names_stored(*own) & identifiers(*native.keywords) else None
    return None


def _parted(branch: Branch, call: ast.Call) -> bool:
    """Whether a call stands in the branch beside."""
    return any(n is call for other in branch.other for n in walk(other))


def _wrapped(module: Module, call: ast.Call) -> tuple[str, str] | None:
    """What a call wraps and what holds it then: `model = DDP(model)`."""
    stmt = module.parents.get(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not call.args:
        return None
    return ast.unparse(stmt.targets[0]), ast.unparse(call.args[0])


def native_calls(module: Module, body: Iterable[ast.AST], of: str = NATIVE_DDP) -> Iterator[tuple[ast.Call, str]]:
    """The calls of torch's DistributedDataParallel in a branch, each with how the class is written; `of`: of what a name is
    that an import of Apex's shares with torch's."""
    for node in dict.fromkeys(n for stmt in body for n in walk(stmt)):
        if isinstance(node, ast.Call) and module.qualify(node.func) == of:
            yield node, module.source(node.func)
