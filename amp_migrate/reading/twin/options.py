"""Settings that choose Apex, as far as they are one and the same wherever they are read: options of a command line."""

from __future__ import annotations

import ast
from functools import partial

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources


def option_reads(project: Project, flag: ast.Attribute) -> set[ast.Attribute]:
    """The reads of a setting that is one and the same in them: of one object, as far as that is followed, of what it is copied to
    (`self.apex = args.apex`), or of what is called the same. What another object has by that name is another thing. None where
    something else sets it, or where it is no option of the command line and read of several things."""
    name, sources = flag.attr, project.once(Sources)
    named = [(m, n) for m in project.modules for n in m.named.get(name, ()) if isinstance(n, ast.Attribute)]
    if sources.set_by_name(name) or not (sources.declaring(name) or len({_last_of(n.value) for _, n in named}) == 1):
        return set()
    stored = [(m, target, given.value) for m, target, given in sources.stored(name)]
    seen = {slot for module, n in named if n is flag for slot in project.slots(module, [n, n.value])}
    while True:
        held = project.reaches(project.origins(seen))
        alike = partial(_is_alike, project, flag, held)
        copied = {(m, t) for m, t, v in stored if isinstance(v, ast.Attribute) and v.attr == name and alike(m, v)}
        if any(alike(m, t) and (m, t) not in copied for m, t, _ in stored):
            return set()
        grown = seen | {slot for module, target in copied for slot in project.slots(module, [target])}
        if grown == seen:
            return {n for module, n in named if alike(module, n)}
        seen = grown


def _is_alike(project: Project, flag: ast.Attribute, held: set[Slot], module: Module, node: ast.Attribute) -> bool:
    """Whether an attribute is that of a flag, by where that is held, or by what its object is called."""
    called = _last_of(node.value) == _last_of(flag.value) and not module.is_self(node.value)
    return called or not held.isdisjoint(project.slots(module, [node, node.value]))


def _last_of(holder: ast.expr) -> str:
    return ast.unparse(holder).rpartition(".")[2]
