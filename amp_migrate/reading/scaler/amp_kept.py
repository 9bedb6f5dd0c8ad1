"""Where code finds `apex.amp` itself that was handed to it, other than by a parameter: a field, an entry of a mapping, a variable
that is given one of them, or what a function gives back. There it finds the scaler then."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from amp_migrate.reading.program.definitions import ClassInfo, Function, entries, is_none
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.modules_passed import key_asked
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

AMP = "apex.amp"


def holds_amp(project: Project, cls: ClassInfo) -> frozenset[str]:
    """The fields in which objects of a class keep the module."""
    return project.once(_fields).get(cls.family, frozenset())


def brings_amp(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether an expression may give the module: `amp if args.fp16 else None`."""
    return any(project.qualify(module, each) == AMP for each in alternatives(value))


def given_local(project: Project, scope: Scope) -> tuple[Scope, str] | None:
    """The variable in sight that was given the module by way of a mapping or a call: `amp = options["amp"]`."""
    for inner in scope.chain():
        for name in inner.bindings if not inner.is_class else ():
            if _takes_over(project, inner, name):
                return inner, name
    return None


def given_handle(project: Project, scope: Scope, handles: Collection[Slot]) -> tuple[Scope, str] | None:
    """The variable in sight that a function gave the handle of `amp.init`: `handle = get_handle(args)`."""
    for inner in scope.chain():
        for name in inner.bindings if handles and not inner.is_class else ():
            if name not in inner.params and Slot(inner, name) in handles:
                stmts = (inner.module.statement(b) for b in inner.bindings[name])
                calls = (s.value for s in stmts if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call))
                if any(project.resolved.get(call) for call in calls):
                    return inner, name
    return None


def given_sometimes(project: Project, handles: Collection[Slot]) -> bool:
    """Whether some runs leave a variable that is given the module, or a handle, without one: `amp = None` until then."""
    held = {s for s, name in project.passed_modules.items() if name == AMP} | {*handles}
    for scope, name in {(s.holder, s.name) for s in held if isinstance(s.holder, Scope)}:
        if scope.is_class or name in scope.params or name not in scope.bindings:
            continue
        if not _takes_over(project, scope, name) and given_handle(project, scope, {Slot(scope, name)}) is None:
            continue
        stmts = [scope.module.statement(b) for b in scope.bindings[name]]
        within = (a for s in stmts for a in scope.module.ancestors(s) if scope.module.scope_of(a) is scope)
        if any(isinstance(s, ast.Assign) and is_none(s.value) for s in stmts) or any(
            isinstance(a, ast.If) for a in within
        ):
            return True
    return False


def takes_over(project: Project, module: Module, target: ast.Name) -> bool:
    """Whether a variable is one of those."""
    owner = module.scope_of(target).lookup(target.id)
    return owner is not None and _takes_over(project, owner, target.id)


def _takes_over(project: Project, owner: Scope, name: str) -> bool:
    if name in owner.params or project.passed_modules.get(Slot(owner, name)) != AMP:
        return False
    named = project.once(_named, owner.module)
    return not all(b in named or isinstance(b, (ast.Import, ast.ImportFrom)) for b in owner.bindings[name])


