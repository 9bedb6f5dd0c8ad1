"""Walking a syntax tree: `ast.iter_child_nodes` and `ast.walk`, less what says nothing (contexts and operators), in a
third of the time."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# Fields that hold no statement, expression or clause.
_BARE = frozenset("ctx op ops id attr kind type_comment level is_async simple conversion module asname rest".split())


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = tuple(name for name in kind._fields if name not in _BARE)
        return self[kind]


_FIELDS = _Fields()


_LEAVES = frozenset({ast.Name, ast.Constant, ast.arg, ast.alias})

# What most nodes are, without asking each field what it holds.
_QUICK: dict[type[ast.AST], Callable[[Any], list[ast.AST]]] = {
    ast.Name: lambda n: [],
    ast.Constant: lambda n: [],
    ast.Attribute: lambda n: [n.value],
    ast.Call: lambda n: [n.func, *n.args, *n.keywords],
    ast.keyword: lambda n: [n.value],
    ast.Expr: lambda n: [n.value],
    ast.Assign: lambda n: [*n.targets, n.value],
    ast.Subscript: lambda n: [n.value, n.slice],
    ast.Tuple: lambda n: [*n.elts],
    ast.List: lambda n: [*n.elts],
    ast.BinOp: lambda n: [n.left, n.right],
    ast.UnaryOp: lambda n: [n.operand],
    ast.Compare: lambda n: [n.left, *n.comparators],
    ast.Return: lambda n: [n.value] if n.value is not None else [],
    ast.arg: lambda n: [n.annotation] if n.annotation is not None else [],
}


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below a node, in the order of its fields."""
    quick = _QUICK.get(node.__class__)
    if quick is not None:
        return quick(node)
    found: list[ast.AST] = []
    values = node.__dict__
    for name in _FIELDS[node.__class__]:
        value = values.get(name)
        if value.__class__ is list:
            found += [v for v in value if isinstance(v, ast.AST)]
        elif value is not None and isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """A node and all below it, level by level. A statement keeps the answer: rule after rule asks."""
    found: list[ast.AST] | None = node.__dict__.get("_walked")
    if found is None:
        found = [node]
        for current in found:
            if type(current) not in _LEAVES:
                found += children(current)
        if isinstance(node, ast.stmt):
            node._walked = found  # type: ignore[attr-defined]
    return found


def reached(starts: Iterable[T], further: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Some things and all that they lead to, by way of others too, the nearest first."""
    found = list(dict.fromkeys(starts))
    seen = set(found)
    for each in found:
        yield each
        for more in further(each):
            if more not in seen:
                seen.add(more)
                found.append(more)


def within_apex(name: str | None) -> bool:
    """Whether a dotted name is Apex or something in it."""
    return name is not None and name.split(".")[0] == "apex"


def brings_only_apex(stmt: ast.stmt) -> bool:
    """Whether a statement imports something of Apex's and nothing else."""
    if isinstance(stmt, ast.Import):
        return all(within_apex(a.name) for a in stmt.names)
    return isinstance(stmt, ast.ImportFrom) and not stmt.level and within_apex(stmt.module)


def own_nodes(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a body, without the insides of the functions and classes that it defines."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += children(node)


def values_returned(body: Iterable[ast.stmt]) -> list[ast.expr]:
    """What the `return`s of a body give."""
    return [n.value for n in own_nodes(body) if isinstance(n, ast.Return) and n.value is not None]


def root_of(node: ast.expr) -> ast.expr:
    """What attributes are read of: `self` of `self.net.encoder`; anything else stands for itself."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def identifiers(*nodes: ast.AST) -> set[str]:
    """The names that stand in some nodes."""
    return {n.id for node in nodes for n in walk(node) if isinstance(n, ast.Name)}


def names_stored(*nodes: ast.AST) -> set[str]:
    """The names that are given something in some nodes."""
    names = (n for node in nodes for n in walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The names of the errors that a handler catches."""
    return identifiers(handler.type) if handler.type is not None else set()


def method_called(node: ast.AST | None) -> str:
    """The name of the method, or of the function of a module, that a node calls; empty for everything else."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def methods_called(nodes: Iterable[ast.AST]) -> set[str]:
    """The names of the methods that are called in some nodes."""
    return {method_called(n) for node in nodes for n in walk(node)}


def spelled(node: ast.AST) -> str:
    """What `ast.unparse` makes of a node; in no time for dotted names, which most are that are asked about."""
    if type(node) is ast.Name:
        return node.id
    if type(node) is ast.Attribute and type(node.value) in (ast.Name, ast.Attribute):
        return f"{spelled(node.value)}.{node.attr}"
    return ast.unparse(node)


def names_called(call: ast.Call) -> Iterator[str]:
    """The names that a call's function and its first argument are made of, and keys of mappings as `Slot` writes them."""
    for node in (call.func, *call.args[:1]):
        current: ast.AST = node
        while isinstance(current, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(current, ast.Attribute):
                yield current.attr
            elif isinstance(current, ast.Subscript) and isinstance(current.slice, ast.Constant):
                key = current.slice.value
                yield f"[{key}]" if isinstance(key, str) else ""
            current = current.func if isinstance(current, ast.Call) else current.value
        if isinstance(current, ast.Name):
            yield current.id
