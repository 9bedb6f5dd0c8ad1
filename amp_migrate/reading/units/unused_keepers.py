"""What keeps the state of amp, and no program at hand uses: a class that nothing makes, a function that nothing calls.

It belongs to no set-up, and is migrated by itself: whoever is to use it hands it a scaler.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.values.sources import Sources

PLAIN = ("object", "ABC", "abc.ABC")
STATES = ("apex.amp.state_dict", "apex.amp.load_state_dict")


def keeps_unused(project: Project, site: Site) -> bool:
    """Whether a site saves or loads the state where nothing in sight comes, nor may by a name that it puts together."""
    if site.name not in STATES or site.call is None:
        return False
    function = project.function_of(site.module, site.node)
    return function is not None and _unused(project, function, frozenset())


def _unused(project: Project, function: Function, seen: frozenset[Function]) -> bool:
    """Whether no run comes to a function: what calls it, if anything, is not called itself."""
    sources = project.once(Sources)
    cls = project.class_around(function.scope)
    if cls is not None:
        family = cls.descendants()
        if any(sources.made(c) or sources.is_value(c) or named_in_quotes(project, c.name) for c in family):
            return False
        if any(map(_registered, family)) or not all(bases_in_sight(c) for c in cls.ancestry()):
            return False
        if any("__subclasses__" in module.text for module in project.modules):
            return False
    elif sources.handed_on(function) or named_in_quotes(project, function.name):
        return False
    callers = {project.function_of(module, call) for module, call in project.calls.get(function, ())}
    return None not in callers and all(
        f in seen or _unused(project, f, seen | {function}) for f in callers if f is not None
    )


def _registered(cls: ClassInfo) -> bool:
    """Whether a decorator is given a class, which may keep it; one of Python's keeps none."""
    names = {ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] for d in cls.node.decorator_list}
    return not names <= {"dataclass", "final", "total_ordering", "runtime_checkable"}


def bases_in_sight(cls: ClassInfo) -> bool:
    """Whether the bases of a class are the program's, or torch's: a framework may make what derives from its own. So may a base
    that is told of each class below it."""
    if "__init_subclass__" in cls.methods or any(
        not ast.unparse(k.value).endswith("ABCMeta") for k in cls.node.keywords
    ):
        return False
    known = {base.node.name for base in cls.bases}
    others = [b for b in cls.node.bases if ast.unparse(b).rpartition(".")[2] not in known]
    return all(ast.unparse(b) in PLAIN or (cls.module.qualify(b) or "").startswith("torch.") for b in others)


def named_in_quotes(project: Project, name: str) -> tuple[Module, ast.Constant] | None:
    """Where a name stands in quotes, but for what a file says that it offers."""
    for module in project.modules:
        for node in module.of(ast.Constant) if name in module.text else ():
            if node.value == name and name not in (module.listed or ()):
                return module, node
    return None
