"""Flags that are given another value once the set-up has asked for them, `cfg["fp16"] = False`: what reads them later is no
switch.

A field or an entry of an object counts under whatever name that has there, and in whatever way it is set: an attribute, an
item, `setattr`, `update`, `pop`. Where the value may only be given before the set-up, or to another object, nothing is given again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

Before = Callable[
    [Module, ast.AST, ast.expr | None], bool
]  # whether no set-up comes before a place; of which object it is

Place = tuple[ast.expr, ast.expr]  # what is written to, or the call that does so, and the object

WRITERS = ("update", "pop", "setdefault", "__setitem__", "__delitem__", "__setattr__")


def given_again(project: Project, condition: str, home: Scope, before: Before) -> bool:
    """Whether something that a condition of a scope names, a variable, a field or an entry, may be given a value after the
    set-up."""
    for node in walk(home.module.imagine(condition, home)):
        if isinstance(node, ast.Name):
            owner = home.lookup(node.id)
            bound = owner.bindings.get(node.id, ()) if owner is not None else ()
            stored = (b for b in bound if isinstance(getattr(b, "ctx", None), (ast.Store, ast.Del)))
            if owner is not None and any(not before(owner.module, b, None) for b in stored):
                return True
        elif (read := _read(node)) is not None:
            holder, key = read
            for module in project.modules:
                for place, other in _places(project, module, key):
                    if _same(project, home, holder, module, other) and not before(module, place, other):
                        return True
    return False


def stored_fields(project: Project, module: Module, condition: ast.AST) -> Iterator[ast.expr]:
    """Where a file gives a field or an entry that a condition asks for a value, of whatever object."""
    keys = {read[1] for node in walk(condition) if (read := _read(node)) is not None}
    return (place for key in sorted(keys) for place, _ in _places(project, module, key))


def _read(node: ast.AST) -> tuple[ast.expr, str] | None:
    """The object and the key of `cfg.fp16`, `cfg["fp16"]`, `cfg.get("fp16")`, `getattr(cfg, "fp16")`."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if isinstance(node, ast.Subscript) and isinstance(key := literal(node.slice), str):
        return _object(node.value), key
    if isinstance(node, ast.Call) and node.args:
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and isinstance(key := literal(node.args[0]), str)
        ):
            return _object(node.func.value), key
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1:
            return (node.args[0], key) if isinstance(key := literal(node.args[1]), str) else None
    return None


def _places(project: Project, module: Module, key: str) -> Iterable[Place]:
    """Where a file gives something a value under a key, or takes it away, with what it is."""
    return project.once(_written, module).get(key, ()) if key in module.text else ()


def _written(_: Project, module: Module) -> dict[str, list[Place]]:
    """The same by key. See `Project.once`."""
    found: dict[str, list[Place]] = defaultdict(list)

    def put(key: object, place: ast.expr, holder: ast.expr) -> None:
        if isinstance(key, str):
            found[key].append((place, holder))

    nodes: list[ast.Attribute | ast.Subscript] = [*module.of(ast.Attribute), *module.of(ast.Subscript)]
    for node in nodes:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            key = node.attr if isinstance(node, ast.Attribute) else literal(node.slice)
            put(key, node, _object(node.value))
    for call, _scope in module.calls_naming(("setattr", "delattr")):
        if len(call.args) > 1:
            put(literal(call.args[1]), call, call.args[0])
    for name in WRITERS:
        for written, method in module.method_calls.get(name, ()):
            for key in _keys(written):
                put(key, written, _object(method.value))
    return found


def _keys(call: ast.Call) -> list[object]:
    """The keys that `update` and the like write, as far as they are written down."""
    given = call.args[0] if call.args else None
    keys = [literal(k) for k in given.keys] if isinstance(given, ast.Dict) else [literal(given)]
    return [*keys, *(k.arg for k in call.keywords)]


def _object(node: ast.expr) -> ast.expr:
    """`args` of `vars(args)` and `args.__dict__`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars" and node.args:
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) and node.attr == "__dict__" else node


def _same(project: Project, home: Scope, mine: ast.expr, module: Module, theirs: ast.expr) -> bool:
    """Whether two expressions may be one object."""
    there = module.scope_of(theirs)
    if isinstance(mine, ast.Name) and isinstance(theirs, ast.Name):
        if mine.id == home.self_name or theirs.id == there.self_name:
            if mine.id != home.self_name or theirs.id != there.self_name:
                return False
            one, two = project.class_of(home), project.class_of(there)
            return one is not None and two is not None and one.shares_instances(two)
    slots = project.slot(home.module, mine), project.slot(module, theirs)
    if None in slots:
        return home is there and ast.unparse(mine) == ast.unparse(theirs)
    first, second = (project.origins([slot]) for slot in slots if slot is not None)
    return bool(first & second)
