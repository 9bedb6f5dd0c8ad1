"""What shows that a network which is wrapped for several processes has no parameter that goes without a gradient it is waited
for: it never trains, or is one of those of which every parameter takes part."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.logic import LOOKING
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.regions.no_grad import under_no_grad

CLASSIFIERS = "torchvision.models."  # `models.resnet50`, not `models.detection.ssd300_vgg16`
AUXILIARY = frozenset({"inception_v3", "inception3", "googlenet"})  # have a head that a loss need not take
HANDED = LOOKING | {"setattr", "repr"}
RUNNING = frozenset({"forward", "module", "__call__"})
ASKED = frozenset(
    "train eval to cuda cpu half float state_dict load_state_dict parameters named_parameters apply requires_grad_ modules "
    "named_modules children buffers named_buffers".split()
)  # of each network, and runs it not
DEPTH = 3


def classifier_of_torchvision(project: Project, module: Module, wrapped: ast.expr) -> bool:
    """Whether a network is one of torchvision's for images, called by its name: all parameters of these take part in each
    forward."""
    made = [v for v in _made(module, wrapped) if not _converts(project, module, v)]
    return bool(made) and all(_of_torchvision(project, module, v) for v in made)


def _made(module: Module, wrapped: ast.expr) -> list[ast.expr]:
    """What the variable that is wrapped is given in its scope, less what is made of itself."""
    text, scope = ast.unparse(wrapped), module.scope_of(wrapped)
    found: list[ast.expr] = []
    for node in module.nodes:
        if isinstance(node, ast.Assign) and module.scope_of(node) is scope:
            for target in node.targets:
                elements = target.elts if isinstance(target, ast.Tuple) else [target]
                if any(ast.unparse(t) == text for t in elements):
                    found.append(node.value)
    return found


def _converts(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether a value is made of a model that is handed over, by a library: `amp.initialize(model)`, `model.cuda()`."""
    if not isinstance(value, ast.Call):
        return False
    name = project.qualify(module, value.func) or ""
    on = isinstance(value.func, ast.Attribute) and value.func.attr in ("cuda", "to", "train", "float", "half")
    return on or name.startswith(("apex.", "torch.nn.SyncBatchNorm", "torch.nn.parallel", "torch.nn.DataParallel"))


def _of_torchvision(project: Project, module: Module, value: ast.expr) -> bool:
    name = project.qualify(module, value.func) if isinstance(value, ast.Call) else None
    if name is None or not name.startswith(CLASSIFIERS):
        return False
    own = name.removeprefix(CLASSIFIERS)
    return "." not in own and own.lower() not in AUXILIARY


def never_trained(project: Project, module: Module, target: ast.expr) -> bool:
    """Whether what a variable holds is seen to run, and without gradients alone; nobody out of sight has it."""
    slot = project.slot(module, target)
    slots = project.reaches({slot}) if slot is not None else set()
    ran = False
    for there in project.modules if slots else ():
        for call, _ in there.calls:
            on = call.func
            while isinstance(on, ast.Attribute) and on.attr in RUNNING and project.slot(there, on) not in slots:
                on = on.value
            if _is(project, there, on, slots):
                if not _without_gradients(project, there, call):
                    return False
                ran = True
            elif (
                isinstance(call.func, ast.Attribute)
                and call.func.attr not in ASKED
                and _of(project, there, call.func, slots)
            ):
                return False
            elif any(_is(project, there, v, slots) for v in (*call.args, *(k.value for k in call.keywords))):
                if not project.callees(there, call) and not _harmless(project, there, call):
                    return False
    return ran


def _of(project: Project, module: Module, func: ast.Attribute, slots: set[Slot]) -> bool:
    """Whether a method is one of the network's, or of a part of it."""
    on = func.value
    while isinstance(on, ast.Attribute) and not _is(project, module, on, slots):
        on = on.value
    return _is(project, module, on, slots)


def _is(project: Project, module: Module, node: ast.expr, slots: set[Slot]) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and project.slot(module, node) in slots


def _harmless(project: Project, module: Module, call: ast.Call) -> bool:
    name = project.qualify(module, call.func) or ""
    return name.startswith(("apex.parallel.", "torch.nn.")) or ast.unparse(call.func) in HANDED


def _without_gradients(project: Project, module: Module, call: ast.Call, depth: int = DEPTH) -> bool:
    if under_no_grad(module, call):
        return True
    function = project.function_of(module, call)
    calls = project.calls.get(function, ()) if function is not None and depth else ()
    return bool(calls) and all(_without_gradients(project, m, c, depth - 1) for m, c in calls)
