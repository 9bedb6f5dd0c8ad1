"""What a program stores where, found once: attributes, items of containers, options, objects that are made."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.given_values import given
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.table import Path

# Decorators under which a function is given what its calls give.
PLAIN_DECORATORS = frozenset(
    "staticmethod classmethod property cached_property no_grad enable_grad wraps contextmanager lru_cache cache jit "
    "setter abstractmethod override record inference_mode".split()
)

# Methods that change a container other than by putting something in under a name, and functions that change none.
CHANGING = frozenset("pop popitem clear setdefault remove insert append extend sort reverse".split())
LOOKING = frozenset(
    "print len str repr dict list tuple set sorted isinstance json yaml pprint copy vars enumerate zip logging logger log "
    "any all min max sum iter next range".split()
)


DEPTH = 4  # calls that an object is handed over by
# Calls whose keywords are settings that attributes of some object are read for.
SETTING_CALLS = frozenset("set_defaults Namespace SimpleNamespace EasyDict".split())


class Given(NamedTuple):
    """An expression, and which item of it; without one, something that is not seen is given."""

    value: ast.expr | None
    path: Path = ()


class Put(NamedTuple):
    """`holder[key] = value`; a key of None is any, a value of None not seen; of `whole`, the items are put in."""

    module: Module
    holder: ast.expr
    key: str | int | None
    given: Given
    whole: bool = False


class Sources:
    """The indices of one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._values: dict[Function | ClassInfo, bool] = {}
        self._made: dict[ClassInfo, list[tuple[Module, ast.Call]]] = {}

    def stored(self, name: str) -> Iterator[tuple[Module, ast.Attribute, Given]]:
        """What is assigned to attributes of a name, on whatever object."""
        for module, target in self.project.once(_attribute_stores).get(name, ()):
            yield module, target, given_to(module, target)

    def puts(self, name: str, key: str | int | None) -> Iterator[Put]:
        """What is put into containers under a key; under one that is not seen, into those of a name: which container
        another may be it does not say."""
        found = self.project.once(_puts).get(key, ()) if key is not None else ()
        yield from (*found, *self.project.once(_unkeyed).get(name, ()))

    def changed(self, scope: Scope, name: str) -> Iterator[ast.Name]:
        """Uses of a variable that may change what is in it, but for what `puts` sees."""
        return (use for use in scope.reads(name) if self._may_change(scope.module, use))

    def _may_change(self, module: Module, use: ast.Name) -> bool:
        parent = module.parents[use]
        if isinstance(parent, ast.keyword) and parent.arg is not None:
            parent = module.parents[parent]
        if isinstance(parent, ast.Subscript):
            return isinstance(parent.ctx, ast.Del)
        if isinstance(parent, ast.Attribute):
            return parent.attr in CHANGING
        if not isinstance(parent, ast.Call):
            return False
        called = module.qualify(parent.func) or ast.unparse(parent.func)
        return not self.project.resolved.get(parent) and called.split(".")[0] not in LOOKING

    def unseen(self, classes: Collection[ClassInfo]) -> Iterator[tuple[Module, ast.expr]]:
        """What sets attributes of one of some classes by names that are not seen: `setattr(self, key, value)`,
        `self.__dict__.update(settings)`, in methods of theirs or in what their objects are handed to."""
        return ((module, node) for module, node, held in self._unseen if not held.isdisjoint(classes))

    @cached_property
    def _unseen(self) -> list[tuple[Module, ast.expr, set[ClassInfo]]]:
        """The same with the classes of whose attributes each may set one."""
        stores = (
            (m, node, {*self._held_by(m, holder)}) for m in self.project.modules for node, holder in _unseen_stores(m)
        )
        return [store for store in stores if store[2]]

    def _held_by(self, module: Module, holder: ast.expr, depth: int = 0) -> Iterator[ClassInfo]:
        """The classes that an expression may be an object of, also as callers hand it over."""
        scope = module.scope_of(holder)
        own = own_class(self.project, scope, holder)
        found = [own] if own is not None else self.project.classes_of(module, holder)
        yield from found
        function = self.project.functions.get(scope.node)
        parameter = holder.id if isinstance(holder, ast.Name) and holder.id in scope.params else None
        if found or function is None or parameter is None or depth > DEPTH:
            return
        for where, call in self.project.calls.get(function, ()):
            given = dict(self.project.arguments(function, call)).get(parameter)
            if given is not None:
                yield from self._held_by(where, given, depth + 1)

    def options(self, module: Module, name: str) -> list[tuple[Module, ast.Call]]:
        """Where the command line of a module's program declares an option: in the file itself, else in what imports tie
        to it, else anywhere."""
        found = [(m, call) for m in self.project.modules for call in self.project.once(_options, m).get(name, ())]
        own = [pair for pair in found if pair[0] is module]
        return own or ([] if "add_argument" in module.text and self.project.once(_options, module) else found)

    def declaring(self, name: str) -> frozenset[Module]:
        """The files that declare an option of a command line themselves."""
        return frozenset(m for m in self.project.modules if name in self.project.once(_options, m))

    def set_by_name(self, name: str) -> Sequence[tuple[Module, ast.expr]]:
        """What settings are given by their names: `parser.set_defaults(fp16=False)`, `Namespace(fp16=False)`."""
        return self.project.once(_set_by_name).get(name, ())

    def fields(self, name: str) -> Sequence[ClassInfo]:
        """The classes that give a field of a name in their bodies."""
        return self.project.once(_fields).get(name, ())

    def made(self, cls: ClassInfo) -> list[tuple[Module, ast.Call]]:
        """The calls that make objects of a class."""
        if cls not in self._made:
            calls = ((m, call) for m in self.project.modules if cls.name in m.text for call, _ in m.calls)
            self._made[cls] = [(m, call) for m, call in calls if cls.node in self.project.definitions(m, call.func)]
        return self._made[cls]

    def handed_on(self, definition: Function | ClassInfo) -> bool:
        """Whether a function or class is more than called in sight: used as a value, or decorated so that others run it."""
        decorators = definition.node.decorator_list if isinstance(definition, Function) else ()
        return any(_last(d) not in PLAIN_DECORATORS for d in decorators) or self.is_value(definition)

    def is_value(self, definition: Function | ClassInfo) -> bool:
        """Whether a function or class is given to something, or kept."""
        if definition not in self._values:
            users = self.project.once(_handing_on).get(definition.node, ())
            self._values[definition] = any(definition.name in m.text for m in users)
        return self._values[definition]

    def value_at(self, definition: Function | ClassInfo) -> tuple[Module, ast.AST] | None:
        """Where a function or class is given to something, or kept."""
        for module in self.project.once(_handing_on).get(definition.node, ()):
            for use in module.loads.get(definition.name, ()):
                if _as_value(module, use) and definition.node in self.project.definitions(module, use):
                    return module, use
        return None

    def only_starts_processes(self, function: Function) -> bool:
        """Whether what a function is given to starts a process of its own with it: `mp.spawn(work, ...)`,
        `Process(target=work)`; nothing else takes it as a value."""
        module, name = function.module, function.name
        if not function.scope.parent or not function.scope.parent.is_module:
            return False
        uses = [*((module, n) for n in module.loads.get(name, ())), *self.project.handed_on.readers(module, name)]
        taking = [(m, m.parents.get(n)) for m, n in uses if _as_value(m, n)]
        return bool(taking) and all(_starts_process(m, taker) for m, taker in taking)

    def unused(self, module: Module, node: ast.AST) -> bool:
        """Whether a node stands in a class of which the program makes no object, nor of one below it, or in a function of a
        package that it does not use."""
        cls = self.project.class_around(module.scope_of(node))
        if cls is not None:
            return not any(self.made(c) or self.is_value(c) for c in cls.descendants())
        function = self.project.function_of(module, node)
        if function is None or "." not in module.name:
            return False
        return not self.project.calls.get(function) and not self.is_value(function)


