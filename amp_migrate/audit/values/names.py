"""Under which names a value may be known: which name hands on to which, told apart by nothing but the name.

Far too much flows here, but it is cheap: it says where a precise question is worth asking.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeGuard

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.syntax import own
from amp_migrate.audit.program.targets import assignments, put_later, set_by_name

# What options are kept in.
OPTIONS = frozenset("args opt opts cfg config conf hparams hps flags FLAGS params hyp configs options".split())


class Names:
    """The flow of values between names in one state of a program."""

    def __init__(self, program: Program, modules: Sequence[Module]) -> None:
        self.program = program
        self.modules = modules

    @cached_property
    def _edges(self) -> dict[str, set[str]]:
        edges: dict[str, set[str]] = {}
        parameters = self._parameters()
        for module in self.modules:
            own, given = _handed(module)
            for source, names in own.items():
                edges.setdefault(source, set()).update(names)
            for source, callee, i in given:
                edges.setdefault(source, set()).update(p[i] for p in parameters.get(callee, ()) if i < len(p))
        for made in (f for f in self._functions if f.name == "__init_subclass__" and f.owner is not None):
            for cls in self.program.below(made.owner) if made.owner is not None else ():
                edges.setdefault(cls.name, set()).update(p.arg for p in made.parameters[:1])
        return edges

    @property
    def _functions(self) -> Iterator[Function]:
        return (f for m in self.modules for f in m.functions)

    def _parameters(self) -> dict[str, list[list[str]]]:
        found: dict[str, list[list[str]]] = {}
        for function in self._functions:
            names = [p.arg for p in function.parameters]
            called = function.name
            if function.bound:
                names = names[1:]
                if called == "__init__" and function.owner is not None:
                    called = function.owner.name
            found.setdefault(called, []).append(names)
        for module in self.modules:
            for node in syntax.every(module.tree, ast.Lambda):
                at = module.parents.get(node)
                given = len(at.args) - 1 if binds_alone(at) else 0
                for name in kept_under(module, node):
                    found.setdefault(name, []).append([p.arg for p in node.args.args[given:]])
        return found

    def reached(self, start: Iterable[str]) -> Reached:
        """All names that values known under these may get."""
        known = frozenset(start)
        numbers, closure = self._closure
        bits = 0
        for name in known:
            bits |= closure.get(name, 0)
        return Reached(known, numbers, bits)

    @cached_property
    def _closure(self) -> tuple[dict[str, int], dict[str, int]]:
        """A number for each name, and what is reached from each as the bits of these: one answer for all names that reach
        each other (Tarjan's strongly connected components, those first that lead nowhere further)."""
        edges = self._edges
        number: dict[str, int] = {}
        low: dict[str, int] = {}
        waiting: list[str] = []
        reach: dict[str, int] = {}
        path: list[tuple[str, Iterator[str]]] = []

        def open_(name: str) -> None:
            number[name] = low[name] = len(number)
            waiting.append(name)
            path.append((name, iter(edges.get(name, ()))))

        for root in edges:
            if root not in number:
                open_(root)
            while path:
                at, rest = path[-1]
                for to in rest:
                    if to not in number:
                        open_(to)
                        break
                    if to not in reach:
                        low[at] = min(low[at], number[to])
                else:
                    path.pop()
                    if path:
                        low[path[-1][0]] = min(low[path[-1][0]], low[at])
                    if low[at] == number[at]:
                        group: list[str] = []
                        bits = 0
                        while at not in group[-1:]:
                            group.append(waiting.pop())
                            bits |= 1 << number[group[-1]]
                            for to in edges.get(group[-1], ()):
                                bits |= reach.get(to, 0)
                        reach |= dict.fromkeys(group, bits)
        return number, reach


class Reached:
    """Some names, and all that are reached from them."""

    def __init__(self, names: frozenset[str], numbers: dict[str, int], bits: int) -> None:
        self._names = names
        self._numbers = numbers
        self._bits = bits

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            return True
        number = self._numbers.get(name)  # type: ignore[call-overload]
        return number is not None and bool(self._bits >> number & 1)


@kept  # for most files are the same before and after
def _handed(module: Module) -> tuple[dict[str, set[str]], set[tuple[str, str, int]]]:
    """Which name hands on to which within a file, and as which argument of which function."""
    edges: dict[str, set[str]] = {}
    given: set[tuple[str, str, int]] = set()
    for target, value, _ in assignments(module):
        name = last_name(target)
        if value is not None and name is not None:
            given_self = syntax.given(value) if type(value) is ast.Call else (value,)
            for source in (*handed_on(value), *(own for v in given_self for own in _own_class(module, v))):
                edges.setdefault(source, set()).add(name)
    for call in module.calls():
        callee = last_name(call.func)
        for i, arg in enumerate(call.args):
            for source in _own_class(module, arg) or handed_on(arg):
                edges.setdefault(source, set())
                if callee is not None:
                    given.add((source, callee, i))
        for keyword in call.keywords:
            if keyword.arg is not None:
                for source in handed_on(keyword.value):
                    edges.setdefault(source, set()).add(keyword.arg)
    for name, puts in put_later(module).items():
        for source in (source for put in puts for source in handed_on(put.value)):
            edges.setdefault(source, set()).add(name)
    for _, name, value in set_by_name(module):
        for source in handed_on(value):
            edges.setdefault(source, set()).add(name)
    for function in module.functions:
        for name, value in function.defaults.items():
            for source in handed_on(value):
                edges.setdefault(source, set()).add(name)
    for inner in module.functions:  # which a decorator that is called gives back
        outer = inner.scope.parent.function if inner.scope.parent is not None else None
        if outer is not None:
            edges.setdefault(outer.name, set()).update(p.arg for p in inner.parameters)
    definitions: list[Function | Class] = [*module.functions, *module.classes]
    for definition in definitions:
        for decorator in definition.node.decorator_list:
            called = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            edges.setdefault(definition.name, set()).update((called,) if called is not None else ())
            given.add((definition.name, called or "", 0))
    for mapping in syntax.every(module.tree, ast.Dict):  # which is unpacked, or asked for its items by name
        for key, value in zip(mapping.keys, mapping.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                for source in handed_on(value):
                    edges.setdefault(source, set()).add(key.value)
    for function in module.functions:
        given_back = [n.value for n in own(function.node, ast.Return)]
        for result in (*given_back, *(n.value for n in own(function.node, ast.Yield))):
            if result is not None:
                for source in handed_on(result):
                    edges.setdefault(source, set()).add(function.name)
    return edges, given


def _own_class(module: Module, arg: ast.expr) -> tuple[str, ...]:
    """The class whose method hands its object on: `evaluate(self, loader)`."""
    around = module.function_around(arg) if type(arg) is ast.Name and arg.id == "self" else None
    return (around.owner.name,) if around is not None and around.owner is not None else ()


def binds_alone(at: ast.AST | None) -> TypeGuard[ast.Call]:
    """Whether a call runs nothing of what it is given, and only binds arguments to it: `partial(lambda k, x: ..., 2)`."""
    return isinstance(at, ast.Call) and last_name(at.func) == "partial"


def bound(value: ast.AST) -> ast.AST:
    """What a value runs where it is called: what is bound in it, or itself."""
    return value.args[0] if binds_alone(value) and value.args else value


def kept_under(module: Module, held: ast.Lambda) -> set[str]:
    """The names that a lambda is given where it stands: of a variable, of an argument, of an item."""
    value: ast.expr = held
    at = module.parents.get(held)
    if binds_alone(at):
        value, at = at, module.parents.get(at)
    if isinstance(at, ast.keyword):
        return {at.arg} if at.arg is not None else set()
    if isinstance(at, ast.Dict):
        keys = [key for key, v in zip(at.keys, at.values, strict=True) if v is value]
        return {k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    return {n for t in at.targets if (n := last_name(t)) is not None} if isinstance(at, ast.Assign) else set()


def calls_by_name(program: Program, module: Module, held: ast.Lambda) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of the names that a lambda is kept under; these may be other things' names, too."""
    for name in sorted(kept_under(module, held)):
        for where in program.having(name):
            items = (c for c in where.calls_named.get("", ()) if last_name(c.func) == name)  # `scores["best"](x)`
            for call in (*where.calls_named.get(name, ()), *items):
                yield where, call


def last_name(expr: ast.expr) -> str | None:
    """`b` of `a.b`, of `a["b"]`, of `b[0]`."""
    if type(expr) is ast.Name:
        return expr.id
    if type(expr) is ast.Attribute:
        return expr.attr
    if type(expr) is ast.Subscript:
        key = expr.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else last_name(expr.value)
    return last_name(expr.value) if type(expr) is ast.Starred else None


def is_option(value: ast.expr) -> bool:
    """Whether a value is an option, which may be called as a network is: `args.bert_model` is the name of one."""
    return isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in OPTIONS


def handed_on(expr: ast.expr) -> Iterable[str]:
    """Names whose values an expression may hand on."""
    if type(expr) is ast.Constant:
        return ()
    if type(expr) is ast.Name:
        return (expr.id,) if expr.id != "self" else ()
    return _handed_on(expr)


def _handed_on(expr: ast.expr) -> Iterator[str]:
    name = last_name(expr)
    if name is not None:
        if name != "self":
            yield name
        if isinstance(expr, ast.Subscript):
            yield from handed_on(expr.value)
        return
    inner: list[ast.expr | None] = []
    if type(expr) is ast.Call:
        inner = [*syntax.given(expr)]
        callee = last_name(expr.func)
        if callee is not None:
            yield callee
        if type(expr.func) is ast.Attribute:
            inner.append(expr.func.value)
        elif isinstance(expr.func, (ast.Subscript, ast.Call)):  # {"a": A}[name](...), getattr(nets, name)(...)
            inner.append(expr.func)
    elif isinstance(expr, ast.Subscript):
        inner = [expr.value]
    elif isinstance(expr, ast.Lambda):
        inner = [expr.body]
    elif isinstance(expr, ast.IfExp):
        inner = [expr.body, expr.orelse]
    elif isinstance(expr, ast.BoolOp):
        inner = list(expr.values)
    elif isinstance(expr, (ast.Tuple, ast.List, ast.Set)):
        inner = list(expr.elts)
    elif isinstance(expr, ast.Dict):
        inner = list(expr.values)
    elif isinstance(expr, (ast.Await, ast.NamedExpr, ast.Starred)):
        inner = [expr.value]
    elif isinstance(expr, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        inner = [expr.value if isinstance(expr, ast.DictComp) else expr.elt]
    elif isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.BitOr):  # of two dictionaries
        inner = [expr.left, expr.right]
    for part in inner:
        if part is not None:
            yield from handed_on(part)


def in_turn(body: ast.AST, held: Callable[[str], object]) -> set[str]:
    """What loops make of what an object holds: `for layer in self.layers`."""
    return {
        name.id
        for loop in syntax.walk(body)
        if isinstance(loop, (ast.For, ast.comprehension))
        and any(syntax.text(n.value) == "self" and held(n.attr) for n in syntax.every(loop.iter, ast.Attribute))
        for name in syntax.every(loop.target, ast.Name)
    }
