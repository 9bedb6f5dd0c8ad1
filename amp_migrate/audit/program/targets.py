"""What statements assign: each single target with the value it is taken from, and which item of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope

Path = tuple["int | str | None", ...]  # which item of a tuple, list or dict is meant; None: any
LISTS = (ast.List, ast.Tuple, ast.ListComp)


def targets(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """The targets that one node assigns, each with the value it is taken from and the item of it."""
    if isinstance(node, ast.Assign):
        return [(t, node.value, ()) for t in node.targets]
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return [(node.target, node.value, ())] if node.value is not None else []
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return _loop_targets(node.target, node.iter)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [(i.optional_vars, i.context_expr, ()) for i in node.items if i.optional_vars is not None]
    return []


def _loop_targets(target: ast.expr, iterable: ast.expr) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """`for a, b in zip(x, y)` and `enumerate(x)` hand on items of their arguments."""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and isinstance(target, ast.Tuple):
        if iterable.func.id == "zip" and len(iterable.args) == len(target.elts):
            return [(t, v, (None,)) for t, v in zip(target.elts, iterable.args, strict=True)]
        if iterable.func.id == "enumerate" and iterable.args and len(target.elts) == 2:
            return [(target.elts[0], None, ()), *_loop_targets(target.elts[1], iterable.args[0])]
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute):
        if iterable.func.attr == "items" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            return [(target.elts[0], None, ()), (target.elts[1], iterable.func.value, (None,))]
        if iterable.func.attr == "values":
            return [(target, iterable.func.value, (None,))]
    return [(target, iterable, (None,))]


def single(target: ast.expr) -> list[tuple[ast.expr, Path]]:
    """The single targets in a target, each with the item that it takes."""
    if isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(e, ast.Starred) for e in target.elts)
        return [
            (found, (None if starred else i, *inner)) for i, e in enumerate(target.elts) for found, inner in single(e)
        ]
    if isinstance(target, ast.Starred):
        return single(target.value)
    return [(target, ())]


def given_to(node: ast.AST, name: str) -> Sequence[tuple[ast.expr, Path]]:
    """The values that a node gives a name, with the item of each."""
    return _given(node).get(name, ())


@kept
def _given(node: ast.AST) -> dict[str, list[tuple[ast.expr, Path]]]:
    given: dict[str, list[tuple[ast.expr, Path]]] = {}
    for target, value, item in targets(node):
        for found, inner in single(target):
            if isinstance(found, ast.Name) and value is not None:
                given.setdefault(found.id, []).append((value, (*item, *inner)))
    return given


class Put(NamedTuple):
    """Something that is put into a container later: `x.append(v)`, `x["k"] = v`, `x["k"].append(v)`, `x.update(d)`."""

    holder: ast.Name | ast.Attribute
    keys: Path  # where; None: anywhere
    value: ast.expr
    item: Path
    spread: bool  # the items of the value are put there
    scope: Scope  # where it stands

    def within(self, path: Path) -> Path | None:
        """Which item of the value is the one that a path into the container means; None: it is another."""
        size = len(self.keys)
        if len(path) < size or any(p is not None and k not in (None, p) for k, p in zip(self.keys, path, strict=False)):
            return None
        last = path[size - 1]
        return (*self.item, *((last if isinstance(last, str) else None,) if self.spread else ()), *path[size:])


NAMED = 3  # names of one container that are followed


@kept
def put_later(module: Module) -> dict[str, list[Put]]:
    """What a module puts into containers, by the last name of the container."""
    found: dict[str, list[Put]] = {}
    for put in _puts(module):
        found.setdefault(put.holder.id if isinstance(put.holder, ast.Name) else put.holder.attr, []).append(put)
    return found


def _puts(module: Module) -> Iterator[Put]:
    for method in (*_ADDING, *_NAMING, *_SPREADING):
        for call, on in module.method_calls(method):
            scope = module.scope_of(call)
            for holder, keys in _containers(module, on):
                if method in _NAMING and len(call.args) == 2:
                    yield Put(holder, (*keys, key_of(call.args[0])), call.args[1], (), False, scope)
                elif method not in _NAMING and call.args:
                    yield Put(holder, (*keys, None), call.args[-1], (), method in _SPREADING, scope)
                for keyword in call.keywords if method == "update" else ():
                    yield Put(holder, (*keys, keyword.arg), keyword.value, (), keyword.arg is None, scope)
    for stmt in syntax.every(module.tree, ast.AugAssign) if "+=" in module.text else ():
        if isinstance(stmt.op, ast.Add) and isinstance(stmt.value, LISTS):
            for holder, keys in _containers(module, stmt.target):
                yield Put(holder, (*keys, None), stmt.value, (), True, module.scope_of(stmt))
    for target, value, item in assignments(module):
        if isinstance(target, ast.Subscript) and value is not None:
            for holder, keys in _containers(module, target.value):
                spread = isinstance(target.slice, ast.Slice)
                yield Put(holder, (*keys, key_of(target.slice)), value, item, spread, module.scope_of(target))


def _containers(module: Module, expr: ast.expr) -> Iterator[tuple[ast.Name | ast.Attribute, Path]]:
    """The variable that holds a container, and where in it that is: `hooks` of `hooks[event]`, `hooks.setdefault(event, [])`;
    of a name for one, `own = self.hooks[event]`, that as well."""
    found = _container(expr)
    for _ in range(NAMED):
        if found is None:
            return
        yield found
        named, keys = found
        home = module.scope_of(named).binder(named.id) if isinstance(named, ast.Name) else None
        bound = home.bindings[named.id] if isinstance(named, ast.Name) and home is not None else []
        given = bound[0].value if len(bound) == 1 and isinstance(bound[0], ast.Assign) else None
        whole = given is not None and isinstance(bound[0], ast.Assign) and isinstance(bound[0].targets[0], ast.Name)
        further = _container(given) if given is not None and whole else None
        found = (further[0], (*further[1], *keys)) if further is not None else None


def _container(expr: ast.expr) -> tuple[ast.Name | ast.Attribute, Path] | None:
    if isinstance(expr, (ast.Name, ast.Attribute)):
        return expr, ()
    inner, key = None, None
    if isinstance(expr, ast.Subscript):
        inner, key = expr.value, expr.slice
    elif isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.args:
        if expr.func.attr in ("setdefault", "get"):
            inner, key = expr.func.value, expr.args[0]
    found = _container(inner) if inner is not None and key is not None else None
    return (found[0], (*found[1], key_of(key))) if found is not None and key is not None else None


_ADDING = ("append", "appendleft", "add", "insert")
_NAMING = ("setdefault", "add_module", "register_module")
_SPREADING = ("extend", "update")


def key_of(expr: ast.expr) -> int | str | None:
    """The index or key that an expression is, where it is written down."""
    value = expr.value if isinstance(expr, ast.Constant) else None
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None


@kept
def set_by_name(module: Module) -> list[tuple[ast.expr, str, ast.expr]]:
    """Attributes that are set by a name in quotes: of what, the name, the value."""
    found = []
    for call in module.calls_named.get("setattr", ()):
        if isinstance(call.func, ast.Name) and len(call.args) == 3 and isinstance(name := key_of(call.args[1]), str):
            found.append((call.args[0], name, call.args[2]))
    for method in ("add_module", "register_module"):
        for call, holder in module.method_calls(method):
            if len(call.args) == 2 and isinstance(name := key_of(call.args[0]), str):
                found.append((holder, name, call.args[1]))
    return found


@kept
def assignments(module: Module) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """Every single target in a module with the value it gets and the item of it."""
    return [
        (found, value, (*item, *inner))
        for node in module.assigning()
        for target, value, item in targets(node)
        for found, inner in single(target)
    ]


@kept
def attributes(module: Module) -> dict[str, list[tuple[ast.Attribute, ast.expr | None, Path]]]:
    """The attributes that a module assigns, by name."""
    found: dict[str, list[tuple[ast.Attribute, ast.expr | None, Path]]] = {}
    for target, value, path in assignments(module):
        if isinstance(target, ast.Attribute):
            found.setdefault(target.attr, []).append((target, value, path))
    return found
