"""Which names a statement stores, fills and reads: where it calls a function that is defined beside it, those that this
does of the body around both, `def closure(): nonlocal loss; loss = criterion(out, y)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import FUNCTION_NODES
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.program.view import Node

Stores = Callable[[Node], "frozenset[str]"]  # the names that a statement gives something new
FILLING = ("append", "extend", "update", "add")


def defines(node: Node) -> frozenset[str]:
    """Names a statement stores, or fills with `append` and the like."""
    if node.defines is None:
        around = (name for f in _run_beside(node) for name in _of_the_body(f, _stored(walk(f))))
        node.defines = frozenset((*_stored(node.own), *around))
    return node.defines


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    out: set[str] = set()
    inner = {n for a in nodes if isinstance(a, ast.comprehension) for n in walk(a.target)}
    for a in nodes:
        if a in inner:
            continue
        if isinstance(a, ast.Name) and isinstance(a.ctx, ast.Store):
            out.add(a.id)
        elif isinstance(a, (ast.Attribute, ast.Subscript)) and isinstance(a.ctx, ast.Store):
            name = dotted(a) if isinstance(a, ast.Attribute) else dotted(a.value)
            if name:
                out.add(name)
        elif isinstance(a, ast.Call) and isinstance(a.func, ast.Attribute) and a.func.attr in FILLING:
            name = dotted(a.func.value)
            if name:
                out.add(name)
    return out


def defines_or_fills(node: Node) -> frozenset[str]:
    """Names a statement stores, or may change by a method that it hands something: `memory.keep(outputs)`."""
    call = node.stmt.value if isinstance(node.stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and (call.args or call.keywords):
        filled = dotted(call.func.value)
        return defines(node) | {filled} if filled else defines(node)
    return defines(node)


def reads_names(node: Node) -> frozenset[str]:
    """Names a statement reads, `a.b` with `a`."""
    if node.reads is None:
        around = (name for f in _run_beside(node) for name in _of_the_body(f, _read(walk(f))))
        filled = defines(node) if isinstance(node.stmt, ast.AugAssign) else frozenset()
        node.reads = frozenset((*_read(node.own), *filled, *around))
    return node.reads


def _read(nodes: Iterable[ast.AST]) -> set[str]:
    out: set[str] = set()
    own = identifiers(*(a.target for a in nodes if isinstance(a, ast.comprehension)))  # none of the function's
    for a in nodes:
        if isinstance(a, (ast.Name, ast.Attribute)) and isinstance(a.ctx, ast.Load):
            name = dotted(a)
            while name:
                if name.partition(".")[0] not in own:
                    out.add(name)
                name = name.rpartition(".")[0]
    return out


def _run_beside(node: Node) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of the same body that a statement calls by their names."""
    if isinstance(node.stmt, (*FUNCTION_NODES, ast.ClassDef)):
        return
    called = {call.func.id for call in node.calls if isinstance(call.func, ast.Name)}
    if called:
        for beside in node.body.functions:
            if beside.name in called:
                yield beside


def _of_the_body(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> Iterator[str]:
    """Of the names that a function uses, those of the body that it is defined in."""
    inside = walk(function)
    shared = {name for n in inside if isinstance(n, (ast.Nonlocal, ast.Global)) for name in n.names}
    own = {a.arg for a in inside if isinstance(a, ast.arg)}
    own |= {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - shared
    return (name for name in names if name.partition(".")[0] not in own)
