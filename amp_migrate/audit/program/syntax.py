"""Questions about syntax trees that many checks ask again and again: what stands below a node, and how it is written.

The answers are kept on the nodes, for the audit changes no tree. Contexts (`Load`, `Store`) count for no node: they are
asked for as `ctx`, and are half of all that a tree holds.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar

N = TypeVar("N", bound=ast.AST)
_PLAIN = frozenset({"ctx", "id", "attr", "arg", "asname", "module", "level", "kind", "type_comment", "lineno", "tag"})
_OPENING = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
_DOTTED = frozenset({ast.Name, ast.Attribute, ast.Call, ast.Subscript})
_ATOMS = _DOTTED | {ast.Constant}  # what stands without parentheses wherever it is
_WRITTEN = frozenset({str, int, bool, type(None)})
_BARE = ast.unparse(ast.parse("a, b = c")).startswith("a")  # whether targets are written without parentheses
_FEW = 8  # constants that a test goes through
_fields: dict[type[ast.AST], tuple[str, ...]] = {}
_OPERATORS = (kind for of in (ast.operator, ast.unaryop, ast.boolop, ast.cmpop) for kind in of.__subclasses__())
_LEAVES = frozenset({ast.Name, ast.Constant, ast.alias, ast.Pass, ast.Break, ast.Continue, *_OPERATORS})
# What most nodes are that have others below them, without asking each field what it holds.
_QUICK: dict[type[ast.AST], Callable[[Any], tuple[ast.AST, ...]]] = {
    ast.Attribute: lambda n: (n.value,),
    ast.Call: lambda n: (n.func, *n.args, *n.keywords),
    ast.keyword: lambda n: (n.value,),
    ast.Expr: lambda n: (n.value,),
    ast.Assign: lambda n: (*n.targets, n.value),
    ast.Subscript: lambda n: (n.value, n.slice),
    ast.Tuple: lambda n: tuple(n.elts),
    ast.List: lambda n: tuple(n.elts),
    ast.BinOp: lambda n: (n.left, n.op, n.right),
    ast.UnaryOp: lambda n: (n.op, n.operand),
    ast.Compare: lambda n: (n.left, *n.ops, *n.comparators),
    ast.Return: lambda n: (n.value,) if n.value is not None else (),
    ast.arg: lambda n: (n.annotation,) if n.annotation is not None else (),
    ast.If: lambda n: (n.test, *n.body, *n.orelse),
}


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes directly below one, in the order of `ast.iter_child_nodes`."""
    values = node.__dict__
    known: tuple[ast.AST, ...] | None = values.get("_children")
    if known is None:
        kind = type(node)
        if kind in _LEAVES:
            return ()
        quick = _QUICK.get(kind)
        known = values["_children"] = quick(node) if quick is not None else _below(node)
    return known


