"""One state of a program: what a name, a class or a callee stands for.

Names are resolved by Python's scoping rules and imports, nothing else. What cannot be resolved is said to be unknown
(None, or an empty list): a check decides what it makes of that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from amp_migrate.audit.kept import kept, kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.common import tells_nothing
from amp_migrate.audit.program.imports import Imports
from amp_migrate.audit.program.loaded import ByName
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.values.registries import Registries

STANDING = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)  # what may stand for a function or a class


class Program(Imports):
    """All files of a project in one state. A file is parsed when a question leads to it."""

    def __init__(
        self,
        texts: Mapping[str, str],
        known: Mapping[str, Module] | None = None,
        trees: Mapping[str, ast.Module] | None = None,
        above: Sequence[str] = (),
    ) -> None:
        super().__init__(texts, known, trees, above)
        self._definitions: dict[tuple[Scope, ast.expr, bool], Sequence[Function | Class]] = {}
        self._asking = False
        self._selves: dict[Scope, tuple[str, Class | None]] = {}
        self._methods: dict[tuple[Class, str], list[Function]] = {}

    def definitions(self, scope: Scope, expr: ast.expr, *, guess: bool = True) -> Sequence[Function | Class]:
        """The project's functions or classes that an expression may be; empty where none is known.

        Methods of `self` are looked for in the class, its bases and its subclasses; `MODELS[name]` is anything that holds.
        With `guess`, `x.name` on an unknown object gives the methods of that name, where at most four classes have one and
        the name is not a common one.
        """
        if self._asking:  # what is found while something else is being found out may lack that
            return self._defined(scope, expr, guess)
        key = (scope, expr, guess)
        if key not in self._definitions:
            self._asking = True
            self._definitions[key] = self._defined(scope, expr, guess)
            self._asking = False
        return self._definitions[key]

    def _defined(self, scope: Scope, expr: ast.expr, guess: bool) -> Sequence[Function | Class]:
        if isinstance(expr, ast.Name):
            if self.made(scope, expr):
                return []
            return self._named(scope, expr.id) or self._own_class(scope, expr)
        if isinstance(expr, ast.Subscript):
            return self.registries.held(scope, expr.value)
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr == "get":
            return self.registries.held(scope, expr.func.value)
        if not isinstance(expr, ast.Attribute):
            return self.loaded.classes(scope, expr)
        owner = self.is_self(scope, expr.value)
        if owner is not None:
            return list(self.methods(owner, expr.attr)) if expr.attr != "__class__" else [owner, *self.below(owner)]
        if isinstance(expr.value, ast.Call) and isinstance(expr.value.func, ast.Name) and expr.value.func.id == "super":
            cls = self.class_around(scope)
            return [f for base in (self.bases(cls) if cls else []) for f in self._method(base, expr.attr)]
        dotted = self.imported(scope, expr)
        if dotted is not None:
            return self._global(scope.module, dotted)
        classes = [d for d in self.definitions(scope, expr.value, guess=False) if isinstance(d, Class)]
        if classes:  # Class.method
            return [f for c in classes for f in self._method(c, expr.attr)]
        if loaded := self.loaded.classes(scope, expr):
            return loaded
        if guess and not tells_nothing(scope.module, expr):
            methods = self.methods_named(expr.attr)
            if len({m.owner for m in methods}) <= 4:
                return list(methods)
        return []

    @cached_property
    def loaded(self) -> ByName:
        return ByName(self)

    @cached_property
    def registries(self) -> Registries:
        return Registries(self)

    def _named(self, scope: Scope, name: str) -> list[Function | Class]:
        found = scope.binder(name)
        return self._starred(scope.module, name) if found is None else self._bound(found, name, scope is not found)

    @kept_meanwhile(list)
    def _starred(self, module: Module, name: str) -> list[Function | Class]:
        """What a name is that only `from x import *` can have brought."""
        return [d for n in module.stars for d in self._global(module, f"{self._base(module, n)}.{name}")]

    @kept_meanwhile(list)  # `a = b.c; b = a.d` ends
    def _bound(self, found: Scope, name: str, within: bool) -> list[Function | Class]:
        """`within`: for functions in the scope, which run when all of it has: a later definition took the place of others."""
        result: list[Function | Class] = []
        nodes = found.bindings[name]
        if within and len(nodes) > 1 and all(_defines(found.module, n) for n in nodes):
            nodes = nodes[-1:]
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                result.append(self.function_of(found.module, node))
            elif isinstance(node, ast.ClassDef):
                result.append(found.module.class_of[node])
            elif isinstance(node, ast.Assign) and isinstance(node.value, STANDING):
                if any(isinstance(t, ast.Name) for t in node.targets):
                    result += self.definitions(found, node.value, guess=False)
            else:
                dotted = self._imported(found.module, name, node)
                if dotted is not None:
                    result += self._global(found.module, dotted)
        return result

    def _global(self, module: Module, dotted: str, depth: int = 0) -> list[Function | Class]:
        """What a dotted name of the project is, through re-exports."""
        head, _, last = dotted.rpartition(".")
        if not head or depth > 5:
            return []
        result: list[Function | Class] = []
        if (home := self.module_named(head, module)) is not None:
            for node in home.top.bindings.get(last, ()):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    result.append(self.function_of(home, node))
                elif isinstance(node, ast.ClassDef):
                    result.append(home.class_of[node])
                elif isinstance(node, ast.Assign):  # another name of one
                    result += (d for d in self._bound(home.top, last, False) if d not in result)
                elif isinstance(node, (ast.ImportFrom, ast.Import)):
                    further = self._imported(home, last, node)
                    if further is not None and further != dotted:
                        result += self._global(home, further, depth + 1)
            if not result:
                for node in home.stars:
                    result += self._global(home, f"{self._base(home, node)}.{last}", depth + 1)
            return result
        return [f for c in self._global(module, head, depth + 1) if isinstance(c, Class) for f in self._method(c, last)]

    def function_of(self, module: Module, node: ast.AST) -> Function:
        module.functions  # noqa: B018
        function = module.scope_for(node).function
        assert function is not None
        return function

    # -- classes -------------------------------------------------------------------------------------------------

    def class_around(self, scope: Scope) -> Class | None:
        """The class whose method (or a function nested in it) a scope belongs to."""
        at: Scope | None = scope
        while at is not None:
            if at.is_class:
                return at.module.class_of[at.node]
            at = at.parent
        return None

    def is_self(self, scope: Scope, expr: ast.expr) -> Class | None:
        """The class of which an expression is `self` or `cls` here."""
        if type(expr) is not ast.Name:
            return None
        at: Scope | None = scope.binder(expr.id)
        if at is None or not isinstance(at.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if at not in self._selves:
            function = self.function_of(at.module, at.node)
            parameters = function.parameters if function.owner is not None and function.bound else []
            self._selves[at] = (parameters[0].arg, function.owner) if parameters else ("", None)
        name, owner = self._selves[at]
        return owner if name == expr.id else None

    def _own_class(self, scope: Scope, expr: ast.Name) -> list[Function | Class]:
        """What `cls` is in a class method: the class, or one below it."""
        owner, at = self.is_self(scope, expr), scope.binder(expr.id)
        own = owner is not None and at is not None and at.function is not None and at.function.class_method
        return [owner, *self.below(owner)] if own and owner is not None else []

    @kept_meanwhile(list)  # `class B(A.Config)` asks for A's bases
    def bases(self, cls: Class) -> list[Class]:
        """Direct bases that are classes of the program."""
        outer, self._asking = self._asking, True
        outside = cls.scope.parent or cls.scope
        found = [d for b in cls.node.bases for d in self.definitions(outside, b, guess=False)]
        self._asking = outer
        return [d for d in found if isinstance(d, Class) and d is not cls]

    @kept
    def subclasses(self, cls: Class) -> list[Class]:
        """Classes of the program that name this one as a base."""
        near = self.having(cls.name)
        return [c for m in near for c in m.classes if c is not cls and cls in self.bases(c)]

    @kept
    def family(self, cls: Class) -> list[Class]:
        """The class, its bases and its subclasses in the program, all the way: an instance may be any of the last."""
        up, down = self.family_up(cls), [cls]
        for c in down:
            down += [s for s in self.subclasses(c) if s not in down]
        return [*up, *(d for d in down if d not in up)]

    @kept_meanwhile(list)
    def external_bases(self, cls: Class) -> list[str]:
        """Full names of the bases (of it and of its bases) that are not of the program; unresolved ones as written."""
        names: list[str] = []
        for c in self.family_up(cls):
            outside = c.scope.parent or c.scope
            for base in c.node.bases:
                if not any(isinstance(d, Class) for d in self.definitions(outside, base, guess=False)):
                    names.append(self.dotted(outside, base) or syntax.text(base))
        return names

    def is_network(self, cls: Class) -> bool:
        """Whether a class derives from torch's `nn.Module`, or from something out of sight that is called so."""
        return any(name.rpartition(".")[2] == "Module" for name in self.external_bases(cls))

    def family_up(self, cls: Class) -> list[Class]:
        up = [cls]
        for c in up:
            up += [b for b in self.bases(c) if b not in up]
        return up

    @cached_property
    def classes(self) -> list[Class]:
        return [c for m in self.modules.values() for c in m.classes]

    def _method(self, cls: Class, name: str) -> list[Function]:
        """The definitions of a method as a class has it: its own, else its bases'."""
        if self._asking:  # bases that are being found out may be missing
            return self._inherited(cls, name, frozenset())
        if (cls, name) not in self._methods:
            self._methods[cls, name] = self._inherited(cls, name, frozenset())
        return self._methods[cls, name]

    def _inherited(self, cls: Class, name: str, seen: frozenset[Class]) -> list[Function]:
        if name in cls.methods or cls in seen:
            return cls.methods.get(name, [])
        for base in self.bases(cls):
            found = self._inherited(base, name, seen | {cls})
            if found:
                return found
        return []

    def constructors(self, cls: Class) -> list[Function]:
        """What runs when an object of the class is made."""
        return self._method(cls, "__init__")

    def methods(self, cls: Class, name: str) -> list[Function]:
        """What `self.name` may be in a class: its own or inherited definition, and those of its subclasses."""
        found = list(self._method(cls, name))
        for sub in self.below(cls):
            found += [f for f in sub.methods.get(name, []) if f not in found]
        return found

    @kept
    def below(self, cls: Class) -> list[Class]:
        """Those of a class's family that have it as a base."""
        return [s for s in self.family(cls) if s is not cls and cls in self.family_up(s)]

    @kept
    def methods_named(self, name: str) -> list[Function]:
        """The methods of a name, of whatever class."""
        near = [m for m in self.having(name) if name in m.defined]
        return [f for m in near for f in m.functions if f.name == name and f.owner is not None]

    # -- calls ---------------------------------------------------------------------------------------------------

    @kept
    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        """The project's functions that a call may run; a class gives its `__init__`, an unknown object nothing."""
        return self.run_by(self.definitions(module.scope_of(call), call.func))

    def run_by(self, called: Iterable[Function | Class]) -> list[Function]:
        """What runs where one of these is called."""
        return [f for d in called for f in ([d] if isinstance(d, Function) else self.constructors(d))]

    @kept
    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Every call in the program that may run a function: by whatever name in the files that have one of its own, for
        those import it by name, or as an attribute of one of its own names."""
        found: dict[Module, list[list[ast.Call]]] = {}
        for module, calls in self._running(function.name).get(function, ()):
            found.setdefault(module, []).append(calls)
        if function.name == "__init__" and function.owner is not None:
            names = dict.fromkeys(c.name for c in self.family(function.owner))
            near = dict.fromkeys(m for name in names for m in self.having(name))
            for module in near:
                asked = [n for n in names if n in module.calls_named]
                kinds = asked if function.name in module.words else [None, *asked]
                lists = [c for kind in kinds if (c := self._called_as(module, kind).get(function))]
                if lists:
                    found.setdefault(module, []).extend(lists)
        order = [m for m in self.modules.values() if m in found] if len(found) > 1 else found
        return [(m, call) for m in order for call in _in_order(m, found[m])]

    @kept
    def _running(self, name: str) -> dict[Function, list[tuple[Module, list[ast.Call]]]]:
        """The calls of functions of a name in the files that have it."""
        found: dict[Function, list[tuple[Module, list[ast.Call]]]] = {}
        for module in self.having(name):
            for kind in (None, name) if name in module.calls_named else (None,):
                for function, calls in self._called_as(module, kind).items():
                    if function.name == name:
                        found.setdefault(function, []).append((module, calls))
        return found

    @kept
    def _called_as(self, module: Module, name: str | None) -> dict[Function, list[ast.Call]]:
        """What the calls of a file run, function by function: those of attributes of a name; None: of plain names, and of
        attributes that have any of the names which imports give to something."""
        called: dict[Function, list[ast.Call]] = {}
        if name is None:
            funcs = ((c, c.func) for c in module.calls())
            attributes = self._renaming
            calls = [
                c
                for c, f in funcs
                if isinstance(f, ast.Name) or (isinstance(f, ast.Attribute) and f.attr in attributes)
            ]
        else:
            named = module.calls_named[name] if name not in self._renaming else []
            calls = [c for c in named if isinstance(c.func, ast.Attribute)]
        for call in calls:
            for callee in self.callees(module, call):
                called.setdefault(callee, []).append(call)
        return called

    @cached_property
    def _renaming(self) -> set[str]:
        """Names that an import may give to what has another: `from x import a as b`."""
        return {name for m in self.modules.values() for name in m.renamed}

    def mentions(self, function: Function) -> list[tuple[Module, ast.expr]]:
        """Uses of a function that are not calls of it: it may be called from anywhere then (callbacks, `partial`). What
        sets a property runs where that is assigned, not where it is read."""
        found: list[tuple[Module, ast.expr]] = []
        for module in self.having(function.name):
            uses = module.stored_attributes(function.name) if function.setter else module.loads.get(function.name, ())
            for node in uses:
                parent = module.parents.get(node)
                if isinstance(parent, ast.Call) and parent.func is node:
                    continue
                if isinstance(parent, ast.Attribute) and parent in getattr(
                    module.parents[parent], "decorator_list", ()
                ):
                    continue  # `@level.setter`
                if function in self.definitions(module.scope_of(node), node):
                    found.append((module, node))
        return found

    def fills_self(self, function: Function, call: ast.Call) -> bool:
        """Whether a call of a method fills its first parameter by itself, as far as names tell: not `Trainer.fit(trainer, x)`."""
        if (
            not function.bound
            or function.owner is None
            or function.class_method
            or not isinstance(call.func, ast.Attribute)
        ):
            return function.bound
        on = call.func.value
        named = syntax.last(on) if isinstance(on, (ast.Name, ast.Attribute)) else ""
        return not any(named == c.name for c in self.family(function.owner))

    def arguments(self, function: Function, call: ast.Call, *, bound: bool | None = None) -> dict[str, ast.expr] | None:
        """The parameters of a function as a call fills them; None where `*args`/`**kwargs` hide that.

        `bound`: whether `self` is filled by the call itself (by default: where it is a method that `fills_self` so).
        """
        if syntax.spreads(call):
            return None
        a = function.node.args
        positional = [p.arg for p in (*a.posonlyargs, *a.args)]
        if bound is None:
            bound = self.fills_self(function, call)
        if bound and positional:
            positional = positional[1:]
        filled = dict(zip(positional, call.args, strict=False))
        filled |= {k.arg: k.value for k in call.keywords if k.arg is not None}
        return filled


def _defines(module: Module, node: ast.AST) -> bool:
    """Whether a file always comes by a definition or an import of a name."""
    stmt = module.parents[node] if isinstance(node, ast.alias) else node
    defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return isinstance(stmt, defining) and module.parents.get(stmt) is module.tree


def _in_order(module: Module, lists: list[list[ast.Call]]) -> list[ast.Call]:
    """Calls of a file in the order in which they stand there."""
    if len(lists) == 1:
        return lists[0]
    return sorted((call for calls in lists for call in calls), key=module.call_order.__getitem__)
