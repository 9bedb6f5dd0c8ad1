"""Readers to which a positive factor on all gradients makes no difference: they may read scaled ones.

Adversarial training moves the embeddings along `epsilon * p.grad / p.grad.norm()` or `p.grad.sign()` between two backwards,
where gradients cannot be unscaled yet. What is computed from gradients of scale s is proportional to a power of s, its
degree; code whose every effect has degree 0 sees only the direction.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import called_name, dotted, is_none
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.tree import children, walk

# Functions and methods of tensors whose result has the degree of what they are given.
KEEPING = frozenset(
    "norm vector_norm matrix_norm abs clone detach detach_ float double to cuda cpu view reshape flatten squeeze "
    "unsqueeze contiguous item sum mean max min amax amin expand_as".split()
)
CHOOSING = ("max", "min")  # of one tensor; `max(norm, 1e-6)` is of no degree
FREE = frozenset("sign zero_".split())  # of degree 0 whatever they are given
CHECKS = frozenset("isnan isinf isfinite".split())  # so are these, but what they find may decide on the step
PRODUCTS = {"mul": 1, "multiply": 1, "div": -1, "divide": -1, "true_divide": -1}


class Directions:
    """The degrees in one function or at module level."""

    def __init__(self, module: Module, scope: Scope) -> None:
        self.module = module
        self.scope = scope
        self.names: dict[str, int] = {}  # local names of a degree other than 0
        inner = (*FUNCTION_NODES, ast.ClassDef)  # scopes of their own
        own = (n for s in scope.body if not isinstance(s, inner) for n in _own(s))
        self.grads = [n for n in own if isinstance(n, ast.Attribute) and is_read(module, n)]
        self.free = (
            bool(self.grads)
            and not any(_decides(n) for s in scope.body for n in _own(s))
            and self._settles()
            and all(map(self._own_name, self.names))
        )

    def _settles(self) -> bool:
        """Whether every statement holds, also with the names as a loop's last pass left them."""
        while True:
            before = dict(self.names)
            if not all(self._holds(s) for s in self.scope.body):
                return False
            if before == self.names:
                return True

    def _holds(self, stmt: ast.stmt) -> bool:
        """Whether a statement and all in it have effects of degree 0 only."""
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
            return True  # a scope of its own
        if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and stmt.value is not None:
            return self._assigns(stmt, stmt.value)
        if isinstance(stmt, ast.Expr):
            return self._degree(stmt.value) is not None  # the value is dropped
        for child in children(stmt):
            if isinstance(child, ast.stmt):
                if not self._holds(child):
                    return False
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                if not all(self._holds(s) for s in child.body):
                    return False
            elif any(self._degree(e) != 0 for e in _expressions(child)):
                return False
        return True

    def _assigns(self, stmt: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr) -> bool:
        degree = self._degree(value)
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        if degree is None or len(targets) != 1:
            return degree == 0
        target = targets[0]
        if isinstance(target, ast.Name):
            if isinstance(stmt, ast.AugAssign):
                return self.names.get(target.id, 0) == degree and (degree == 0 or _adds(stmt))
            known = self.names.get(target.id, degree)
            if degree:
                self.names[target.id] = degree
            return known == degree
        if isinstance(target, ast.Attribute) and target.attr == "grad":  # gradients are put back, or scaled themselves
            return degree == (0 if isinstance(stmt, ast.AugAssign) and not _adds(stmt) else 1)
        if any(self._degree(c) != 0 for c in children(target)):
            return False
        return degree == 0 or (degree == 1 and isinstance(stmt, ast.Assign) and self._keeps(target))

    def _keeps(self, target: ast.expr) -> bool:
        """`self.backup[name] = p.grad` where all that is ever read from there is put back."""
        store = target.value if isinstance(target, ast.Subscript) else None
        if not isinstance(store, ast.Attribute) or dotted(store) is None:
            return False
        loads = [n for n in self.module.of(ast.Attribute) if n.attr == store.attr]
        return all(self._put_back(n) for n in loads if isinstance(n.ctx, ast.Load))

    def _put_back(self, store: ast.Attribute) -> bool:
        entry = self.module.parents.get(store)
        if isinstance(entry, ast.Compare):
            return True  # `name in self.backup`
        stmt = self.module.parents.get(entry) if isinstance(entry, ast.Subscript) else None
        if not isinstance(stmt, ast.Assign):
            return False
        return entry in stmt.targets or all(isinstance(t, ast.Attribute) and t.attr == "grad" for t in stmt.targets)

    def _own_name(self, name: str) -> bool:
        """Whether a name is this scope's, only ever assigned, and read in no other."""
        assigned = (self.module.parents.get(b) for b in self.scope.bindings.get(name, ()))
        if name in self.scope.params or not all(
            isinstance(a, (ast.Assign, ast.AnnAssign, ast.AugAssign)) for a in assigned
        ):
            return False
        return self.scope.lookup(name) is self.scope and not any(
            other is not self.scope and other.lookup(name) is self.scope
            for other in map(self.module.scope_of, self.module.loads.get(name, []))
        )

    def _degree(self, node: ast.AST) -> int | None:
        """The power of the scale that an expression is proportional to; None where it is to none."""
        if is_read(self.module, node):
            return 1
        if isinstance(node, ast.Name):
            return self.names.get(node.id, 0)
        if isinstance(node, ast.Attribute) and node.attr in ("data", "T"):
            return self._degree(node.value)
        if isinstance(node, ast.UnaryOp):
            return self._degree(node.operand)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return 0 if all(self._degree(c) == 0 for c in children(node)) else None

    def _arithmetic(self, node: ast.BinOp) -> int | None:
        left, right = self._degree(node.left), self._degree(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left + right
        if isinstance(node.op, ast.Div):
            return left - right
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return left if left == right else None
        return 0 if left == right == 0 else None

    def _comparison(self, node: ast.Compare) -> int | None:
        """Comparing with 0, with None, or things of one degree with each other."""
        degrees = [self._degree(node.left)]
        for other in node.comparators:
            degrees.append(degrees[0] if isinstance(other, ast.Constant) and not other.value else self._degree(other))
        return 0 if degrees[0] is not None and len(set(degrees)) == 1 else None

    def _asked(self, node: ast.Call) -> bool:
        """Whether a check stands in the test of a branch of this scope, and what it finds is not kept."""
        stmt = self.module.statement(node)
        return isinstance(stmt, (ast.If, ast.While)) and any(n is node for n in walk(stmt.test))

    def _call(self, node: ast.Call) -> int | None:
        name = called_name(node)
        of_module = (self.module.qualify(node.func) or "").startswith("torch.")
        values = [*node.args]
        if isinstance(node.func, ast.Attribute) and not of_module:
            values.insert(0, node.func.value)
        degrees = [self._degree(v) for v in values]
        rest = degrees[1:] + [self._degree(k.value) for k in node.keywords]
        if not isinstance(node.func, ast.Attribute) and self._degree(node.func) != 0:
            return None
        if not any(d != 0 for d in (*degrees, *rest)):
            return 0
        if not values or degrees[0] is None or any(d is None for d in rest):
            return None
        if isinstance(node.func, ast.Name) and not of_module and name not in ("float", "abs"):
            return None  # not one of torch, whatever its name
        if name in PRODUCTS and len(degrees) == 2 and degrees[1] is not None:
            return degrees[0] + PRODUCTS[name] * degrees[1]
        if degrees[0] == 0 or (name in CHOOSING and len(values) > 1):
            return None
        if name in CHECKS:
            return 0 if self._asked(node) else None
        if name in FREE:
            return 0
        return degrees[0] if name in KEEPING and not any(rest) else None


def is_read(module: Module, node: ast.AST) -> bool:
    """Whether an expression reads a gradient: `p.grad`, also to add to it, `p.grad += decay * p`."""
    if not isinstance(node, ast.Attribute) or node.attr != "grad":
        return False
    parent = module.parents.get(node)
    return isinstance(node.ctx, ast.Load) or (
        isinstance(parent, ast.AugAssign) and parent.target is node and _adds(parent)
    )


def _decides(node: ast.AST) -> bool:
    """Whether a part of a scope steps, or tells others what gradients are like: on an overflow the scale must fall,
    also where a check of the gradients then skips the step."""
    if isinstance(node, ast.Return):
        return node.value is not None and not is_none(node.value)
    if isinstance(node, ast.Assign):
        flags = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
        return flags and any(isinstance(t, ast.Attribute) for t in node.targets)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "step"
    return isinstance(node, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal))


def _adds(stmt: ast.AugAssign) -> bool:
    return isinstance(stmt.op, (ast.Add, ast.Sub))


def _own(stmt: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that belong to its scope."""
    waiting = [stmt]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [c for c in reversed(children(node)) if not isinstance(c, (*FUNCTION_NODES, ast.ClassDef))]


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost expressions of a part of a statement, such as the items of a with statement."""
    if isinstance(node, ast.expr):
        yield node
    else:
        for child in children(node):
            yield from _expressions(child)
