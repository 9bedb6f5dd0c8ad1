"""Where a tensor is and what it comes from, as far as that is written down: on the CPU, on a device, out of a region."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.targets import Path, assignments, put_later
from amp_migrate.audit.sites.forwards import Forwards
from amp_migrate.audit.sites.regions import Regions
from amp_migrate.audit.sites.unmoved import made_on_host
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.given_above import value_above

On = Literal["host", "device", "?", "nothing"]  # the last: of what holds no tensor yet

# What makes a tensor, on the CPU if nothing says otherwise.
MAKING = frozenset(
    "tensor as_tensor from_numpy zeros ones empty full eye rand randn randint randperm arange linspace logspace normal "
    "Tensor FloatTensor".split()
)
# Methods of tensors that arrays do not have.
METHODS = frozenset(
    "cuda cpu detach t unsqueeze permute contiguous expand expand_as to type_as mm bmm matmul matrix_exp softmax "
    "log_softmax sigmoid relu topk index_select masked_fill requires_grad_ to_dense float half".split()
)
DEFAULTS = ("set_default_device", "set_default_tensor_type", "torch.device")  # `with torch.device("cuda"):`
DEPTH = 4


class Tensors:
    """Answers for one state of a program."""

    def __init__(self, values: Values, regions: Regions, forwards: Forwards) -> None:
        self.values = values
        self.program = values.program
        self.regions = regions
        self.forwards = forwards
        self._half: dict[ast.expr, bool] = {}
        self._on: dict[tuple[ast.expr, int], On] = {}
        self._asking: set[tuple[Scope | None, str]] = set()  # names whose place is being found out: `x = torch.cat(x)`

    def torch(self, scope: Scope, expr: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is seen to be a tensor."""
        if isinstance(expr, ast.BinOp):
            return any(self.torch(scope, side, depth) for side in (expr.left, expr.right))
        if isinstance(expr, ast.Subscript):
            return self.torch(scope, expr.value, depth)
        if isinstance(expr, ast.Call):
            name = self.program.dotted(scope, expr.func)
            if name is not None:
                return name.startswith("torch.")
            if isinstance(expr.func, ast.Attribute) and expr.func.attr in METHODS:
                return True
            return isinstance(expr.func, ast.Attribute) and self.torch(scope, expr.func.value, depth)
        if isinstance(expr, ast.Attribute) and expr.attr in ("T", "mT", "data", "grad", "weight"):
            return expr.attr in ("mT", "grad") or self.torch(scope, expr.value, depth)
        if isinstance(expr, (ast.Name, ast.Attribute)) and depth < DEPTH:
            return any(
                self.torch(o.module.scope_of(o.node), o.node, depth + 1)
                for o in self.values.origins(scope, expr)
                if isinstance(o.node, ast.expr) and o.node is not expr
            )
        return False

    def on(self, scope: Scope, expr: ast.expr, depth: int = 0) -> On:
        """Where a tensor is: on the CPU ("host"), on a device, or that is not known."""
        if depth > DEPTH:
            return "?"
        if (expr, depth) not in self._on:
            found = self._is_on(scope, expr, depth)
            if found == "nothing":  # as far as that is known by now
                return found
            self._on[expr, depth] = found
        return self._on[expr, depth]

    def _is_on(self, scope: Scope, expr: ast.expr, depth: int) -> On:
        if isinstance(expr, ast.BinOp):
            sides = {self.on(scope, side, depth + 1) for side in (expr.left, expr.right)}
            return "device" if "device" in sides else "host" if "host" in sides else "?"
        if isinstance(expr, (ast.Subscript, ast.Starred, ast.UnaryOp)):
            return self.on(scope, expr.operand if isinstance(expr, ast.UnaryOp) else expr.value, depth)
        if isinstance(expr, ast.Attribute) and expr.attr in ("T", "mT", "data"):
            return self.on(scope, expr.value, depth)
        if isinstance(expr, ast.Call):
            return self._made_on(scope, expr, depth)
        if isinstance(expr, (ast.List, ast.Tuple)):
            return _all({self.on(scope, e, depth + 1) for e in expr.elts}) if expr.elts else "nothing"
        owner = self.program.is_self(scope, expr.value) if isinstance(expr, ast.Attribute) else None
        if isinstance(expr, ast.Attribute) and owner is not None and made_on_host(self.program, owner, expr.attr):
            return "host"
        if isinstance(expr, (ast.Name, ast.Attribute)):
            name = (scope.binder(expr.id), expr.id) if isinstance(expr, ast.Name) else (None, syntax.text(expr))
            if name in self._asking:
                return "nothing"  # what else it is given says it
            self._asking.add(name)
            given = [*self._given(scope, expr), *self._put(scope, expr)]
            found: set[On] = {self._item(where, value, item, depth + 1) for where, value, item in given}
            self._asking.remove(name)
            return _all(found)
        return "?"

    def _item(self, scope: Scope, value: ast.expr, item: Path, depth: int) -> On:
        """Where an item of a value is: of a list that is written there."""
        first = item[0] if len(item) == 1 else None
        if isinstance(value, (ast.List, ast.Tuple)) and isinstance(first, int) and 0 <= first < len(value.elts):
            return self.on(scope, value.elts[first], depth)
        return self.on(scope, value, depth) if not item else "?"

    def _put(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Iterator[tuple[Scope, ast.expr, Path]]:
        """What is put into a list of a name: `rows.append(row)`, `rows.extend(x.split(1))`."""
        binder = scope.binder(expr.id) if isinstance(expr, ast.Name) else None
        if binder is None or not isinstance(expr, ast.Name):
            return
        for put in put_later(binder.module).get(expr.id, ()):
            where = binder.module.scope_of(put.holder)
            if isinstance(put.holder, ast.Name) and where.binder(put.holder.id) is binder:
                yield where, put.value, put.item

    def _given(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Iterator[tuple[Scope, ast.expr, Path]]:
        """What a name or an attribute is given, as it is written (values forget what `.cuda()` was called on), and the item of
        that."""
        if isinstance(expr, ast.Attribute):
            for module, field, value, item in self.values.fields(expr.attr):
                if value is not None:
                    yield module.scope_of(field), value, item
            return
        binder = scope.binder(expr.id)
        if binder is None:
            return
        for target, value, item in assignments(binder.module):
            if isinstance(target, ast.Name) and target.id == expr.id and binder.module.scope_of(target) is binder:
                if value is not None:
                    yield binder, value, item
        function = binder.function
        if function is not None and any(p.arg == expr.id for p in function.parameters):
            for module, call in self.program.callers(function):
                given = (self.program.arguments(function, call) or {}).get(expr.id)
                if given is not None:
                    yield module.scope_of(call), given, ()

    def _made_on(self, scope: Scope, call: ast.Call, depth: int) -> On:
        func = call.func
        name = self.program.dotted(scope, func) or ""
        last = syntax.last(func)
        asked = next((k.value for k in call.keywords if k.arg == "device"), None)
        if asked is not None:
            return _device(asked)
        if name.startswith("torch.") and name.count(".") == 1 and last in MAKING:
            return "?" if any(word in scope.module.text for word in DEFAULTS[:2]) else "host"
        if isinstance(func, ast.Attribute) and not name:
            if last in ("cpu", "numpy"):
                return "host"
            if last == "cuda":
                return "device"
            if last == "to":
                plain = next((a for a in call.args if not _is_dtype(a)), None)
                return _device(plain) if plain is not None else self.on(scope, func.value, depth + 1)
            return self.on(scope, func.value, depth + 1)
        if name.startswith("torch.") and call.args:  # an operation: where its first tensor is
            return self.on(scope, call.args[0], depth + 1)
        return "?"

    def half(self, scope: Scope, expr: ast.expr, depth: int = 0) -> bool:
        """Whether a value may come from an autocast region, in which it may be half already."""
        if depth > DEPTH:
            return True
        if expr in self._half:
            return self._half[expr]
        self._half[expr] = False
        self._half[expr] = found = any(self._comes(scope, node, depth) for node in _read(expr))
        return found

    def _comes(self, scope: Scope, node: ast.expr, depth: int) -> bool:
        module = scope.module
        if isinstance(node, ast.Call):
            region = self.regions.nearest(module, node)
            if region is not None and not region.off:
                return True
            for function in self.program.callees(module, node):
                for n in syntax.own_nodes(function.node):
                    if isinstance(n, ast.Return) and n.value is not None:
                        inner = self.regions.nearest(function.module, n)
                        if inner is not None or self.half(function.scope, n.value, depth + 1):
                            return True
            return False
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        last = value_above(scope, node) if isinstance(node, ast.Name) else None
        given = [(scope, last)] if last is not None else [(where, v) for where, v, _ in self._given(scope, node)]
        if any(self._assigned(where, value, depth) for where, value in given):
            return True
        later = put_later(module).get(node.id, ()) if isinstance(node, ast.Name) else ()
        held = [p.value for p in later if isinstance(p.holder, ast.Name)]
        return any(self._assigned(module.scope_of(value), value, depth) for value in held)

    def _assigned(self, scope: Scope, value: ast.expr, depth: int) -> bool:
        region = self.regions.nearest(scope.module, value)
        if region is not None and not region.off and not _floats(value):
            return True
        return self.half(scope, value, depth + 1)


def _all(found: set[On]) -> On:
    """Where all of several tensors are; one on a device among others that are not seen says enough."""
    found = found - {"nothing"}
    if len(found) == 1:
        return next(iter(found))
    return "device" if "device" in found and "host" not in found else "?"


def _read(expr: ast.expr) -> list[ast.expr]:
    """What an expression takes its dtype from: the names and calls in it that no `.float()` is around, but
    for keys and tests."""
    found: list[ast.expr] = []
    todo: list[ast.AST] = [expr]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.expr) and _floats(node):
            continue
        if isinstance(node, ast.Compare):
            continue
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            found.append(node)
        if isinstance(node, ast.Subscript):
            todo.append(node.value)
            continue
        if isinstance(node, ast.IfExp):
            todo += [node.body, node.orelse]
            continue
        if isinstance(node, ast.Attribute):
            if not isinstance(node.value, ast.Name):
                todo.append(node.value)
            continue
        todo += syntax.children(node)
    return found


def _floats(expr: ast.expr) -> bool:
    """`x.float()`."""
    return (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and expr.func.attr in ("float", "double", "item")
        and not expr.args
    )


def _is_dtype(expr: ast.expr) -> bool:
    text = syntax.text(expr)
    return text.startswith(("torch.float", "torch.half", "torch.bfloat", "torch.int", "torch.long", "torch.double"))


def _device(expr: ast.expr) -> On:
    if isinstance(expr, ast.Constant):
        return "host" if expr.value == "cpu" else "device"
    if isinstance(expr, ast.Call) and expr.args and syntax.text(expr.func).endswith("device"):
        return _device(expr.args[0])
    return "?" if "cpu" in syntax.text(expr).lower() else "device"
