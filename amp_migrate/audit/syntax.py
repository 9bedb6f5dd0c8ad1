"""Questions about syntax trees that many checks ask again and again: what stands below a node, and how it is written.

The answers are kept on the nodes, for the audit changes no tree. Contexts (`Load`, `Store`) count for no node: they are
asked for as `ctx`, and are half of all that a tree holds.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)
_KEPT = ("_children", "_below", "_text", "_own_nodes")
_PLAIN = frozenset({"ctx", "id", "attr", "arg", "asname", "module", "level", "kind", "type_comment", "lineno", "tag"})
_OPENING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_fields: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes directly below one, in the order of `ast.iter_child_nodes`."""
    known: tuple[ast.AST, ...] | None = node.__dict__.get("_children")
    if known is None:
        kind = type(node)
        fields = _fields.get(kind)
        if fields is None:
            fields = _fields[kind] = tuple(f for f in kind._fields if f not in _PLAIN)
        found: list[ast.AST] = []
        values = node.__dict__
        for name in fields:
            value = values.get(name)
            if isinstance(value, list):
                found += [v for v in value if isinstance(v, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
        known = node._children = tuple(found)  # type: ignore[attr-defined]
    return known


def copied(node: N) -> N:
    """A shallow copy of a node that is to be given other parts: without the answers that were kept on it."""
    made = copy.copy(node)
    for name in _KEPT:
        made.__dict__.pop(name, None)
    return made


def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all that stands below it, in the order of `ast.walk`."""
    known: tuple[ast.AST, ...] | None = node.__dict__.get("_below")
    if known is None:
        found: list[ast.AST] = [node]
        for at in found:
            found += at.__dict__.get("_children") or children(at)
        known = node._below = tuple(found)  # type: ignore[attr-defined]
    return known


def text(node: ast.AST) -> str:
    """A node as text."""
    known: str | None = node.__dict__.get("_text")
    if known is None:
        if isinstance(node, ast.Name):
            known = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            known = f"{text(node.value)}.{node.attr}"
        else:
            known = ast.unparse(node)
        node._text = known  # type: ignore[attr-defined]
    return known


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """All nodes below a definition that run with it: not those of nested functions, classes and lambdas."""
    known: list[ast.AST] | None = node.__dict__.get("_own_nodes")
    if known is not None:
        return known
    found: list[ast.AST] = []
    stack = [*reversed(getattr(node, "body", []))] if isinstance(getattr(node, "body", None), list) else [node]
    while stack:
        n = stack.pop()
        found.append(n)
        if not isinstance(n, _OPENING):
            stack += reversed(children(n))
    node._own_nodes = found  # type: ignore[attr-defined]
    return found


def own_line(stmt: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement's own line: not those of the statements inside of it."""
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack += [c for c in children(node) if not isinstance(c, ast.stmt | ast.ExceptHandler)]