def _defined(project: Project) -> set[str]:
    """The names of all functions and classes."""
    return {scope.name for m in project.modules for scope in m.scopes.values()}


def _handing_on(project: Project) -> dict[ast.AST, list[Module]]:
    """The files that use a function or class of the program other than by calling it."""
    found: dict[ast.AST, list[Module]] = {}
    for module in project.modules:
        for definition in _handed_on(project, module):
            found.setdefault(definition, []).append(module)
    return found


def _handed_on(project: Project, module: Module) -> set[ast.AST]:
    """The functions and classes of the program that a file uses other than by calling them."""
    found: set[ast.AST] = set()
    for name in project.once(_defined) & (module.loads.keys() | module.named.keys()):
        for use in (*module.loads.get(name, ()), *module.named.get(name, ())):
            if (
                isinstance(use, (ast.Name, ast.Attribute))
                and _as_value(module, use)
                and not _only_called(project, module, use)
            ):
                found.update(project.definitions(module, use))
                if isinstance(use, ast.Attribute):
                    methods = (m for cls in project.classes_of(module, use.value) for m in cls.variants_of(name))
                    found.update(method.node for method in methods)
    return found


def _only_called(project: Project, module: Module, use: ast.AST) -> bool:
    """Whether a function is only called by the name that it is given (`fn = train if full else tune`, `fn(loader)`), or by its
    entry in a table (`phases = {"train": train}`, `phases["train"](loader)`)."""
    kept = module.parents.get(use)
    while isinstance(kept, ast.IfExp):
        kept = module.parents.get(kept)
    table = isinstance(kept, ast.Dict)
    stmt = module.parents.get(kept) if table and kept is not None else kept
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(name := stmt.targets[0], ast.Name):
        return False
    scope = module.scope_of(name).lookup(name.id)
    if scope is None or scope.is_class or not given(scope, name.id):
        return False
    if scope.is_module and any(project.handed_on.readers(module, name.id)):
        return False
    uses = scope.reads(name.id)
    for node in uses:
        called: ast.AST | None = module.parents.get(node) if table else node
        by_key = not table or (isinstance(called, ast.Subscript) and isinstance(called.slice, ast.Constant))
        call = module.parents.get(called) if called is not None else None
        if not by_key or not isinstance(call, ast.Call) or call.func is not called or not project.resolved.get(call):
            return False
    return bool(uses)


