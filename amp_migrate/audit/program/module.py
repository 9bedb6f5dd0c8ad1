"""One file of a program: its tree, its scopes with all that they bind, its functions, classes and calls."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.lifted import meant_for_all
from amp_migrate.audit.program.scope import Class as Class
from amp_migrate.audit.program.scope import Def as Def
from amp_migrate.audit.program.scope import Function as Function
from amp_migrate.audit.program.scope import Scope as Scope
from amp_migrate.audit.program.scope import Scoped as Scoped
from amp_migrate.audit.program.spelled import Spelled, renamed

_AS = re.compile(r"as(?<!\was)[ \t\\\n]+(\w+)")  # begins with letters, which are searched for faster than a boundary
_STAR = re.compile(r"import[ \t\\\r\n(]*\*")
_DEF = re.compile(r"def[ \t\f\\\r\n]+(\w+)")
_WORD = re.compile(r"\w+")
_BETWEEN_WORDS = {n: " " for n in range(128) if not (chr(n).isalnum() or chr(n) == "_")}
BLOCKS = ("body", "orelse", "finalbody")
CLASS_TESTS = ("isinstance", "issubclass")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Module:
    """One file: its tree, scopes and the parents of its nodes. What does not parse counts as empty."""

    def __init__(self, path: str, name: str, text: str) -> None:
        self.path = path
        self.name = name
        self.text = Spelled(text)

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def lines(self) -> list[str]:
        # Where Python ends lines: str.splitlines also does at form feeds and at separators in comments and strings.
        return re.split(r"\r\n|\r|\n", self.text)

    def source(self, stmt: ast.stmt) -> str:
        """The lines that a statement stands on, with those of its decorators."""
        first = min([stmt.lineno, *(d.lineno for d in getattr(stmt, "decorator_list", ()))])
        return "\n".join(self.lines[first - 1 : stmt.end_lineno])

    @property
    def read(self) -> str:
        """The text with its names in the letters that Python reads, which is what patterns are looked for in."""
        return self.text.read

    @cached_property
    def words(self) -> frozenset[str]:
        """All words of the file: a name that is not among them means nothing to it. Known without parsing."""
        text = self.read
        return frozenset(text.translate(_BETWEEN_WORDS).split() if text.isascii() else _WORD.findall(text))

    @cached_property
    def aliases(self) -> dict[str, set[str]]:
        """The names that the file gives to what has another: `from x import a as b`, `b = x.a`."""
        return renamed(self.text)

    @cached_property
    def renamed(self) -> frozenset[str]:
        """Names that follow an `as`."""
        return frozenset(_AS.findall(self.read))

    @cached_property
    def defined(self) -> frozenset[str]:
        """Names that follow a `def`."""
        return frozenset(_DEF.findall(self.read))

    @cached_property
    def _reading(self) -> _Reading:
        return _Reading(self)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return self._reading.parents

    @cached_property
    def _scopes(self) -> dict[ast.AST, Scope]:
        return self._reading.scopes

    @cached_property
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
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                parent = scope.parent
                owner = self.class_of[parent.node] if parent is not None and parent.is_class else None
                function = Function(scope, owner)
                if owner is not None:
                    owner.filed.setdefault(function.name, []).append(function)
                found.append(function)
        return found

    @cached_property
    def class_of(self) -> dict[ast.AST, Class]:
        return {s.node: Class(s) for s in self._scopes.values() if s.is_class}

    @property
    def classes(self) -> Iterable[Class]:
        return self.class_of.values()

    @cached_property
    def scope_of(self) -> Callable[[ast.AST], Scope]:
        """The scope a node is evaluated in; decorators and defaults belong outside of their function."""
        return self._reading.scope_of.__getitem__

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

    def around(self, node: ast.AST) -> ast.Module | Def:
        """The function in whose body a node stands, as it is written; the file, where it stands in none."""
        function = self.function_around(node)
        return function.node if function is not None else self.tree

    def name_around(self, node: ast.AST) -> str:
        """What the function around a node is called; "" where there is none."""
        function = self.function_around(node)
        return function.qualname if function is not None else ""

    def beside(self, stmt: ast.AST) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The statements before and after one in its own block; none, where it stands in no such block."""
        holder = self.parents.get(stmt)
        for name in BLOCKS:
            block = getattr(holder, name, None)
            if isinstance(block, list) and stmt in block:
                at = block.index(stmt)
                return block[:at], block[at + 1 :]
        return [], []

    def following(self, stmt: ast.AST) -> list[ast.stmt]:
        """The statements after one in its own block."""
        return self.beside(stmt)[1]

    def above(self, node: ast.AST) -> Iterator[ast.stmt]:
        """The statements before a node in its own block and in those around it, within one function."""
        yield from self.beside(node)[0]
        for at in self.ancestors(node):
            if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                return
            yield from self.beside(at)[0]

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

    def only_asked(self, node: ast.AST) -> bool:
        """Whether a class only stands in a question or an annotation: `isinstance(m, FusedLayerNorm)`."""
        child = node
        for at in self.ancestors(node):
            if isinstance(at, ast.Call):
                return child is not at.func and isinstance(at.func, ast.Name) and at.func.id in CLASS_TESTS
            if isinstance(at, (ast.Compare, ast.arg)):
                return True
            if not isinstance(at, (ast.Tuple, ast.List)):
                return False
            child = at
        return False

    def calls(self) -> list[ast.Call]:
        """Every call, in source order."""
        return self._reading.calls

    def assigning(self) -> list[ast.AST]:
        """Every statement, comprehension and `:=`, in source order: whatever may give a name a value."""
        return self._reading.binders

    @cached_property
    def stars(self) -> list[ast.ImportFrom]:
        """The imports of all names of another file."""
        nodes = self.assigning() if _STAR.search(self.text) else ()
        return [n for n in nodes if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]

    def unbound(self, expr: ast.expr) -> bool:
        """Whether an expression is a name that nothing gives a value: what comes to it ends in a NameError."""
        if not isinstance(expr, ast.Name) or self.stars or not self.words.isdisjoint(("globals", "exec")):
            return False
        return not hasattr(builtins, expr.id) and self.scope_of(expr).binder(expr.id) is None

    @cached_property
    def call_order(self) -> dict[ast.Call, int]:
        return {call: i for i, call in enumerate(self.calls())}

    @cached_property
    def calls_named(self) -> dict[str, list[ast.Call]]:
        """Every call, by the last name of what is called; "" where it has none."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls():
            func = call.func
            found.setdefault(syntax.last(func), []).append(call)
        return found

    @kept
    def method_calls(self, name: str) -> list[tuple[ast.Call, ast.expr]]:
        """The calls of methods of a name, each with what it is called on. Without that word a file is not parsed for it."""
        named = self.calls_named.get(name, ()) if name in self.words else ()
        return [(call, call.func.value) for call in named if isinstance(call.func, ast.Attribute)]

    @cached_property
    def loads(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Names and attributes that are read, by the last name of each."""
        found: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in syntax.walk(self.tree):
            if type(node) is ast.Name:
                name = node.id
            elif type(node) is ast.Attribute:
                name = node.attr
            else:
                continue
            if type(node.ctx) is ast.Load:
                if name in found:
                    found[name].append(node)
                else:
                    found[name] = [node]
        return found

    def stored_attributes(self, name: str) -> list[ast.Attribute]:
        """Attributes of a name that are assigned."""
        return [n for n in syntax.every(self.tree, ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Store)]

    def __repr__(self) -> str:
        return f"<Module {self.path}>"


