"""Parts of a model that are taken out of it and called: `enc = model.encoder`, `nets["g"].layers[0](x)`, `model.children()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.dtypes import HALF_BOTH, HALF_NATIVE
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import Path, single, targets
from amp_migrate.audit.sites.forwards import Forward, Forwards
from amp_migrate.audit.sites.setups import Identity, identities
from amp_migrate.audit.values.names import Reached, last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

GIVING = frozenset("children modules named_children named_modules get_submodule values items".split())
TURNING = frozenset("list tuple dict iter next reversed enumerate zip".split())
DEPTH = 6


class Pieces:
    """The calls, before, of what was taken out of an initialized model."""

    def __init__(self, both: Mixed) -> None:
        self.both = both

    @cached_property
    def _names(self) -> Reached:
        return self.both.before.forwards.names.reached(self.both.start)

    @kept
    def given(self, forward: Forward) -> frozenset[Identity]:
        """The initialized models that the model of a forward is a part of."""
        module = forward.module
        found: set[Identity] = set()
        for whole, computes in self._wholes(module, forward.model, False, DEPTH):
            if computes and last_name(whole) in self._names:
                scope = module.scope_of(whole)
                if self.both.review.before.is_self(scope, whole) is None:
                    found |= identities(self.both.review.values_before, scope, whole) & self.both.initialized
        return frozenset(found)

    def _wholes(self, module: Module, expr: ast.expr, computes: bool, depth: int) -> Iterator[tuple[ast.expr, bool]]:
        """What an expression may be a part of, each with whether what is taken from it is seen to be a network."""
        if not depth:
            return
        inner: list[tuple[ast.expr, bool]] = []
        if isinstance(expr, ast.Attribute):
            inner = [(expr.value, computes or self._network(expr.attr))]
        elif isinstance(expr, ast.Subscript):
            inner = [(expr.value, computes)]
        elif isinstance(expr, ast.Call):
            if isinstance(expr.func, ast.Attribute) and expr.func.attr in GIVING:
                inner = [(expr.func.value, computes or expr.func.attr not in ("values", "items"))]
            elif syntax.text(expr.func) in TURNING:
                for arg in expr.args:
                    yield from self._wholes(module, arg, computes, depth - 1)
        elif isinstance(expr, ast.Name):
            for value in self._values(module, expr):
                yield from self._wholes(module, value, computes, depth - 1)
        for whole, sure in inner:
            if isinstance(whole, (ast.Name, ast.Attribute, ast.Subscript)):
                yield whole, sure
            yield from self._wholes(module, whole, sure, depth - 1)

    @staticmethod
    def _values(module: Module, name: ast.Name) -> Iterator[ast.expr]:
        """What statements of this file assign to a name."""
        scope = module.scope_of(name).binder(name.id)
        for node in scope.bindings[name.id] if scope is not None and scope.module is module else ():
            for target, value, _ in targets(node):
                for one, path in single(target):
                    if value is None or (path[:1] == (0,) and _keyed(value)):
                        continue
                    if isinstance(one, ast.Name) and one.id == name.id:
                        yield _item(value, path)

    @kept
    def _network(self, attr: str) -> bool:
        """Whether objects are given a network, or a layer or container of torch's, under this name."""
        program = self.both.review.before
        for module, _, value, _ in self.both.review.values_before.fields(attr):
            if isinstance(value, ast.Call):
                scope = module.scope_of(value)
                name = program.dotted(scope, value.func) or ""
                made = program.definitions(scope, value.func, guess=False)
                layer = name.startswith("torch.nn.") and not name.endswith("Loss")
                if layer or any(isinstance(d, Class) and program.is_network(d) for d in made):
                    return True
        return False


def _keyed(value: ast.expr) -> bool:
    """Whether what is gone through comes in pairs, a name or number first: `named_modules()`, `items()`, `enumerate(...)`."""
    called = (last_name(value.func) if isinstance(value, ast.Call) else None) or ""
    return called in ("enumerate", "items") or called.startswith("named_")


def _item(value: ast.expr, path: Path) -> ast.expr:
    """The item of a tuple that is written down; else all of it."""
    for i in path:
        if not isinstance(value, (ast.Tuple, ast.List)) or not isinstance(i, int) or i >= len(value.elts):
            break
        value = value.elts[i]
    return value


def idle(forwards: Forwards, forward: Forward) -> bool:
    """Whether what a forward runs is in sight and computes no product: a decoder of labels, a post-processor. Nothing of it
    ever ran in half for its own sake."""
    functions = forwards.runs(forward)
    return bool(functions) and not any(_computes(forwards.program, f, frozenset()) for f in functions)


def _computes(program: Program, function: Function, seen: frozenset[Function]) -> bool:
    """Whether a function may compute a product, or run a layer or anything else that is not seen."""
    if function in seen or len(seen) > DEPTH:
        return function not in seen
    for node in syntax.walk(function.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if not isinstance(node, ast.Call):
            continue
        if last_name(node.func) in HALF_BOTH | HALF_NATIVE:
            return True
        scope = function.module.scope_of(node)
        called = program.callees(function.module, node)
        if any(_computes(program, f, seen | {function}) for f in called):
            return True
        if called or program.dotted(scope, node.func) is not None:
            continue
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(node.func, (ast.Name, ast.Subscript)) and (
            not isinstance(root, ast.Name) or scope.binder(root.id)
        ):
            return True  # what a variable holds
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and root is node.func.value:
            if root.id == "self":
                return True  # a layer
    return False
