"""One state of a program: its modules, scopes, functions and classes, and what a name or a callee stands for.

Names are resolved by Python's scoping rules and imports, nothing else. What cannot be resolved is said to be unknown
(None, or an empty list): a check decides what it makes of that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from amp_migrate.audit import syntax

Def = ast.FunctionDef | ast.AsyncFunctionDef
_WORD = re.compile(r"[^\W\d]\w*")
Scoped = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """One namespace: a module, a function, a class body. Comprehensions count to the scope they stand in.

    `bindings` maps each name bound here to the nodes that bind it, in source order: statements, `ast.arg`, aliases,
    handlers, comprehension targets.
    """

    def __init__(self, module: Module, node: Scoped, parent: Scope | None) -> None:
        self.module = module
        self.node = node
        self.parent = parent
        own = getattr(node, "name", "<lambda>" if isinstance(node, ast.Lambda) else "")
        self.qualname: str = f"{parent.qualname}.{own}" if parent is not None and parent.qualname else own
        self.bindings: dict[str, list[ast.AST]] = {}
        self.outer: set[str] = set()  # names declared global or nonlocal
        self.function: Function | None = None
        self.cls: Class | None = None

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def binder(self, name: str) -> Scope | None:
        """The scope whose binding a read of `name` here sees; None for a builtin or an undefined name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and name not in scope.outer and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None

    def __repr__(self) -> str:
        return f"<Scope {self.module.path}:{self.qualname or 'module'}>"


class Function:
    """A function or method of the program. `owner` is the class it is a method of."""

    def __init__(self, scope: Scope, owner: Class | None) -> None:
        assert isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef)
        self.node: Def = scope.node
        self.scope = scope
        self.module = scope.module
        self.name = scope.node.name
        self.qualname = scope.qualname
        self.owner = owner
        scope.function = self

    @property
    def parameters(self) -> list[ast.arg]:
        """Named parameters in order, keyword-only ones last; without `*args` and `**kwargs`."""
        a = self.node.args
        return [*a.posonlyargs, *a.args, *a.kwonlyargs]

    @property
    def bound(self) -> bool:
        """Whether a call through an instance or the class fills the first parameter."""
        return self.owner is not None and not any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list
        )

    def __repr__(self) -> str:
        return f"<Function {self.module.path}:{self.qualname}>"


class Class:
    """A class of the program."""

    def __init__(self, scope: Scope) -> None:
        assert isinstance(scope.node, ast.ClassDef)
        self.node = scope.node
        self.scope = scope
        self.module = scope.module
        self.name = scope.node.name
        self.qualname = scope.qualname
        self.methods: dict[str, list[Function]] = {}  # several where a name is defined more than once
        scope.cls = self

    def __repr__(self) -> str:
        return f"<Class {self.module.path}:{self.qualname}>"