def _as_value(module: Module, use: ast.AST) -> bool:
    """Whether what a name stands for goes somewhere: it is no callee, base, annotation or part of a dotted name."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.Call):
        return parent.func is not use and _last(parent.func) not in ("isinstance", "issubclass", "super", "partial")
    if isinstance(parent, (ast.ClassDef, ast.Attribute, ast.arg, *FUNCTION_NODES, ast.ExceptHandler)):
        return False
    return not (isinstance(parent, ast.AnnAssign) and parent.annotation is use) and not isinstance(
        parent, (ast.Subscript, ast.Compare)
    )


def _starts_process(module: Module, taker: ast.AST | None) -> bool:
    """Whether a call, or the keyword of one, is given what a new process is to run: no thread, which shares this one."""
    call = module.parents.get(taker) if isinstance(taker, ast.keyword) and taker.arg == "target" else taker
    return isinstance(call, ast.Call) and _last(call.func) in ("spawn", "start_processes", "Process")


def _last(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _options(_: Project, module: Module) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = defaultdict(list)
    for name, call in declared(module):
        found[name].append(call)
    return found


def _set_by_name(project: Project) -> dict[str, list[tuple[Module, ast.expr]]]:
    found: dict[str, list[tuple[Module, ast.expr]]] = defaultdict(list)
    for module in project.modules:
        for call, _ in module.calls_naming(SETTING_CALLS):
            for keyword in call.keywords if called_name(call) in SETTING_CALLS else ():
                if keyword.arg is not None:
                    found[keyword.arg].append((module, keyword.value))
        for call, _ in module.calls if "DEFINE_bool" in module.text else ():
            if called_name(call) in ("DEFINE_bool", "DEFINE_boolean") and len(call.args) > 1:
                if isinstance(call.args[0], ast.Constant):
                    found[str(call.args[0].value)].append((module, call.args[1]))
    return found


def _fields(project: Project) -> dict[str, list[ClassInfo]]:
    found: dict[str, list[ClassInfo]] = defaultdict(list)
    for cls in project.classes.values():
        for name, bindings in cls.scope.bindings.items():
            if any(isinstance(b, ast.Name) for b in bindings):
                found[name].append(cls)
    return found


def _attribute_stores(project: Project) -> dict[str, list[tuple[Module, ast.Attribute]]]:
    found: dict[str, list[tuple[Module, ast.Attribute]]] = defaultdict(list)
    for module in project.modules:
        for node in module.of(ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                found[node.attr].append((module, node))
    return found


def _unseen_stores(module: Module) -> list[tuple[ast.expr, ast.expr]]:
    """What may set any attribute of an object, with the object."""
    found: list[tuple[ast.expr, ast.expr]] = []
    for call, _scope in module.calls_naming({"setattr"}):
        if isinstance(call.func, ast.Name) and len(call.args) == 3 and not isinstance(call.args[1], ast.Constant):
            found.append((call, call.args[0]))
    for call, func in module.method_calls.get("update", ()):
        found += [(call, holder) for holder in _attributes_of(func.value)]
    for node in module.of(ast.Subscript) if "__dict__" in module.text or "vars" in module.text else ():
        if isinstance(node.ctx, ast.Store) and not isinstance(node.slice, ast.Constant):
            found += [(node, holder) for holder in _attributes_of(node.value)]
    return found


def _attributes_of(mapping: ast.expr) -> list[ast.expr]:
    """The object of whose attributes a mapping is: of `args.__dict__`, `vars(args)`."""
    if isinstance(mapping, ast.Attribute) and mapping.attr == "__dict__":
        return [mapping.value]
    of_object = isinstance(mapping, ast.Call) and isinstance(mapping.func, ast.Name) and mapping.func.id == "vars"
    return mapping.args[:1] if isinstance(mapping, ast.Call) and of_object else []


def _puts(project: Project) -> dict[str | int | None, list[Put]]:
    found: dict[str | int | None, list[Put]] = defaultdict(list)
    for module in project.modules:
        for node in module.of(ast.Subscript):
            if isinstance(node.ctx, ast.Store):
                key = key_of(node.slice)
                found[key].append(Put(module, node.value, key, given_to(module, node)))
        for call, func in module.method_calls.get("update", ()):
            for keyword in call.keywords:
                whole = keyword.arg is None
                found[keyword.arg].append(Put(module, func.value, keyword.arg, Given(keyword.value), whole))
            for value in call.args:
                found[None].append(Put(module, func.value, None, Given(value), whole=True))
    return found


def _unkeyed(project: Project) -> dict[str, list[Put]]:
    found: dict[str, list[Put]] = defaultdict(list)
    for put in project.once(_puts).get(None, ()):
        if isinstance(put.holder, (ast.Name, ast.Attribute)):
            found[put.holder.id if isinstance(put.holder, ast.Name) else put.holder.attr].append(put)
    return found


def key_of(node: ast.expr) -> str | int | None:
    """The key that a subscript names; None for one that is only known at run time."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (str, int)) else None


def given_to(module: Module, target: ast.AST) -> Given:
    """What the statement or clause around a target gives it."""
    path: Path = ()
    child, parent = target, module.parents.get(target)
    while isinstance(parent, (ast.Tuple, ast.List)):
        at = next(i for i, e in enumerate(parent.elts) if e is child)
        if any(isinstance(e, ast.Starred) for e in parent.elts[:at]):
            return Given(None)
        path = (at, *path)
        child, parent = parent, module.parents.get(parent)
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        return Given(parent.value, path)
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
        return Given(parent.iter, (None, *path))
    if isinstance(parent, ast.Call):  # setattr(x, "name", value)
        return Given(parent.args[2], path)
    return Given(None)


def own_class(project: Project, scope: Scope, node: ast.expr) -> ClassInfo | None:
    """The class whose methods' first parameter a name is: `self`, or `cls`."""
    if not isinstance(node, ast.Name) or node.id != scope.self_name:
        return None
    return project.class_of(scope)
