"""Which gradients are put in the place of a process's own: a collective of torch's, or a call out of sight that gives them."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program

_COLLECTIVE = re.compile(r"^(all_?reduce|all_?gather|reduce_scatter|reduce|broadcast|all_to_all)(_|$)")
_LIBRARIES = ("torch.distributed.", "horovod.")
_WRITES = frozenset({"copy_", "set_"})
_LOCAL = ("torch.", "numpy.", "copy.", "math.", "functools.", "itertools.", "scipy.")  # of one process


def exchanged(program: Program, module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Where a gradient of another process may come in, and whose gradient it is: `dist.all_reduce(p.grad)`, `new =
    compressor.step(p.grad, name)` and `p.grad = new`."""
    for grad in syntax.every(module.tree, ast.Attribute):
        if grad.attr != "grad":
            continue
        value = _written(module, grad)
        if value is not None:
            if any(_brings(program, module, c) for c in _values(module, value)):
                yield grad, grad.value
            continue
        whole = _whole(module, grad)
        call = module.parents.get(whole)
        if isinstance(call, ast.Call) and whole in call.args and _collective(program, module, call):
            yield call, grad.value


def _whole(module: Module, grad: ast.AST) -> ast.AST:
    """A gradient with what is said of the same memory: `p.grad.data`."""
    parent = module.parents.get(grad)
    return parent if isinstance(parent, ast.Attribute) and parent.attr == "data" else grad


def _written(module: Module, grad: ast.Attribute) -> ast.expr | None:
    """What a gradient is replaced by: `p.grad = value`, `p.grad.data = value`, `p.grad.copy_(value)`."""
    whole = _whole(module, grad)
    parent: ast.AST | None = module.parents.get(whole)
    if isinstance(parent, ast.Assign) and whole in parent.targets:
        return parent.value
    if isinstance(parent, ast.Attribute) and parent.attr in _WRITES:
        call = module.parents.get(parent)
        if isinstance(call, ast.Call) and call.func is parent and call.args:
            return call.args[0]
    return None


def _values(module: Module, value: ast.expr, depth: int = 0) -> Iterator[ast.Call]:
    """The calls that give a value: through the names of its function, and what is done to it in its own process."""
    if isinstance(value, ast.Call):
        yield value
        if isinstance(value.func, ast.Attribute):
            yield from _values(module, value.func.value, depth)
    elif isinstance(value, (ast.Attribute, ast.Subscript)):
        yield from _values(module, value.value, depth)
    elif isinstance(value, ast.BinOp):
        yield from _values(module, value.left, depth)
        if not isinstance(value.op, ast.Div):  # what divides is the size of one
            yield from _values(module, value.right, depth)
    elif isinstance(value, ast.Name) and depth < 3:
        for given in _given(module, value):
            yield from _values(module, given, depth + 1)


def _given(module: Module, name: ast.Name) -> list[ast.expr]:
    """What a name is given in the function in which it is read."""
    function = module.function_around(name)
    return [
        stmt.value
        for stmt in syntax.every(module.around(name), ast.Assign)
        if module.function_around(stmt) is function and any(syntax.text(t) == name.id for t in stmt.targets)
    ]


def _brings(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call that is given a gradient may give back one of other processes."""
    if not any(_of_gradient(module, given) for given in syntax.given(call)):
        return False
    name = program.dotted(module.scope_of(call), call.func)
    if name is not None and name.startswith(_LIBRARIES):
        return True
    if name is not None and name.startswith(_LOCAL):
        return False
    func = call.func
    if isinstance(func, ast.Name) and hasattr(builtins, func.id):
        return False
    if isinstance(func, ast.Attribute) and _of_gradient(module, func.value):
        return False  # a method of the tensor
    seen = [d for d in program.definitions(module.scope_of(call), func, guess=False) if isinstance(d, Function)]
    return not seen or any(_collective(program, f.module, c) for f in seen for c in syntax.every(f.node, ast.Call))


def _collective(program: Program, module: Module, call: ast.Call) -> bool:
    name = program.dotted(module.scope_of(call), call.func) or ""
    return name.startswith(_LIBRARIES) and _COLLECTIVE.match(name.rpartition(".")[2]) is not None


def _of_gradient(module: Module, expr: ast.AST, depth: int = 0) -> bool:
    """Whether an expression is made of a gradient, by its name too."""
    for node in syntax.walk(expr):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        if isinstance(node, ast.Name) and depth < 2:
            if any(_of_gradient(module, g, depth + 1) for g in _given(module, node)):
                return True
    return False