class Module:
    """One file: its tree, scopes and the parents of its nodes. What does not parse counts as empty."""

    def __init__(self, path: str, name: str, text: str) -> None:
        self.path = path
        self.name = name
        self.text = text
        self._scope_of: dict[ast.AST, Scope] = {}

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def words(self) -> frozenset[str]:
        """All words of the file: a name that is not among them means nothing to it. Known without parsing."""
        return frozenset(_WORD.findall(self.text))

    @cached_property
    def _reading(self) -> _Reading:
        return _Reading(self)

    @property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return self._reading.parents

    @property
    def _scopes(self) -> dict[ast.AST, Scope]:
        return self._reading.scopes

    @property
    def top(self) -> Scope:
        return self._scopes[self.tree]

    @property
    def scopes(self) -> Iterable[Scope]:
        return self._scopes.values()

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods, nested ones too, in source order."""
        found = []
        for scope in self._scopes.values():
            if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
                parent = scope.parent
                owner = self.class_of[parent.node] if parent is not None and parent.is_class else None
                function = Function(scope, owner)
                if owner is not None:
                    owner.methods.setdefault(function.name, []).append(function)
                found.append(function)
        return found

    @cached_property
    def class_of(self) -> dict[ast.AST, Class]:
        return {s.node: Class(s) for s in self._scopes.values() if s.is_class}

    @property
    def classes(self) -> Iterable[Class]:
        self.functions  # noqa: B018  (methods are filed while functions are built)
        return self.class_of.values()

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope a node is evaluated in; decorators and defaults belong outside of their function."""
        if node not in self._scope_of:
            child, at = node, self.parents.get(node)
            while at is not None and not (at in self._scopes and _inside(at, child)):
                child, at = at, self.parents.get(at)
            self._scope_of[node] = self._scopes[at] if at is not None else self.top
        return self._scope_of[node]

    def scope_for(self, node: ast.AST) -> Scope:
        """The scope that a definition opens."""
        return self._scopes[node]

    def function_around(self, node: ast.AST) -> Function | None:
        """The function in whose body a node stands (the nearest one; lambdas and class bodies are looked through)."""
        self.functions  # noqa: B018
        scope: Scope | None = self.scope_of(node)
        while scope is not None:
            if scope.function is not None:
                return scope.function
            scope = scope.parent
        return None

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement a node belongs to (itself, if it is one)."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.parents.get(at)
        return at if at is not None else self.tree.body[0]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)

    def calls(self) -> list[ast.Call]:
        """Every call, in source order."""
        return self._reading.calls

    def __repr__(self) -> str:
        return f"<Module {self.path}>"