def may_be_none(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether a mapping that is asked for the module may have none: `options.get("amp")`, also by a variable."""
    if isinstance(node, ast.Name) and takes_over(project, module, node):
        owner = module.scope_of(node).lookup(node.id)
        stmts = [module.parents.get(b) for b in owner.bindings[node.id]] if owner is not None else []
        return any(
            isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and key_asked(s.value) is not None
            for s in stmts
        )
    return isinstance(node, ast.Call) and key_asked(node) is not None


def _named(project: Project, module: Module) -> frozenset[ast.AST]:
    """The variables that are given the module by its name, or nothing: `amp = apex.amp if fp16 else None`. See `Project.once`."""

    def named(each: ast.expr) -> bool:
        imports = isinstance(each, ast.Call) and each in project.module_calls and importer(project, each) is not None
        return is_none(each) or module.qualify(each) == AMP or imports

    assigned = (n for n in module.of(ast.Assign) if all(map(named, alternatives(n.value))))
    return frozenset(target for node in assigned for target in node.targets)


def importer(project: Project, call: ast.Call) -> Function | None:
    """The function that a call of has the module from, where it only brings it: `def get_amp(): from apex import amp; ...`."""
    functions = project.resolved.get(call, [])
    if len(functions) != 1 or call not in project.module_calls:
        return None
    (function,) = functions
    calls = (n for n in function.inside if isinstance(n, ast.Call))
    sets_up = any(project.qualify(function.module, n.func) == f"{AMP}.initialize" for n in calls)
    return None if sets_up or function.scope.params else function


def entry_held(project: Project, scope: Scope) -> tuple[str, str] | None:
    """The mapping in sight of a function that has the module under a key: not one that it is only put into there, with what
    is to be saved (`to_save = {"model": model, "amp": amp}`)."""
    held = project.once(_entries)
    chain = list(scope.chain()) if held else []
    for inner in chain:
        for name in inner.bindings if inner.is_function else ():
            key = held.get(slot := Slot(inner, name))
            if key is not None and project.once(_put_in).get(slot, set()).isdisjoint(chain):
                return name, key
    cls = project.class_of(scope)
    for slot, key in held.items():
        if cls is not None and slot.holder is cls.family:
            put_in = project.once(_put_in).get(slot, set())
            if put_in.isdisjoint(chain) and (not put_in or slot in project.once(_asked)):
                return f"{scope.self_name}.{slot.name}", key
    return None


def _put_in(project: Project) -> Mapping[Slot, set[Scope]]:
    """The mappings that the module is put into by its name, and where: `to_save = {"amp": amp}`, `to_save["amp"] = amp`,
    `to_save.update(amp=amp)`. See `Project.once`."""
    found: dict[Slot, set[Scope]] = {}
    for module in project.modules if project.once(_entries) else ():
        places: list[ast.expr] = []
        for target, value in (pair for node in module.of(ast.Assign) for pair in assigned(node)):
            if any(brings_amp(project, module, v) for _, v in entries(value)):
                places.append(target)
            if isinstance(target, ast.Subscript) and brings_amp(project, module, value):
                places.append(target.value)
        for call, func in module.method_calls.get("update", ()):
            given = [*(k.value for k in call.keywords), *(v for a in call.args for _, v in entries(a))]
            if any(brings_amp(project, module, v) for v in given):
                places.append(func.value)
        for place in places:
            if (slot := project.slot(module, place)) is not None:
                found.setdefault(slot, set()).add(module.scope_of(place))
    return found


def _asked(project: Project) -> set[Slot]:
    """The mappings that are asked for the module: `self.options["amp"].scale_loss`. See `Project.once`."""
    held = project.once(_entries)
    found: set[Slot] = set()
    for module in project.modules if held else ():
        asking: list[ast.Subscript | ast.Call] = [*module.of(ast.Subscript), *module.of(ast.Call)]
        for node in asking:
            of = node.value if isinstance(node, ast.Subscript) else None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
            key = key_asked(node) if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load) else None
            slot = project.slot(module, of) if key is not None and of is not None else None
            if slot is not None and key is not None and held.get(slot) == key.value:
                found.add(slot)
    return found


def without_entry(project: Project, scope: Scope, name: str, key: str) -> tuple[Module, ast.Call] | None:
    """A call that gives a function, for a mapping in sight there, one that is not seen to have the module."""
    owner = scope.lookup(name)
    function = project.functions.get(owner.node) if owner is not None else None
    if function is None or function.parameter(name) is None:
        return None
    for module, call in project.calls.get(function, ()):
        for value in (v for parameter, v in project.arguments(function, call) if parameter == name):
            written = any(brings_amp(project, module, v) for k, v in entries(value) if k == key)
            slot = project.slot(module, value)
            if not written and (slot is None or project.passed_modules.get(Slot(slot, f"[{key}]")) != AMP):
                return module, call
    return None


class Kept(NamedTuple):
    """What a method puts into a field of its object."""

    module: Module
    stmt: ast.Assign
    target: ast.Attribute
    value: ast.expr
    method: Function
    family: ClassInfo


def kept_in(project: Project, cls: ClassInfo) -> Iterator[Kept]:
    """What methods put into the fields of objects that are of a class, also by its bases and what derives from it."""
    for member in filter(cls.shares_instances, cls.family.descendants()):
        for method in member.methods.values():
            for node in (n for n in walk(method.node) if isinstance(n, ast.Assign)):
                for target, value in assigned(node):
                    slot = project.slot(member.module, target)
                    if isinstance(target, ast.Attribute) and slot is not None and slot.holder is cls.family:
                        yield Kept(member.module, node, target, value, method, cls.family)


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment gives what, also side by side: `self.optimizer, self.amp = optimizer, amp`."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        value = node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def object_held(project: Project, scope: Scope) -> tuple[str, str] | None:
    """The parameter of a function whose object keeps the module, and the field."""
    for inner in scope.chain():
        for name in inner.params if inner.is_function and project.once(_fields) else ():
            classes = project.instances.get(Slot(inner, name), ()) if name != inner.self_name else ()
            fields = [holds_amp(project, cls) for cls in classes]
            if fields and all(len(f) == 1 for f in fields):
                return name, next(iter(fields[0]))
    return None


def _fields(project: Project) -> Mapping[ClassInfo, frozenset[str]]:
    """See `Project.once`."""
    found: dict[ClassInfo, frozenset[str]] = {}
    for slot, name in project.passed_modules.items():
        if name == AMP and isinstance(slot.holder, ClassInfo):
            found[slot.holder] = found.get(slot.holder, frozenset()) | {slot.name}
    return found


def _entries(project: Project) -> Mapping[Slot, str]:
    """See `Project.once`."""
    held = (slot for slot, name in project.passed_modules.items() if name == AMP and isinstance(slot.holder, Slot))
    return {slot.holder: slot.name.strip("[]") for slot in held if isinstance(slot.holder, Slot)}
