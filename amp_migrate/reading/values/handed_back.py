"""What a function only hands back: which of its parameters a value is, or is an item of, in the dtype that it has there."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.expressions import COMPREHENSIONS
from amp_migrate.reading.values.operations import KEEPING
from amp_migrate.reading.values.reaching import reaching

PLACES = re.compile(r"device|cuda|cpu|gpu|rank", re.IGNORECASE)  # what `.to` names that is no dtype
FILLING = frozenset("append extend insert update setdefault".split())  # methods that put something into an argument
DEPTH = 8  # bindings followed


def parameters_of(function: Function, node: ast.expr, depth: int = DEPTH) -> set[str]:
    """The parameters whose dtype a value has for sure, or that of an item: `y` of `y.to(self.device).view(-1)`, `batch` of `y`
    with `x, y = batch`; none where it may have another."""
    node = _kept(node)
    if isinstance(node, ast.IfExp):
        return _all_of([parameters_of(function, side, depth) for side in (node.body, node.orelse)])
    if isinstance(node, COMPREHENSIONS) and not isinstance(node, ast.DictComp):
        return _entries(function, node, node.elt, depth)
    if not isinstance(node, ast.Name) or not depth or function.module.scope_of(node) is not function.scope:
        return set()
    return _all_of([_bound(function, binding, node.id, depth - 1) for binding in reaching(function.scope, node)])


def _kept(node: ast.expr) -> ast.expr:
    """What a value is an item of, or takes its dtype from: `batch` of `batch[1].to(device).view(-1)`."""
    if isinstance(node, ast.Subscript):
        return _kept(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return node
    moved = node.func.attr == "to" and not node.keywords and all(PLACES.search(ast.unparse(a)) for a in node.args)
    return _kept(node.func.value) if moved or node.func.attr in KEEPING else node


def _all_of(found: list[set[str]]) -> set[str]:
    """The parameters of all ways; none where those of one way cannot be told."""
    return set().union(*found) if all(found) else set()


def _bound(function: Function, binding: ast.AST, name: str, depth: int) -> set[str]:
    """The parameters of what a binding gives a name."""
    if isinstance(binding, ast.arg):
        return set() if _is_filled(function, name) else {name}
    stmt = function.module.statement(binding)
    if not isinstance(stmt, ast.Assign) or _is_filled(function, name):
        return set()
    ways: list[set[str]] = []
    for target in stmt.targets:
        if isinstance(target, ast.Name):
            ways += [parameters_of(function, stmt.value, depth)] if target.id == name else []
        elif not isinstance(target, (ast.Tuple, ast.List)) or not all(isinstance(e, ast.Name) for e in target.elts):
            return set()
        elif isinstance(stmt.value, (ast.Tuple, ast.List)) and len(stmt.value.elts) == len(target.elts):
            pairs = zip(target.elts, stmt.value.elts, strict=True)
            ways += [parameters_of(function, v, depth) for e, v in pairs if isinstance(e, ast.Name) and e.id == name]
        else:
            ways.append(parameters_of(function, stmt.value, depth))
    return _all_of(ways)


def _entries(function: Function, made: ast.expr, entry: ast.expr, depth: int) -> set[str]:
    """The parameters of the entries of a comprehension: `batch` of `[t.cuda() if cuda else t for t in batch]`."""
    assert isinstance(made, (ast.ListComp, ast.SetComp, ast.GeneratorExp))
    generator = made.generators[0]
    if len(made.generators) > 1 or not isinstance(generator.target, ast.Name):
        return set()
    if isinstance(entry, ast.IfExp):
        return _all_of([_entries(function, made, side, depth) for side in (entry.body, entry.orelse)])
    entry = _kept(entry)
    if not isinstance(entry, ast.Name) or entry.id != generator.target.id:
        return set()
    return parameters_of(function, generator.iter, depth)


def _is_filled(function: Function, name: str) -> bool:
    """Whether something is put into what a name of a function holds: `batch[0] = model(batch[0])`, `batch.update(...)`."""
    for node in own_nodes(function.node.body):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            held = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLING:
            held = node.func.value
        else:
            continue
        if isinstance(held, ast.Name) and held.id == name:
            return True
    return False