class Program:
    """All files of a project in one state. A file is parsed when a question leads to it."""

    def __init__(
        self,
        texts: Mapping[str, str],
        known: Mapping[str, Module] | None = None,
        trees: Mapping[str, ast.Module] | None = None,
    ) -> None:
        self.modules: dict[str, Module] = {}
        names = _names(texts)
        for path, text in texts.items():
            module = (known or {}).get(path)
            if module is None or module.text != text:
                module = Module(path, names[path], text)
                if trees and path in trees:
                    module.__dict__["tree"] = trees[path]
            self.modules[path] = module
        self._known: dict[tuple[Scope, str], list[Function | Class]] = {}
        self._selves: dict[Scope, tuple[str, Class | None]] = {}
        self._homes: dict[tuple[str, Module], Module | None] = {}
        self._full_names: dict[tuple[Scope, str], str | None] = {}
        self._bases: dict[Class, list[Class]] = {}
        self._subclasses: dict[Class, list[Class]] = {}
        self._methods_named: dict[str, list[Function]] = {}
        self._called: dict[Module, dict[Function, list[ast.Call]]] = {}
        self._callers: dict[Function, list[tuple[Module, ast.Call]]] = {}
        self.by_name: dict[str, list[Module]] = {}
        for module in self.modules.values():
            parts = module.name.split(".")
            for i in range(len(parts)):  # a script's folder is on its path: `import utils` may mean pkg/utils.py
                self.by_name.setdefault(".".join(parts[i:]), []).append(module)

    # -- names ---------------------------------------------------------------------------------------------------

    @cached_property
    def _with_word(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self.modules.values():
            for word in module.words:
                found.setdefault(word, []).append(module)
        return found

    def having(self, name: str) -> Sequence[Module]:
        """The files in which a name is written, in the program's order."""
        return self._with_word.get(name, ())

    def module_named(self, dotted: str, seen_from: Module) -> Module | None:
        """The file that an absolute import means: the one nearest to the file that imports."""
        key = (dotted, seen_from)
        if key not in self._homes:
            self._homes[key] = self._home(dotted, seen_from)
        return self._homes[key]

    def _home(self, dotted: str, seen_from: Module) -> Module | None:
        if dotted.partition(".")[0] in ("apex", "torch"):
            return None  # an adapter of the program's own is often called so (`engines/apex.py`)
        found = [m for m in self.by_name.get(dotted, []) if m is not seen_from]
        if len(found) <= 1:
            return found[0] if found else None
        exact = [m for m in found if m.name == dotted]
        folder = seen_from.name.rpartition(".")[0]
        beside = [m for m in found if m.name == (f"{folder}.{dotted}" if folder else dotted)]
        return (beside or exact or sorted(found, key=lambda m: (len(m.name), m.path)))[0]

    def dotted(self, scope: Scope, expr: ast.expr) -> str | None:
        """The full external name of an expression (`torch.nn.functional.softmax`), as imports give it; else None."""
        if isinstance(expr, ast.Attribute):
            base = self.dotted(scope, expr.value)
            return f"{base}.{expr.attr}" if base is not None else None
        if not isinstance(expr, ast.Name):
            return None
        found = scope.binder(expr.id)
        if found is None:
            return None
        key = (found, expr.id)
        if key not in self._full_names:
            self._full_names[key] = self._full_name(found, expr.id)
        return self._full_names[key]

    def _full_name(self, found: Scope, bound: str) -> str | None:
        for node in found.bindings[bound]:
            name = self._imported(found.module, bound, node)
            if name is not None:
                return name
        values = [n.value for n in found.bindings[bound] if isinstance(n, ast.Assign)]
        if len(values) == len(found.bindings[bound]) and all(isinstance(v, ast.Attribute) for v in values):
            for value in values:  # F = torch.nn.functional, perhaps one of several
                if not any(isinstance(n, ast.Name) and n.id == bound for n in syntax.walk(value)):
                    return self.dotted(found, value)
        return None

    def _imported(self, module: Module, name: str, node: ast.AST) -> str | None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == name:
                    return alias.name
                if alias.asname is None and alias.name.split(".")[0] == name:
                    return name
        if isinstance(node, ast.ImportFrom):
            base = self._base(module, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{base}.{alias.name}" if base else alias.name
        return None

    def _base(self, module: Module, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.name.split(".")
        package = parts if PurePosixPath(module.path).name == "__init__.py" else parts[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])

    def definitions(self, scope: Scope, expr: ast.expr, *, guess: bool = True) -> list[Function | Class]:
        """The project's functions or classes that an expression may be; empty where none is known.

        Methods of `self` are looked for in the class, its bases and its subclasses. With `guess`, `x.name` on an unknown
        object gives the methods of that name, where at most four classes have one and the name is not a common one.
        """
        if isinstance(expr, ast.Name):
            return self._named(scope, expr.id)
        if not isinstance(expr, ast.Attribute):
            return []
        owner = self._owner(scope, expr.value)
        if owner is not None:
            return list(self.methods(owner, expr.attr))
        if isinstance(expr.value, ast.Call) and isinstance(expr.value.func, ast.Name) and expr.value.func.id == "super":
            cls = self.class_around(scope)
            return [f for base in (self.bases(cls) if cls else []) for f in self._method(base, expr.attr)]
        dotted = self.dotted(scope, expr)
        if dotted is not None:
            found = self._global(scope.module, dotted)
            if found or self.dotted(scope, expr.value) is not None:
                return found
        classes = [d for d in self.definitions(scope, expr.value, guess=False) if isinstance(d, Class)]
        if classes:  # Class.method
            return [f for c in classes for f in self._method(c, expr.attr)]
        if guess and expr.attr not in COMMON:
            methods = self.methods_named(expr.attr)
            if len({m.owner for m in methods}) <= 4:
                return list(methods)
        return []

    def _named(self, scope: Scope, name: str) -> list[Function | Class]:
        found = scope.binder(name)
        if found is None:
            return self._starred(scope.module, name)
        if (found, name) not in self._known:
            self._known[found, name] = []  # what a name is while it is being found out: `a = b.c; b = a.d` ends
            self._known[found, name] = self._bound(found, name)
        return self._known[found, name]

    def _starred(self, module: Module, name: str) -> list[Function | Class]:
        """What a name is that only `from x import *` can have brought."""
        key = (module.top, name)
        if key not in self._known:
            self._known[key] = []
            stars = [
                n for n in module.tree.body if isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names)
            ]
            self._known[key] = [d for n in stars for d in self._global(module, f"{self._base(module, n)}.{name}")]
        return self._known[key]

    def _bound(self, found: Scope, name: str) -> list[Function | Class]:
        result: list[Function | Class] = []
        for node in found.bindings[name]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                result.append(self.function_of(found.module, node))
            elif isinstance(node, ast.ClassDef):
                result.append(found.module.class_of[node])
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
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
        home = self.module_named(head, module)
        if home is not None:
            result: list[Function | Class] = []
            for node in home.top.bindings.get(last, ()):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    result.append(self.function_of(home, node))
                elif isinstance(node, ast.ClassDef):
                    result.append(home.class_of[node])
                elif isinstance(node, ast.ImportFrom | ast.Import):
                    further = self._imported(home, last, node)
                    if further is not None and further != dotted:
                        result += self._global(home, further, depth + 1)
            if not result:
                for node in home.tree.body:
                    if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                        result += self._global(home, f"{self._base(home, node)}.{last}", depth + 1)
            return result
        classes = self._global(module, head, depth + 1)
        return [f for c in classes if isinstance(c, Class) for f in self._method(c, last)]

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

    def _owner(self, scope: Scope, expr: ast.expr) -> Class | None:
        """The class of which an expression is `self` or `cls`."""
        if not isinstance(expr, ast.Name):
            return None
        at: Scope | None = scope.binder(expr.id)
        if at is None or not isinstance(at.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        if at not in self._selves:
            function = self.function_of(at.module, at.node)
            parameters = function.parameters if function.owner is not None and function.bound else []
            self._selves[at] = (parameters[0].arg, function.owner) if parameters else ("", None)
        name, owner = self._selves[at]
        return owner if name == expr.id else None

    def is_self(self, scope: Scope, expr: ast.expr) -> Class | None:
        """The class whose instance (`self`) a name is here."""
        return self._owner(scope, expr)

    def bases(self, cls: Class) -> list[Class]:
        """Direct bases that are classes of the program."""
        if cls not in self._bases:
            self._bases[cls] = []  # what they are while it is being found out: `class B(A.Config)` asks for A's bases
            outside = cls.scope.parent or cls.scope
            found = [d for b in cls.node.bases for d in self.definitions(outside, b, guess=False)]
            self._bases[cls] = [d for d in found if isinstance(d, Class) and d is not cls]
        return self._bases[cls]

    def subclasses(self, cls: Class) -> list[Class]:
        """Classes of the program that name this one as a base."""
        if cls not in self._subclasses:
            near = self.having(cls.name)
            self._subclasses[cls] = [c for m in near for c in m.classes if c is not cls and cls in self.bases(c)]
        return self._subclasses[cls]

    def family(self, cls: Class) -> list[Class]:
        """The class, its bases and its subclasses in the program, all the way: an instance may be any of the last."""
        up, down = [cls], [cls]
        for c in up:
            up += [b for b in self.bases(c) if b not in up]
        for c in down:
            down += [s for s in self.subclasses(c) if s not in down]
        return [*up, *(d for d in down if d not in up)]

    def external_bases(self, cls: Class) -> list[str]:
        """Full names of the bases (of it and of its bases) that are not of the program; unresolved ones as written."""
        names: list[str] = []
        for c in self.family_up(cls):
            for base in c.node.bases:
                if not any(
                    isinstance(d, Class) for d in self.definitions(c.scope.parent or c.scope, base, guess=False)
                ):
                    names.append(self.dotted(c.scope.parent or c.scope, base) or syntax.text(base))
        return names

    def family_up(self, cls: Class) -> list[Class]:
        up = [cls]
        for c in up:
            up += [b for b in self.bases(c) if b not in up]
        return up

    @cached_property
    def classes(self) -> list[Class]:
        return [c for m in self.modules.values() for c in m.classes]

    def _method(self, cls: Class, name: str, seen: frozenset[Class] = frozenset()) -> list[Function]:
        """The definitions of a method as a class has it: its own, else its bases'."""
        cls.module.functions  # noqa: B018
        if name in cls.methods or cls in seen:
            return cls.methods.get(name, [])
        for base in self.bases(cls):
            found = self._method(base, name, seen | {cls})
            if found:
                return found
        return []

    def methods(self, cls: Class, name: str) -> list[Function]:
        """What `self.name` may be in a class: its own or inherited definition, and those of its subclasses."""
        found = list(self._method(cls, name))
        for sub in self.family(cls):
            if cls in self.family_up(sub) and sub is not cls:
                found += [f for f in sub.methods.get(name, []) if f not in found]
        return found

    @cached_property
    def functions(self) -> list[Function]:
        return [f for m in self.modules.values() for f in m.functions]

    def methods_named(self, name: str) -> list[Function]:
        """The methods of a name, of whatever class."""
        if name not in self._methods_named:
            written = re.compile(rf"def\s+{re.escape(name)}\b")
            near = [m for m in self.having(name) if written.search(m.text)]
            self._methods_named[name] = [f for m in near for f in m.functions if f.name == name and f.owner is not None]
        return self._methods_named[name]

    # -- calls ---------------------------------------------------------------------------------------------------

    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        """The project's functions that a call may run; a class gives its `__init__`, an unknown object nothing."""
        found: list[Function] = []
        for d in self.definitions(module.scope_of(call), call.func):
            found += [d] if isinstance(d, Function) else self._method(d, "__init__")
        return found

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Every call in the program that may run a function."""
        if function not in self._callers:
            names = {function.name}
            if function.name == "__init__" and function.owner is not None:
                names |= {c.name for c in self.family(function.owner)}
            found = []
            for module in self.modules.values():
                if not names.isdisjoint(module.words):  # whatever it is called there, that file imports it by name
                    found += [(module, call) for call in self._calls_in(module).get(function, ())]
            self._callers[function] = found
        return self._callers[function]

    def _calls_in(self, module: Module) -> dict[Function, list[ast.Call]]:
        """The calls of a file by the functions that they may run."""
        if module not in self._called:
            called: dict[Function, list[ast.Call]] = {}
            for call in module.calls():
                for function in self.callees(module, call):
                    called.setdefault(function, []).append(call)
            self._called[module] = called
        return self._called[module]

    def mentions(self, function: Function) -> list[tuple[Module, ast.expr]]:
        """Uses of a function that are not calls of it: it may be called from anywhere then (callbacks, `partial`)."""
        found: list[tuple[Module, ast.expr]] = []
        for module in self.having(function.name):
            for node in syntax.walk(module.tree):
                if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                    continue
                if (node.id if isinstance(node, ast.Name) else node.attr) != function.name:
                    continue
                parent = module.parents.get(node)
                if isinstance(parent, ast.Call) and parent.func is node:
                    continue
                if function in self.definitions(module.scope_of(node), node):
                    found.append((module, node))
        return found

    def arguments(self, function: Function, call: ast.Call, *, bound: bool | None = None) -> dict[str, ast.expr] | None:
        """The parameters of a function as a call fills them; None where `*args`/`**kwargs` hide that.

        `bound`: whether `self` is filled by the call itself (by default: where it is a method called on an object).
        """
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        a = function.node.args
        positional = [p.arg for p in (*a.posonlyargs, *a.args)]
        if bound is None:
            bound = function.bound
        if bound and positional:
            positional = positional[1:]
        filled = dict(zip(positional, call.args, strict=False))
        filled |= {k.arg: k.value for k in call.keywords if k.arg is not None}
        return filled


# Methods so common that an unknown receiver says nothing about which class is meant.
COMMON = frozenset(
    "append add get items keys values update pop copy close open read write join split format strip run start stop step "
    "zero_grad backward forward train eval to cuda cpu half float double state_dict load_state_dict parameters modules "
    "named_parameters apply size view reshape item detach mean sum max min log info debug warning error save load reset "
    "set put next send name type clone __init__ __call__ __getitem__ __len__ call encode decode".split()
)


def _names(texts: Mapping[str, str]) -> dict[str, str]:
    names = {}
    for path in texts:
        parts = list(PurePosixPath(path.replace("\\", "/")).with_suffix("").parts)
        parts = [p for p in parts if p not in ("/", "..", ".")]
        if parts and parts[-1] == "__init__":
            parts = parts[:-1]
        names[path] = ".".join(parts)
    return names


def _inside(scoped: ast.AST, child: ast.AST) -> bool:
    """Whether a direct child of a definition is evaluated in the scope that the definition opens."""
    if isinstance(scoped, ast.Module):
        return True
    if isinstance(scoped, ast.Lambda):
        return child is scoped.body or isinstance(child, ast.arguments)
    if isinstance(scoped, ast.ClassDef):
        return any(child is s for s in scoped.body)
    if isinstance(scoped, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(child is s for s in scoped.body)
    return False


class _Reading:
    """What one pass over a module finds: the parent of each node, the scopes with all that they bind, the calls.

    A name is bound by its statement, or by the comprehension or the `:=` that it stands in.
    """

    def __init__(self, module: Module) -> None:
        parents = self.parents = dict[ast.AST, ast.AST]()
        self.scopes: dict[ast.AST, Scope] = {}
        self.calls: list[ast.Call] = []
        top = self.scopes[module.tree] = Scope(module, module.tree, None)
        stack: list[tuple[ast.AST, Scope, ast.AST]] = [(n, top, n) for n in reversed(module.tree.body)]
        self.parents.update((n, module.tree) for n in module.tree.body)
        while stack:
            node, scope, binder = stack.pop()
            kind = type(node)
            if kind is ast.Name:
                if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                    _bind(scope, node.id, binder)  # type: ignore[attr-defined]
                continue
            if kind is ast.Call:
                self.calls.append(node)  # type: ignore[arg-type]
            elif isinstance(node, _BINDERS):
                binder = node
                if isinstance(node, _DEFINING):
                    _bind_definition(scope, node)
            elif kind is ast.ExceptHandler and node.name:  # type: ignore[attr-defined]
                _bind(scope, node.name, node)  # type: ignore[attr-defined]
            inner = scope
            if isinstance(node, _OPENING):
                inner = self.scopes[node] = Scope(module, node, scope)
                if not isinstance(node, ast.ClassDef):
                    a = node.args
                    extra = [x for x in (a.vararg, a.kwarg) if x is not None]
                    for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, *extra):
                        _bind(inner, arg.arg, arg)
            children = syntax.children(node)
            for child in children:
                parents[child] = node
            if inner is scope:
                stack += [(c, scope, binder) for c in reversed(children)]
            else:
                stack += [(c, inner if _inside(node, c) else scope, binder) for c in reversed(children)]


_BINDERS = (ast.stmt, ast.comprehension, ast.NamedExpr)
_OPENING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)


def _bind_definition(scope: Scope, node: ast.stmt) -> None:
    if isinstance(node, ast.Global | ast.Nonlocal):
        scope.outer.update(node.names)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            _bind(scope, (alias.asname or alias.name).split(".")[0], node)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                _bind(scope, alias.asname or alias.name, node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        _bind(scope, node.name, node)


def _bind(scope: Scope, name: str, node: ast.AST) -> None:
    if name in scope.outer:
        at: Scope | None = scope.parent
        while at is not None:
            scope = at
            if name in at.bindings and not at.is_class:
                break
            at = at.parent
    nodes = scope.bindings.setdefault(name, [])
    if not nodes or nodes[-1] is not node:
        nodes.append(node)
