"""Settings that choose Apex, as far as they are one and the same wherever they are read: options of a command line."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import partial

from amp_migrate.reading.program.definitions import called_name
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


def read_by_name(project: Project, reads: Collection[tuple[Module, ast.Attribute]], name: str) -> bool:
    """Whether a setting that is read as an attribute may be read in another way, too: `getattr(cfg, "backend")`, `cfg["backend"]`,
    or with all the others, `build(**vars(cfg))`."""
    called = {_last_of(n.value) for _, n in reads}
    held = project.reaches(project.origins({s for module, n in reads for s in project.slots(module, [n.value])}))
    return any(
        _last_of(holder) in called or project.slot(module, holder) in held
        for module in project.modules
        for holder in (*_asked_for(module, name), *_taken_whole(project, module))
    )


def _asked_for(module: Module, name: str) -> Iterator[ast.expr]:
    """What is asked for a setting by a text."""
    for text in module.of(ast.Constant) if name in module.text else ():
        parent = module.parents.get(text)
        if text.value != name:
            continue
        if isinstance(parent, ast.Subscript):
            yield _holder(parent.value)
        elif isinstance(parent, ast.Call) and text in parent.args[:2]:
            if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("get", "pop"):
                yield _holder(parent.func.value)
            elif called_name(parent) == "getattr":
                yield _holder(parent.args[0])


def _taken_whole(project: Project, module: Module) -> Iterator[ast.expr]:
    """What is unpacked with all that it holds, or kept as a mapping or given as one to what is in sight: more than told."""
    yield from (_holder(k.value) for k in module.of(ast.keyword) if k.arg is None)
    for written in module.of(ast.Dict):
        yield from (_holder(v) for key, v in zip(written.keys, written.values, strict=True) if key is None)
    for node in (*module.of(ast.Call), *module.of(ast.Attribute)):
        if (holder := _holder(node)) is not node:
            parent = module.parents.get(node)
            given = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
            if isinstance(parent, ast.Assign) or (isinstance(given, ast.Call) and project.resolved.get(given)):
                yield holder


def _holder(node: ast.expr) -> ast.expr:
    """What a mapping is made of: `cfg` of `vars(cfg)`, `cfg.__dict__`."""
    if isinstance(node, ast.Call) and called_name(node) in ("vars", "asdict", "dict") and len(node.args) == 1:
        return _holder(node.args[0])
    return _holder(node.value) if isinstance(node, ast.Attribute) and node.attr == "__dict__" else node