def _below(node: ast.AST) -> tuple[ast.AST, ...]:
    found: list[ast.AST] = []
    kind, values = type(node), node.__dict__
    if kind not in _fields:
        _fields[kind] = tuple(f for f in kind._fields if f not in _PLAIN)
    for name in _fields[kind]:
        value = values.get(name)
        if isinstance(value, list):
            found += [v for v in value if isinstance(v, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return tuple(found)


def copied(node: N) -> N:
    """A shallow copy of a node that is to be given other parts: without the answers that were kept on it."""
    made = copy.copy(node)
    for name in made.__dict__.keys() - {*node._fields, *node._attributes}:
        del made.__dict__[name]
    return made


def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all that stands below it, in the order of `ast.walk`."""
    known: tuple[ast.AST, ...] | None = node.__dict__.get("_below")
    if known is None:
        found: list[ast.AST] = [node]
        for at in found:
            if type(at) not in _LEAVES:
                below = at.__dict__.get("_children")
                found += below if below is not None else children(at)
        known = node._below = tuple(found)  # type: ignore[attr-defined]
    return known


def every(node: ast.AST, kind: type[N]) -> Sequence[N]:
    """The nodes of one type among those that `walk` gives, in its order."""
    known: dict[type[ast.AST], list[N]] | None = node.__dict__.get("_every")
    if known is None:
        known = node._every = _by_type(walk(node))  # type: ignore[attr-defined]
    return known.get(kind, ())


def own(node: ast.AST, kind: type[N]) -> Sequence[N]:
    """The nodes of one type among those that `own_nodes` gives, in its order."""
    known: dict[type[ast.AST], list[N]] | None = node.__dict__.get("_own_every")
    if known is None:
        known = node._own_every = _by_type(own_nodes(node))  # type: ignore[attr-defined]
    return known.get(kind, ())


def _by_type(nodes: Iterable[ast.AST]) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in nodes:
        kind = type(node)
        if kind in found:
            found[kind].append(node)
        else:
            found[kind] = [node]
    return found


def text(node: ast.AST) -> str:
    """A node as text."""
    known: str | None = node.__dict__.get("_text")
    if known is None:
        known = node._text = _plain(node) or ast.unparse(node)  # type: ignore[attr-defined]
    return known


def _plain(node: Any) -> str | None:
    """What `ast.unparse` makes of what needs no parentheses: dotted names, calls of them with such arguments, assignments."""
    kind, found = type(node), None
    if kind is ast.Name:
        found = node.id
    elif kind is ast.Attribute:
        found = f"{text(node.value)}.{node.attr}" if type(node.value) in _DOTTED else None
    elif kind is ast.Constant:
        plain = type(node.value) in _WRITTEN or (type(node.value) is float and abs(node.value) < 1e300)
        found = repr(node.value) if plain and node.kind is None else None
    elif kind is ast.Call and type(node.func) in _DOTTED:
        if all(type(a) in _ATOMS for a in node.args) and all(k.arg and type(k.value) in _ATOMS for k in node.keywords):
            given = [*map(text, node.args), *(f"{k.arg}={text(k.value)}" for k in node.keywords)]
            found = f"{text(node.func)}({', '.join(given)})"
    elif kind is ast.Expr:
        found = text(node.value) if type(node.value) in _ATOMS else None
    elif kind is ast.Assign and node.type_comment is None:
        if all(type(n) in _ATOMS or _of_atoms(n) for n in (*node.targets, node.value)):
            found = " = ".join([*map(_target, node.targets), text(node.value)])
    elif kind is ast.Subscript:
        found = f"{text(node.value)}[{text(node.slice)}]" if {type(node.value), type(node.slice)} <= _ATOMS else None
    elif kind is ast.Tuple:
        found = f"({', '.join(map(text, node.elts))})" if _of_atoms(node) else None
    elif kind is ast.withitem and type(node.context_expr) in _ATOMS:
        if node.optional_vars is None:
            found = text(node.context_expr)
        elif type(node.optional_vars) in _DOTTED:
            found = f"{text(node.context_expr)} as {text(node.optional_vars)}"
    elif kind is ast.arguments:
        named = not (node.posonlyargs or node.kwonlyargs or node.vararg or node.kwarg or node.defaults)
        if named and all(a.annotation is None for a in node.args):
            found = ", ".join([a.arg for a in node.args])
    return found


def _of_atoms(node: ast.AST) -> bool:
    return type(node) is ast.Tuple and len(node.elts) > 1 and all(type(e) in _ATOMS for e in node.elts)


def _target(node: ast.expr) -> str:
    return text(node)[1:-1] if _BARE and type(node) is ast.Tuple else text(node)


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
        kind = type(n)
        if kind not in _LEAVES and kind not in _OPENING:
            stack += (n.__dict__.get("_children") or children(n))[::-1]
    node._own_nodes = found  # type: ignore[attr-defined]
    return found


def by_name(func: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """What an attribute is asked of by name, and the name: `getattr(model, "sample")`."""
    if (
        isinstance(func, ast.Call)
        and isinstance(func.func, ast.Name)
        and func.func.id == "getattr"
        and len(func.args) > 1
    ):
        return func.args[0], func.args[1]
    return None


def given(call: ast.Call) -> tuple[ast.expr, ...]:
    """What a call is given, by position and by name."""
    return (*call.args, *(k.value for k in call.keywords))


def spreads(call: ast.Call) -> bool:
    """Whether a call is given what `*args` or `**kwargs` hold."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def last(func: ast.expr) -> str:
    """The last name of what is called; "" where it has none."""
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def whole(expr: ast.expr) -> ast.expr:
    """What an entry, or an entry of an entry, belongs to: `rows` of `rows[0][i]`."""
    return whole(expr.value) if isinstance(expr, ast.Subscript) else expr


def chained(expr: ast.expr, methods: Container[str]) -> ast.expr:
    """What a chain of some methods begins with, of which each gives its object: `net` of `net.to(device).eval()`."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in methods:
        expr = expr.func.value
    return expr


def cast_to_float(call: ast.Call) -> ast.expr | None:
    """What a call makes float32 and does nothing else with: `x.float()`, in some runs alone `x.to(dtype=torch.float32 if on else
    None)`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or call.args:
        return None
    if func.attr == "float":
        return func.value
    chosen = call.keywords[0].value if func.attr == "to" and len(call.keywords) == 1 else None
    if not isinstance(chosen, ast.IfExp) or not is_none(chosen.orelse):
        return None
    return func.value if last(chosen.body) in ("float32", "float") else None


def gives_whole(stmt: ast.Assign) -> bool:
    """Whether whatever an assignment names is given all of its value: `a = b = False`."""
    return not any(isinstance(t, (ast.Tuple, ast.List)) for t in stmt.targets)


def is_none(expr: ast.AST | None) -> bool:
    """Whether an expression is None as it is written."""
    return isinstance(expr, ast.Constant) and expr.value is None


def is_false(expr: ast.AST | None) -> bool:
    """Whether an expression is a constant that counts as false."""
    return isinstance(expr, ast.Constant) and not expr.value


def calls_in_order(expr: ast.AST) -> tuple[ast.Call, ...]:
    """The calls in an expression, what is handed to one before it; not those of lambdas, which may not run."""
    known: tuple[ast.Call, ...] | None = expr.__dict__.get("_calls")
    if known is None:
        if isinstance(expr, ast.Lambda):
            return ()
        found = [call for child in children(expr) for call in calls_in_order(child)]
        known = expr._calls = (*found, expr) if isinstance(expr, ast.Call) else tuple(found)  # type: ignore[attr-defined]
    return known


def own_line(stmt: ast.stmt) -> tuple[ast.AST, ...]:
    """The nodes of a statement's own line: not those of the statements inside of it."""
    known: tuple[ast.AST, ...] | None = stmt.__dict__.get("_line")
    if known is None:
        found: list[ast.AST] = []
        stack: list[ast.AST] = [stmt]
        while stack:
            node = stack.pop()
            found.append(node)
            kind = type(node)
            if kind not in _LEAVES:
                below = node.__dict__.get("_children") or children(node)
                if kind in _QUICK and kind is not ast.If:  # no statements
                    stack += below
                else:
                    stack += [c for c in below if not isinstance(c, (ast.stmt, ast.ExceptHandler))]
        known = stmt._line = tuple(found)  # type: ignore[attr-defined]
    return known


def one_by_one(test: ast.Compare) -> ast.expr:
    """`x in ["a", "b"]` as `x == "a" or x == "b"`; any other test as it is."""
    known: ast.expr | None = test.__dict__.get("_one_by_one")
    if known is None:
        known = test._one_by_one = _one_by_one(test)  # type: ignore[attr-defined]
    return known


def _one_by_one(test: ast.Compare) -> ast.expr:
    among = test.comparators[0]
    if len(test.ops) != 1 or not isinstance(test.ops[0], (ast.In, ast.NotIn)):
        return test
    if not isinstance(among, (ast.List, ast.Tuple, ast.Set)) or not 0 < len(among.elts) <= _FEW:
        return test
    if not all(isinstance(e, ast.Constant) for e in among.elts):
        return test
    each: list[ast.expr] = [ast.Compare(test.left, [ast.Eq()], [e]) for e in among.elts]
    found: ast.expr = each[0] if len(each) == 1 else ast.BoolOp(ast.Or(), each)
    return found if isinstance(test.ops[0], ast.In) else ast.UnaryOp(ast.Not(), found)
