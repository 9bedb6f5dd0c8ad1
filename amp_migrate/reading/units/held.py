"""What one object has in a field, told from others of its class: `updater = Updater(optimizer)`, `updater.optimizer`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.handed_back import only_looks_up
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk


def held_by_one(project: Project, module: Module, node: ast.expr) -> ast.expr | None:
    """What gave a field of an object its only value, where that object is made once and known by one name; also where a
    property or a getter gives the field. It stands in the file that makes the object."""
    getter = isinstance(node, ast.Call) and not node.args and not node.keywords
    asked = node.func if isinstance(node, ast.Call) and getter else node
    if not isinstance(asked, ast.Attribute) or not isinstance(asked.value, ast.Name):
        return None
    made = _made(project, module, asked.value)
    if made is None:
        return None
    cls, call = made
    method = cls.method(asked.attr)
    if (method is not None) is not (getter or (method is not None and method.is_property)):
        return None
    field = asked.attr if method is None else _looked_up(method)
    if field is None:
        return None
    return _given(project, cls, call, field) or _put_there(project, module, asked.value, cls, field)


def fields_of_one(project: Project, module: Module, receiver: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The fields of such an object, with what gave them their values."""
    made = _made(project, module, receiver) if isinstance(receiver, ast.Name) else None
    if made is not None:
        cls, call = made
        init = cls.method("__init__")
        for field in dict.fromkeys(n.attr for n in walk(init.node) if isinstance(n, ast.Attribute)) if init else ():
            if (value := _given(project, cls, call, field)) is not None:
                yield field, value


def _made(project: Project, module: Module, name: ast.Name) -> tuple[ClassInfo, ast.Call] | None:
    call = single_assignment(module, name)
    cls = project.find_class(module, call.func) if isinstance(call, ast.Call) else None
    return (cls, call) if cls is not None and isinstance(call, ast.Call) else None


def _looked_up(method: Function) -> str | None:
    """The field that a method does nothing but return."""
    last = method.node.body[-1]
    value = last.value if isinstance(last, ast.Return) and only_looks_up(method) else None
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return value.attr if value.value.id == method.scope.self_name else None
    return None


def stores(project: Project, field: str) -> list[tuple[Module, ast.Attribute]]:
    return project.once(_all_stores).get(field, [])


def _all_stores(project: Project) -> dict[str, list[tuple[Module, ast.Attribute]]]:
    found: dict[str, list[tuple[Module, ast.Attribute]]] = {}
    for module in project.modules:
        for node in module.of(ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append((module, node))
    return found


def _given(project: Project, cls: ClassInfo, call: ast.Call, field: str) -> ast.expr | None:
    """The argument that a constructor keeps in a field, which nothing else sets."""
    init = cls.method("__init__")
    if project.once(_set_by_name) & {field, ANY}:
        return None
    found = [
        (m, n)
        for m, n in stores(project, field)
        if not isinstance(n.value, ast.Name) or not _of_another(project, m, n.value, cls)
    ]
    if init is None or len(found) != 1:
        return None
    module, store = found[0]
    stmt = module.parents.get(store)
    value = stmt.value if isinstance(stmt, ast.Assign) and stmt.targets == [store] else None
    if project.function_of(module, store) is not init or not isinstance(value, ast.Name):
        return None
    if stmt not in init.node.body or len(init.scope.bindings.get(value.id, ())) != 1:
        return None
    return dict(project.arguments(init, call)).get(value.id)


ANY = "*"  # whatever a variable says


def _set_by_name(project: Project) -> set[str]:
    """The fields that `setattr` sets, of whatever objects; see `Project.once`."""
    calls = [call for module in project.modules for call, _ in module.calls if called_name(call) == "setattr"]
    names = [call.args[1] if len(call.args) > 1 else None for call in calls]
    return {n.value if isinstance(n, ast.Constant) and isinstance(n.value, str) else ANY for n in names}


def _of_another(project: Project, module: Module, receiver: ast.Name, cls: ClassInfo) -> bool:
    """Whether a receiver is an object of a class that has nothing to do with one."""
    classes = project.classes_of(module, receiver)
    return bool(classes) and not any(c.family is cls.family for c in classes)


def _put_there(project: Project, module: Module, name: ast.Name, cls: ClassInfo, field: str) -> ast.expr | None:
    """What a field is given by a statement beside the one that makes the object: `state = State()`, `state.optimizer = sgd`."""
    found: list[ast.expr] = []
    if project.once(_set_by_name) & {field, ANY}:
        return None
    for where, store in stores(project, field):
        if isinstance(store.value, ast.Name) and _of_another(project, where, store.value, cls):
            continue
        stmt = where.parents.get(store)
        own = isinstance(store.value, ast.Name) and _made(project, where, store.value) is not None
        if not own or not isinstance(stmt, ast.Assign) or stmt.targets != [store]:
            return None  # whose field it is cannot be told
        scope = where.scope_of(store)
        same = where is module and scope.lookup(name.id) is module.scope_of(name).lookup(name.id)
        if same and isinstance(store.value, ast.Name) and store.value.id == name.id:
            found.append(stmt.value)
    return found[0] if len(found) == 1 else None
