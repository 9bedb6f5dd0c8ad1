"""Calls of models: of `nn.Module` objects, of methods that run them, of functions that are given one to run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.audit.dtypes import INTEGERS, SHAPES
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.accessors import is_getter
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.rerun import run_by
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.sites.chosen_classes import chosen_class
from amp_migrate.audit.sites.handed_methods import run_by_others, spelled
from amp_migrate.audit.sites.lookalikes import HEADLESS, PARTS, PLAIN, RUNNING, makes, of_others, reduces, tokenizers
from amp_migrate.audit.sites.setups import Identity, identities
from amp_migrate.audit.sites.taken_methods import TakenMethods
from amp_migrate.audit.sites.unseen_bases import runs_no_network
from amp_migrate.audit.values.names import Names, Reached, in_turn, last_name
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values

WRITTEN_DOWN = (
    *(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.Constant, ast.JoinedStr),
)
KEEPING_BOOKS = ("_", "update", "reset", "set_", "get_metric", "init", "load", "save", "log")
OF_FILES = ("__dict__", "vars", "globals")  # by which a class of a file is picked
DATA_PARALLEL = ("torch.nn.parallel.data_parallel", "torch.nn.parallel.data_parallel.data_parallel")


@dataclass(frozen=True, eq=False)
class Forward:
    """One call that runs a model; `model` is the expression of it, `method` what of it runs (None: the object is called)."""

    module: Module
    call: ast.Call
    model: ast.expr
    method: str | None

    @property
    def scope(self) -> Scope:
        return self.module.scope_of(self.call)

    @property
    def runs(self) -> str:
        """The name of the method that it runs."""
        return "forward" if self.method in (None, "module", "data_parallel") else self.method

    @property
    def text(self) -> str:
        return spelled(self.call, self.model, self.method)


class Forwards:
    """The calls of one state of a program that may run a model."""

    def __init__(self, program: Program, values: Values, modules: Sequence[Module]) -> None:
        self.program = program
        self.modules = modules
        self.values = values
        self.names = Names(program, modules)
        self.taken = TakenMethods(values, modules, lambda: self._computing | {"forward", "__call__"})
        self._tokenizers = frozenset[str]().union(*map(tokenizers, modules))

    @kept
    def of(self, module: Module) -> list[Forward]:
        return [f for call in module.calls() for f in self._forward(module, call)]

    def at(self, module: Module, call: ast.Call) -> Forward | None:
        """The forward that a call is."""
        return self._at(module).get(call)

    @kept
    def _at(self, module: Module) -> dict[ast.Call, Forward]:
        return {f.call: f for f in reversed(self.of(module))}

    def _forward(self, module: Module, call: ast.Call) -> list[Forward]:
        func = call.func
        scope = module.scope_of(call)
        if makes(module, call):
            return []
        if (others := run_by_others(self.program, scope, call, RUNNING | self._computing, self._is_field)) is not None:
            return [Forward(module, call, *others)] if self._may_be_model(scope, others[0]) else []
        if isinstance(func, ast.Name) and (scope.binder(func.id) is None or func.id in ("self", "cls")):
            return []
        dotted = self.program.dotted(scope, func) if isinstance(func, (ast.Name, ast.Attribute)) else None
        if dotted is not None:
            handed = call.args[0] if dotted in DATA_PARALLEL and call.args else run_by(self.program, scope, call)
            return [Forward(module, call, e, "data_parallel") for e in (handed,) if e and self._may_be_model(scope, e)]
        if isinstance(func, ast.Name):
            return [] if self.program.definitions(scope, func, guess=False) else [Forward(module, call, func, None)]
        if isinstance(func, ast.Attribute):
            if func.attr == "__call__":
                return [Forward(module, call, func.value, None)]
            private = func.attr.startswith("_") and (func.attr.endswith("__") or not self._is_field(func.attr))
            if func.attr in PLAIN | SHAPES | INTEGERS or private or of_others(call, self._tokenizers):
                return []
            if reduces(call) and self.program.is_self(scope, func.value) is None:
                return []
            if func.attr in RUNNING and not self._own_part(scope, func):
                return [Forward(module, call, func.value, func.attr)]
            if self.is_layer(scope, func):
                return []
            if (whole := self._part_of(scope, func, call)) is not None:
                return [Forward(module, call, whole, func.attr)]
            if self._is_field(func.attr) or self.values.records.given(func.attr):
                if not self._method_called(scope, func) and not self._idle_method(func.attr):
                    return [Forward(module, call, func, None)]
            if isinstance(func.value, (ast.Name, ast.Attribute)) and func.attr in self._computing:
                if not self.program.is_self(scope, func.value):
                    return [Forward(module, call, func.value, func.attr)]
            return []
        if isinstance(func, (ast.Subscript, ast.Call)):
            return self._by_name(module, call) or [Forward(module, call, func, None)]
        return []

    def _by_name(self, module: Module, call: ast.Call) -> list[Forward]:
        """`getattr(model, name)(x)`, of something that is seen to be made: which method, where what the name may be is seen."""
        asked, scope = syntax.by_name(call.func), module.scope_of(call)
        made = identities(self.values, scope, asked[0]) if asked is not None and syntax.given(call) else ()
        if asked is None or not any(isinstance(i[0], ast.Call) for i in made):
            return []
        names = self.values.constants(scope, asked[1]) or set()
        run = (RUNNING | self._computing) & names
        return [Forward(module, call, asked[0], min(run, default=None))] if run or not names else []

    def _is_field(self, name: str) -> bool:
        """Whether objects have a field of a name, of their own or of their class, or compute what they give under it."""
        kept = self.values.stored(name) or name in self.values.instances.named
        return bool(kept) or any(map(is_getter, self.program.methods_named(name)))

    def _part_of(self, scope: Scope, func: ast.Attribute, call: ast.Call) -> ast.expr | None:
        """The network that a part is called of, from outside of it; None where a call is none of a part, by its name, or by
        what the program's method of that name does."""
        whole = func.value
        while isinstance(whole, ast.Attribute) and not identities(self.values, scope, whole):
            whole = whole.value
        called = PARTS.search(func.attr) and (call.args or call.keywords) and not self._idle_method(func.attr)
        outside = isinstance(whole, (ast.Name, ast.Attribute)) and not self.program.is_self(scope, whole)
        return whole if called and outside else None

    def _may_be_model(self, scope: Scope, handed: ast.expr) -> bool:
        """Whether it may be a model: none of the program's functions, no layer of torch's."""
        if isinstance(handed, ast.Lambda) or self.program.definitions(scope, handed, guess=False):
            return False
        return not (isinstance(handed, ast.Attribute) and self.is_layer(scope, handed))

    def _own_part(self, scope: Scope, func: ast.Attribute) -> bool:
        """Whether `self.head` is what the class itself keeps in a field, and no method of it."""
        owner = self.program.is_self(scope, func.value)
        return owner is not None and not self.program._method(owner, func.attr) and owner in self.holders(func.attr)

    @kept
    def holders(self, name: str) -> frozenset[Class | None]:
        """The classes whose objects keep something in a field of a name; None: what is not `self` does."""
        return frozenset(self.program.is_self(m.scope_of(t), t.value) for m, t, _, _ in self.values.fields(name))

    def is_layer(self, scope: Scope, func: ast.Attribute) -> bool:
        """Whether `self.conv` is a layer of torch that the class makes itself: no model of anybody's."""
        owner = self.program.is_self(scope, func.value)
        if owner is None:
            return False
        module = owner.module
        found = self._made(module).get((owner, func.attr), [])
        return bool(found) and all(
            isinstance(v, ast.Call)
            and (self.program.dotted(module.scope_of(v), v.func) or "").startswith("torch.nn.")
            and not any(isinstance(a, (ast.Name, ast.Attribute, ast.Starred)) for a in v.args[:1])
            for v in found
        )

    @kept
    def _made(self, module: Module) -> dict[tuple[Class | None, str], list[ast.expr | None]]:
        """What a file gives the fields of its classes."""
        made: dict[tuple[Class | None, str], list[ast.expr | None]] = {}
        for target, value, _ in assignments(module):
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                cls = self.program.is_self(module.scope_of(target), target.value)
                made.setdefault((cls, target.attr), []).append(value)
        return made

    def _method_called(self, scope: Scope, func: ast.Attribute) -> bool:
        """Whether the object is seen to be made, of classes of the program that have a method of this name and no such field."""
        methods = self.program.methods_named(func.attr)
        if not methods or any(map(is_getter, methods)) or self.program.is_self(scope, func.value) is not None:
            return False
        classes = self.made_of(identities(self.values, scope, func.value))
        return bool(classes) and all(self.program._method(c, func.attr) for c in classes)

    def _idle_method(self, name: str) -> bool:
        """Whether a name is that of methods of the program's networks that run no part of them (`model.freeze()`), and of
        fields of other classes alone, as a configuration's: no network keeps one that is called by it."""
        methods = [
            f for f in self.program.methods_named(name) if f.owner is not None and self.program.is_network(f.owner)
        ]
        if not methods or any(self.computes(f) for f in methods):
            return False
        return all(cls is not None and not self.program.is_network(cls) for cls in self.holders(name))

    def no_network(self, forward: Forward) -> bool:
        """Whether what is called is seen to be made and is no network: an object whose method is read where it stands, a
        scheduler, a scaler; a method of a list or a text."""
        if self.chosen(forward):
            return True
        if isinstance(forward.model, ast.Attribute) and forward.method is None:
            held = self.values.origins(forward.scope, forward.model.value)
            if held and all(isinstance(o.node, WRITTEN_DOWN) and not o.path for o in held):
                return True
        objects = self.identities(forward)
        classes = self.made_of(objects)
        if classes:
            method = "__call__" if forward.method is None else forward.runs
            return all(runs_no_network(self, c, method) for c in classes)
        held = self.values.origins(forward.scope, forward.model)
        makers = ((o, self.values.maker(o) or "") for o in held)  # the first that is another tells
        return bool(held) and all(
            (m.startswith("torch.optim.") and not m.endswith("AveragedModel"))
            or m.endswith(".GradScaler")
            or self._binds_function(o)
            or self._is_torchs(o)
            for o, m in makers
        )

    def _is_torchs(self, held: Origin) -> bool:
        """`torch.Tensor.numpy`: a function of torch's that is kept as a value."""
        if not isinstance(held.node, ast.Attribute):
            return False
        name = self.program.dotted(held.module.scope_of(held.node), held.node) or ""
        return name.startswith("torch.") and name.rpartition(".")[2].islower()

    def _binds_function(self, made: Origin) -> bool:
        """`bound = partial(run, model)`: what calls it runs a function, which is looked at where it stands."""
        bound = self.bound_by(made)
        return bool(bound) and all(isinstance(d, Function) for d in bound)

    def bound_by(self, made: Origin) -> Sequence[Function | Class]:
        """What of the program a `functools.partial` runs; empty where a value is none."""
        call = made.node
        if not isinstance(call, ast.Call) or not call.args or self.values.maker(made) != "functools.partial":
            return []
        return self.program.definitions(made.module.scope_of(call), call.args[0], guess=False)

    def chosen(self, forward: Forward) -> bool:
        """Whether it is a class that was chosen."""
        return forward.method is None and chosen_class(self.values, forward.module, forward.model)

    def made_of(self, objects: frozenset[Identity]) -> list[Class]:
        """The program's classes that objects are made of; none where one may be something else."""
        found: list[Class] = []
        for identity in objects:
            classes = self._found_classes(frozenset((identity,)))
            if not classes:
                return []
            found += classes
        return found

    @cached_property
    def _computing(self) -> set[str]:
        """Names of methods of the program's modules that call submodules."""
        found: set[str] = set()
        methods = [
            (name, f)
            for cls in (c for m in self.modules for c in m.classes)
            if self.program.is_network(cls)
            for name, functions in cls.methods.items()
            for f in functions
            if f.bound and len(f.parameters) > 1
        ]
        handing: list[tuple[str, set[str]]] = []
        for name, function in methods:
            direct, through = self._computes(function)
            if direct:
                found.add(name)
            elif through:
                handing.append((name, through))
        more = True
        while more:
            more = False
            for name, through in handing:
                if name not in found and through & found:
                    found.add(name)
                    more = True
        whole = {name for name, f in methods if _runs_whole(f)}
        return {name for name in found if name in whole or not name.startswith(KEEPING_BOOKS)}

    def computes(self, function: Function) -> bool:
        """Whether a method of a network calls submodules of it, itself or through others of its methods."""
        return self._computes(function)[0] or function.name in self._computing

    def _computes(self, function: Function) -> tuple[bool, set[str]]:
        """Whether a method calls a submodule itself; methods of its own and of submodules that it calls."""
        through: set[str] = set()
        turns = in_turn(function.node, self.values.fields)
        for node in syntax.walk(function.node):
            if isinstance(node, ast.Call):
                text = syntax.text(syntax.whole(node.func))  # `self.members[i](x)`
                if text in ("self", "self.forward") or text in turns:
                    return True, through
                if isinstance(node.func, ast.Attribute) and syntax.text(node.func.value) in turns:
                    through.add(node.func.attr)
                if text.startswith("self.") and text.count(".") <= 2 and self._holds_part(text.rpartition(".")[2]):
                    return True, through
                if text.startswith("self.") and text.count(".") <= 2:
                    through.add(text.rpartition(".")[2])
        return False, through

    def _holds_part(self, name: str) -> bool:
        """Whether networks have a part of this name: one that some object is given, or what the base of one out of sight
        calls its own (`self.bert(ids)`)."""
        if self.values.fields(name):
            return True
        return (name in HEADLESS or PARTS.search(name) is not None) and not self.program.methods_named(name)

    @kept
    def identities(self, forward: Forward) -> frozenset[Identity]:
        found = identities(self.values, forward.scope, forward.model)
        return found if forward.method is not None else self.taken.models(found, forward.scope, forward.model)

    @kept
    def classes(self, forward: Forward) -> list[Class]:
        """The program's classes that the model may be an instance of."""
        if (owner := self.program.is_self(forward.scope, forward.model)) is not None:
            return [owner, *self.program.below(owner)]
        held = self.values.instances.of(forward.scope, forward.model) if syntax.given(forward.call) else ()
        found = self._found_classes(self.identities(forward))
        return _in_order([*found, *(kind for kind in held if isinstance(kind, Class))])

    @kept  # many models may be the same
    def _found_classes(self, objects: frozenset[Identity]) -> list[Class]:
        found: list[Class] = []
        for identity in objects:
            node, module = identity[0], identity[-1]
            if isinstance(node, ast.Call) and isinstance(module, Module):
                made = self.values.instances.made(module.scope_of(node), node)
                found += [d for d in made if isinstance(d, Class)]
        return _in_order(found)

    @kept
    def runs(self, forward: Forward) -> list[Function]:
        """The methods of the program that a forward runs."""
        return [f for cls in self.classes(forward) for f in self.program._method(cls, forward.runs)]

    def among(self, start: Iterable[str]) -> list[Forward]:
        """The forwards of models that may be known under one of these names, or under what they are handed on to."""
        return self._known(self.names.reached(start), (f for m in self.modules for f in self.of(m)))

    def _known(self, names: Reached, among: Iterable[Forward]) -> list[Forward]:
        return [f for f in among if any(name is None or name in names for name in self._names_of(f))]

    @kept
    def _names_of(self, forward: Forward) -> tuple[str | None, ...]:
        """Under which names its model is known, or what that is a part of; None: a call gives it where it runs."""
        model = forward.model
        whole = model.value if isinstance(model, (ast.Attribute, ast.Subscript)) else None
        item = isinstance(model, ast.Subscript) and not isinstance(whole, (ast.Name, ast.Attribute, ast.Subscript))
        made: list[str | None] = [None] if isinstance(model, ast.Call) or item else []
        found = [last_name(model), last_name(whole) if whole is not None else None]
        return (*made, *(name for name in found if name is not None))

    @cached_property
    def _by_method(self) -> dict[str, list[Forward]]:
        found: dict[str, list[Forward]] = {}
        for module in self.modules:
            for forward in self.of(module):
                found.setdefault(forward.runs, []).append(forward)
        return found

    @kept
    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """The forwards that run a method of a model."""
        owner = function.owner
        if owner is None or function.name.startswith("__"):
            return []
        forwards = self._by_method.get(function.name)
        if not forwards:
            return []
        names = self.names.reached(
            [*(c.name for c in (owner, *self.program.below(owner))), *sorted(self.program.loaded.names), *OF_FILES]
        )
        return [(f.module, f.call) for f in self._known(names, forwards) if function in self.runs(f)]


def _in_order(classes: Iterable[Class]) -> list[Class]:
    return sorted(set(classes), key=lambda c: (c.module.path, c.node.lineno))


def _runs_whole(function: Function) -> bool:
    """Whether a method runs the network that it belongs to: `self.forward(x)`."""
    return any(syntax.text(c.func) in ("self", "self.forward") for c in syntax.every(function.node, ast.Call))
