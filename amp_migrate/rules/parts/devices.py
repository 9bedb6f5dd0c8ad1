"""On which device a wrapped model is: what `device_ids` says where a program names its device elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.switch.elsewhere import visible


def device_of(project: Project, site: Site) -> str | None:
    """The device that the program sets for its process, as it can be written at a call; None if it is out of sight."""
    found = [*_given_devices(site), *_set_devices(project)]
    found.sort(key=lambda device: (device[0] is not site.module, device[0].scope_of(device[1]) is not site.scope))
    for module, value in found:
        text = module.source(value)
        if _may_be_cpu(module, value, site):
            continue  # what is told no device wraps a model wherever that is
        if visible(project, text, module.scope_of(value), site.scope) and _bound_before(module, value, site):
            return text
    return None


def of_first(module: Module, argument: ast.expr | ast.keyword) -> bool:
    """Whether an argument names the first GPU in every process, `device_ids=list(range(args.num_gpu))`: torch's class brings
    the inputs there, also where the model is on another. Without it they stay where they are, as Apex left them."""
    if not isinstance(argument, ast.keyword) or argument.arg not in ("device_ids", "output_device"):
        return False
    return _first(module, argument.value)


def _first(module: Module, value: ast.expr, depth: int = 3) -> bool:
    """Whether a device, or the first of several, is number 0 as it is written."""
    if isinstance(value, ast.Constant):
        return value.value in ("cuda:0", "cuda") or (value.value == 0 and value.value is not False)
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and _first(module, value.elts[0], depth)
    if isinstance(value, ast.Starred):
        return _first(module, value.value, depth)
    if isinstance(value, ast.ListComp):
        (loop, *more) = value.generators
        plain = not more and not loop.ifs and ast.dump(value.elt) == ast.dump(loop.target).replace("Store", "Load")
        return plain and _first(module, loop.iter, depth)
    if isinstance(value, ast.Call):
        called = module.qualify(value.func) or ast.unparse(value.func)
        if called in ("list", "tuple") and len(value.args) == 1:
            return _first(module, value.args[0], depth)
        if called == "range":
            return len(value.args) == 1 or _first(module, value.args[0], depth)
        return called == "torch.device" and bool(value.args) and _first(module, value.args[-1], depth)
    if isinstance(value, ast.Name) and depth:
        owner = module.scope_of(value).lookup(value.id)
        bound = [module.parents.get(b) for b in owner.bindings[value.id]] if owner is not None else []
        given = [s.value for s in bound if isinstance(s, ast.Assign) and len(s.targets) == 1]
        return bool(given) and len(given) == len(bound) and all(_first(module, v, depth - 1) for v in given)
    return False


def _set_devices(project: Project) -> Iterator[tuple[Module, ast.expr]]:
    """What `torch.cuda.set_device` is given: plain names and attributes, which can be said again elsewhere."""
    for module in project.modules:
        if "set_device" not in module.text:
            continue
        for node in walk(module.tree):
            if not isinstance(node, ast.Call) or not node.args or not _repeatable(node.args[0]):
                continue
            if module.qualify(node.func) == "torch.cuda.set_device":
                yield module, node.args[0]


def _given_devices(site: Site) -> Iterator[tuple[Module, ast.expr]]:
    """What torch's DistributedDataParallel is given in the same function, where the program can do without Apex."""
    for node in walk(site.scope.node):
        if isinstance(node, ast.Call) and site.module.scope_of(node) is site.scope:
            devices = next((k.value for k in node.keywords if k.arg == "device_ids"), None)
            if isinstance(devices, ast.List) and len(devices.elts) == 1 and _repeatable(devices.elts[0]):
                yield site.module, devices.elts[0]


def _may_be_cpu(module: Module, value: ast.expr, site: Site) -> bool:
    """Whether a device is a GPU only in the branch that sets it: elsewhere the name holds `torch.device("cpu")`, which torch's
    class refuses as one of `device_ids`."""
    branch = next((a for a in module.ancestors(value) if isinstance(a, ast.If)), None)
    if not isinstance(value, ast.Name) or branch is None or branch in site.module.ancestors(site.node):
        return False
    owner = module.scope_of(value).lookup(value.id)
    given = (b for b in (owner.bindings[value.id] if owner is not None else ()))
    values = (p.value for b in given if isinstance(p := module.parents.get(b), ast.Assign))
    return any(isinstance(n, ast.Constant) and n.value == "cpu" for v in values for n in walk(v))


def _repeatable(value: ast.expr) -> bool:
    return all(isinstance(node, (ast.Name, ast.Attribute, ast.expr_context)) for node in walk(value))


def _bound_before(module: Module, value: ast.expr, site: Site) -> bool:
    """Whether a value of the same scope is set above the call, so that it cannot be read too early."""
    if module is not site.module or module.scope_of(value) is not site.scope:
        return True
    name = next(node for node in walk(value) if isinstance(node, ast.Name))
    owner = site.scope.lookup(name.id)
    if owner is not site.scope or name.id in site.scope.params:
        return True
    return any(getattr(b, "lineno", 0) < site.node.lineno for b in owner.bindings[name.id])