def _inside(scoped: ast.AST, child: ast.AST) -> bool:
    """Whether a direct child of a definition is evaluated in the scope that the definition opens."""
    if isinstance(scoped, ast.Module):
        return True
    if isinstance(scoped, ast.Lambda):
        return child is scoped.body or isinstance(child, ast.arguments)
    return isinstance(scoped, _NAMED) and isinstance(child, ast.stmt)


class _ScopeOf(dict[ast.AST, Scope]):
    def __init__(self, top: Scope) -> None:
        self.top = top

    def __missing__(self, node: ast.AST) -> Scope:
        return self.top  # the tree itself, and what stands in no file


class _Reading:
    """What one pass over a module finds: the parent of each node, the scopes with all that they bind, the calls.

    A name is bound by its statement, or by the comprehension or the `:=` that it stands in.
    """

    def __init__(self, module: Module) -> None:
        parents = self.parents = dict[ast.AST, ast.AST]()
        self.scopes: dict[ast.AST, Scope] = {}
        self.calls: list[ast.Call] = []
        self.binders: list[ast.AST] = []
        top = self.scopes[module.tree] = Scope(module, module.tree, None)
        scope_of = self.scope_of = _ScopeOf(top)
        stack: list[tuple[ast.AST, Scope, ast.AST]] = [(n, top, n) for n in reversed(module.tree.body)]
        parents.update((n, module.tree) for n in module.tree.body)
        while stack:
            node, scope, binder = stack.pop()
            scope_of[node] = scope
            kind = type(node)
            if kind is ast.Name:
                if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                    _bind(scope, node.id, binder)  # type: ignore[attr-defined]
                continue
            if kind is ast.Call:
                self.calls.append(node)  # type: ignore[arg-type]
            elif kind in _BINDERS:
                binder = node
                self.binders.append(node)
                if kind in _DEFINING:
                    _bind_definition(scope, node)  # type: ignore[arg-type]
            elif kind is ast.ExceptHandler and node.name:  # type: ignore[attr-defined]
                _bind(scope, node.name, node)  # type: ignore[attr-defined]
            inner = scope
            if kind in _OPENING:
                inner = self.scopes[node] = Scope(module, node, scope)  # type: ignore[arg-type]
                if kind is not ast.ClassDef:
                    a: ast.arguments = node.args  # type: ignore[attr-defined]
                    extra = [x for x in (a.vararg, a.kwarg) if x is not None]
                    for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, *extra):
                        _bind(inner, arg.arg, arg)
            for child in reversed(syntax.children(node)):
                parents[child] = node
                kind = type(child)
                within = scope if inner is scope or not _inside(node, child) else inner
                if kind is ast.Constant or (kind is ast.Name and type(child.ctx) is ast.Load):  # type: ignore[attr-defined]
                    scope_of[child] = within  # nothing else to be learned, and half of all nodes
                    continue
                stack.append((child, within, binder))
        if {"apex", "initialize"} <= module.words and module.words.isdisjoint(("globals", "exec")):
            attributes = (n for n in parents if isinstance(n, ast.Attribute))
            for scope, name in meant_for_all(self.scopes.values(), attributes, scope_of):
                _bind_outside(scope, name)


_BINDERS = frozenset((*ast.stmt.__subclasses__(), ast.comprehension, ast.NamedExpr))
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OPENING = frozenset((*_NAMED, ast.Lambda))
_DEFINING = frozenset((*_NAMED, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal))


def _bind_definition(scope: Scope, node: ast.stmt) -> None:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        if not isinstance(scope.node, ast.Module):  # in the file's own code it says nothing
            for name in node.names:
                _bind_outside(scope, name)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            _bind(scope, (alias.asname or alias.name).split(".")[0], node)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                _bind(scope, alias.asname or alias.name, node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        _bind(scope, node.name, node)


def _bind_outside(scope: Scope, name: str) -> None:
    """Take a name of a function for one of what is around it; an import that came before binds that as well."""
    scope.outer.add(name)
    for bound in scope.bindings.pop(name, ()):
        _bind(scope, name, bound)


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
