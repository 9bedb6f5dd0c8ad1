"""What does not go into a region: binary_cross_entropy, which raises under autocast, and a backward in the forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import called_name, in_rows, literal
from amp_migrate.reading.program.handed_back import put_in, same_object
from amp_migrate.reading.program.lookup import Slot, is_super
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes, values_returned, walk

_FUNCTION = "binary_cross_entropy"


def refuses(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call computes binary_cross_entropy."""
    if _is_function(module, call.func):
        return True
    if isinstance(call.func, ast.Call) and module.qualify(call.func.func) == "torch.nn.BCELoss":
        return True
    if isinstance(call.func, ast.Attribute) and is_super(
        call.func.value
    ):  # a loss of the program's own derives from it
        cls = project.class_of(module.scope_of(call)) if call.func.attr in ("forward", "__call__") else None
        return cls is not None and any(name == "torch.nn.BCELoss" for c in cls.ancestry() for name in c.base_names)
    held = isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript))
    slot = project.slot(module, call.func) if held else None
    return slot in project.once(_bce_slots)


def second_order(module: Module, node: ast.Call) -> bool:
    """`torch.autograd.grad(..., create_graph=True)`: a backward, so outside of autocast."""
    return module.qualify(node.func) == "torch.autograd.grad"


def _bce_slots(project: Project) -> set[Slot]:
    """Variables that hold a `torch.nn.BCELoss`, or the function itself."""

    def gives(_: Module, stmt: ast.Assign) -> bool:
        calls = (n for n in walk(stmt.value) if isinstance(n, ast.Call))
        return len(stmt.targets) == 1 and any(called_name(call) == "BCELoss" for call in calls)

    def names(module: Module, stmt: ast.Assign) -> bool:
        called = {n.func for n in own_nodes([stmt]) if isinstance(n, ast.Call)}  # not in a lambda
        return len(stmt.targets) == 1 and any(_is_function(module, n) and n not in called for n in walk(stmt.value))

    files = (m for m in project.modules if "BCELoss" in m.text or _FUNCTION in m.text)
    given = {slot for m in files for slot in _given(project, m)}
    return project.holding("BCELoss", gives) | project.holding(_FUNCTION, names) | project.reaches(given)


def _given(project: Project, module: Module) -> Iterator[Slot]:
    """The containers of a file that a `BCELoss` is put into, and the parameters that are given one."""
    put: list[tuple[ast.expr, ast.expr]] = []
    for call, _ in module.calls:
        put += [p] if (p := put_in(call)) is not None else []
        for function in project.resolved.get(call, ()):
            for name, value in project.arguments(function, call):
                if _is_bce(module, value):
                    yield Slot(function.scope, name)
    for holder, key, value in _named(module):
        if _is_bce(module, value) and (found := project.slot(module, holder)) is not None:
            yield from (found, Slot(found, f"[{key}]"))
    for function in (f for f in project.functions.values() if f.module is module):
        if any(_is_bce(module, value) for value in values_returned(function.node.body)):
            yield Slot(function, "return")
    for call, of in (*module.method_calls.get("add_module", ()), *module.method_calls.get("register_module", ())):
        yield from _attribute(project, module, of.value, call.args)
    for call, _ in module.calls_naming(("setattr",)):
        yield from _attribute(project, module, call.args[0], call.args[1:]) if call.args else ()
    for call, func in module.method_calls.get("update", ()):
        put += [(func.value, value) for value in (*call.args, *(k.value for k in call.keywords))]
    for stmt in module.of(ast.Assign):
        put += [(target.value, stmt.value) for target in stmt.targets if isinstance(target, ast.Subscript)]
        put += [pair for target in stmt.targets for pair in _side_by_side(target, stmt.value)]
    put += [p for stmt in module.of(ast.AugAssign) if (p := put_in(stmt)) is not None]
    for holder, value in put:
        slot = project.slot(module, holder) if _is_bce(module, value) else None
        if slot is not None:
            yield slot
            yield from (Slot(slot, f"[*{place}]") for place, item in in_rows(value) if _is_bce(module, item))


def _side_by_side(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The pairs of `mse, bce = MSELoss(), BCELoss()`."""
    both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    return list(zip(target.elts, value.elts, strict=True)) if both else []  # type: ignore[attr-defined]


def _named(module: Module) -> Iterator[tuple[ast.expr, object, ast.expr]]:
    """What a file puts under a key that is written out: `{"bce": loss}`, `dict(bce=loss)`, `criteria["bce"] = loss`."""
    for stmt in module.of(ast.Assign):
        value = same_object(stmt.value) or stmt.value
        inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
        entries = list(zip(inner.keys, inner.values, strict=True)) if isinstance(inner, ast.Dict) else []
        given = value.keywords if isinstance(value, ast.Call) and called_name(value) in ("dict", "OrderedDict") else []
        for target in stmt.targets:
            yield from ((target, literal(key), value) for key, value in entries if key is not None)
            yield from ((target, keyword.arg, keyword.value) for keyword in given)
            if isinstance(target, ast.Subscript):
                yield target.value, literal(target.slice), stmt.value


def _attribute(project: Project, module: Module, on: ast.expr, given: list[ast.expr]) -> Iterator[Slot]:
    """The attribute that an object is given a `BCELoss` as by its name: `self.add_module("bce", loss)`."""
    if len(given) == 2 and _is_bce(module, given[1]):
        name = literal(given[0])
        holder = f"{module.source(on)}.{name}" if isinstance(name, str) and name.isidentifier() else module.source(on)
        slot, whole = project.slot(module, module.imagine(holder, on)), project.slot(module, on)
        yield from (slot,) if slot is not None else ()
        if whole is not None and isinstance(on, ast.Attribute):  # of layers by name, `self.parts["bce"]`
            yield from (whole, Slot(whole, f"[{name}]"))


def _is_bce(module: Module, value: ast.expr) -> bool:
    """Whether one is made here, or the function is named, as it is or in a list or mapping."""
    value = same_object(value) or value
    if isinstance(value, ast.Call) and called_name(value) in ("partial", "staticmethod") and value.args:
        value = value.args[0]
    if isinstance(value, (ast.List, ast.Tuple)):
        return any(_is_bce(module, e) for e in value.elts)
    if isinstance(value, ast.Dict):
        return any(_is_bce(module, v) for v in value.values)
    if isinstance(value, ast.Lambda):
        return any(_is_function(module, n) for n in walk(value.body))
    if isinstance(value, (ast.IfExp, ast.BoolOp)):
        return any(
            _is_bce(module, v) for v in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else value.values)
        )
    if isinstance(value, ast.Subscript):  # `{"bce": nn.BCELoss(), ...}[name]`
        return isinstance(value.value, (ast.List, ast.Tuple, ast.Dict)) and _is_bce(module, value.value)
    return _is_function(module, value) or (isinstance(value, ast.Call) and called_name(value) == "BCELoss")


def _is_function(module: Module, node: ast.AST) -> bool:
    """`F.binary_cross_entropy`, as it is named."""
    held = isinstance(node, (ast.Name, ast.Attribute))
    return held and (module.qualify(node) or "").rpartition(".")[2] == _FUNCTION
