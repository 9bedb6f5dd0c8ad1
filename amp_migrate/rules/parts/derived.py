"""Classes of the program that derive from Apex's DistributedDataParallel: what constructs them with Apex's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import ClassInfo, literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import named_arguments, value_of
from amp_migrate.writing.calls import Argument

Constructed = tuple[Module, ast.Call, tuple[Argument, ...]]


def constructed(project: Project, site: Site, module_first: tuple[str, ...]) -> list[Constructed] | str:
    """The calls that hand a class with the base `site.node` arguments of Apex's that torch's does not take, each with
    the arguments that stay; or why that cannot be told, as text.

    `module_first`: the names of Apex's parameters in their order, the module first.
    """
    parent = site.module.parents.get(site.node)
    own = project.classes.get(parent) if parent is not None else None
    if own is None:
        return []
    found: list[Constructed] = []
    for module, call, names, taken in arriving(project, own, module_first):
        named = [(f"own {n}" if n in taken else n, a) for n, a in named_arguments(call, names)]
        foreign = [n for n, _ in named if n in module_first[1:]]
        unpacked = [a for n, a in named if n is None]
        forwarded = _forwarded(module, call)
        if unpacked and not forwarded:
            return f"unpacked arguments of {module.source(call.func)}() may hold Apex's own"
        average = next((a for n, a in named if n == "gradient_average"), None)
        if average is not None and literal(value_of(average)) is not True:
            return "torch's always averages: multiply the loss by the world size where gradient_average is False"
        if not foreign:
            continue
        if module not in project.targets:
            return f"{module.display}:{call.lineno} constructs it with {foreign[0]}, which torch's does not take"
        kept = tuple(Argument(a) for n, a in named if n is None or n not in foreign)
        found.append((module, call, kept))
    return found


def arriving(
    project: Project, own: ClassInfo, positions: tuple[str, ...]
) -> Iterator[tuple[Module, ast.Call, tuple[str, ...], set[str]]]:
    """The calls whose arguments arrive at Apex's `__init__`, each with what its positional arguments are there, and the
    names that the class takes for itself."""
    for cls in own.descendants():
        init = cls.methods.get("__init__")
        for node in walk(init.node) if init is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
                bound = isinstance(node.func.value, ast.Call)  # super().__init__(module)
                yield cls.module, node, positions if bound else ("self", *positions), set()
    family = {cls.node for cls in own.descendants()}
    names = {cls.name for cls in own.descendants()}
    for module in project.modules:
        if not any(name in module.text for name in names) and not module.star_imports:
            continue
        for call in (n for n in walk(module.tree) if isinstance(n, ast.Call)):
            for made in project.definitions(module, call.func):
                if made in family and (takes := _takes(project.classes[made], positions)) is not None:
                    yield module, call, *takes


def _takes(cls: ClassInfo, positions: tuple[str, ...]) -> tuple[tuple[str, ...], set[str]] | None:
    """What the positional arguments of a class are that hands some on to Apex's `__init__`, and the names of those that
    it takes for itself; None where its own `__init__` names all that it takes."""
    init = cls.method("__init__")
    if init is None:
        return positions, set()
    given = init.node.args
    named = [p.arg for p in init.by_place][1:]
    if given.kwarg is None and given.vararg is None:
        return None
    own = {*named, *(p.arg for p in given.kwonlyargs)}
    return (tuple(named) if named else positions), own


def _forwarded(module: Module, call: ast.Call) -> bool:
    """Whether a call unpacks only what the function around it was given: `super().__init__(*args, **kwargs)`."""
    around = module.scope_of(call).node
    if not isinstance(around, ast.FunctionDef) or around.name != "__init__":
        return False
    own = {a.arg for a in (around.args.vararg, around.args.kwarg) if a is not None}
    unpacked = [a.value for a in call.args if isinstance(a, ast.Starred)]
    unpacked += [k.value for k in call.keywords if k.arg is None]
    return all(isinstance(u, ast.Name) and u.id in own for u in unpacked)
