"""Settings that choose Apex, as far as they are one and the same wherever they are read: options of a command line."""

from __future__ import annotations

import ast
from functools import partial

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.sources import Sources

NAMES = (ast.Name, ast.Attribute)


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


def read_by_name(project: Project, holder: ast.expr, name: str) -> bool:
    """Whether a setting may be read in another way than as an attribute of what holds it: `getattr(cfg, "backend")`,
    `cfg["backend"]`, or with all the others, `build(**vars(cfg))`."""
    whole = {n.attr if isinstance(n, ast.Attribute) else n.id for n in walk(holder) if isinstance(n, NAMES)}
    for module in project.modules:
        if not any(word in module.text for word in whole):
            continue
        if name in module.text and any(n.value == name and _is_key(module, n, whole) for n in module.of(ast.Constant)):
            return True
        if any(_handed_on(project, module, n, whole) for kind in NAMES for n in module.of(kind)):
            return True
    return False


def _is_key(module: Module, text: ast.Constant, whole: set[str]) -> bool:
    """Whether a setting is looked up by a text."""
    parent = module.parents.get(text)
    if isinstance(parent, ast.Subscript):
        return _last(_taken_whole(parent.value)) in whole
    if not isinstance(parent, ast.Call) or text not in parent.args[:2]:
        return False
    if isinstance(parent.func, ast.Attribute):
        return parent.func.attr in ("get", "pop") and _last(_taken_whole(parent.func.value)) in whole
    return called_name(parent) == "getattr"


def _taken_whole(node: ast.expr) -> ast.expr:
    """What all settings are taken of: `cfg` of `vars(cfg)`, `cfg.__dict__`."""
    if isinstance(node, ast.Call) and called_name(node) in ("vars", "asdict", "dict") and len(node.args) == 1:
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) and node.attr == "__dict__" else node


def _handed_on(project: Project, module: Module, node: ast.AST, whole: set[str]) -> bool:
    """Whether all settings together are unpacked, kept under another name, or given to what is in sight: more than told."""
    if _last(node) not in whole or not isinstance(getattr(node, "ctx", None), ast.Load):
        return False
    mapping: ast.AST = node
    parent = module.parents.get(mapping)
    while isinstance(parent, (ast.Call, ast.Attribute)) and _taken_whole(parent) is mapping:
        mapping, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return True
    if isinstance(parent, ast.Dict) and isinstance(mapping, ast.expr):
        return mapping in parent.values and parent.keys[parent.values.index(mapping)] is None
    if mapping is node:
        return False
    given = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return isinstance(parent, ast.Assign) or (isinstance(given, ast.Call) and bool(project.resolved.get(given)))


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
