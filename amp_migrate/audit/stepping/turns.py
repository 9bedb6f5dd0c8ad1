"""Which tests tell one turn of a loop from another: those that ask a number which counts the turns, in whatever words."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import Facts, constant
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.stepping.bodies import Bodies

DEEPEST = 3  # names and functions


@kept
def counts(bodies: Bodies, module: Module, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test counts: `(i + 1) % n == 0`, a flag or a function that gives that, `self.micro == n` of what is counted by
    hand."""
    for node in syntax.walk(test) if depth < DEEPEST else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and syntax.text(node) in _counted(module):
            return True
        if isinstance(node, ast.Name) and (owner := module.scope_of(node).binder(node.id)) is not None:
            given = (s.value for s in owner.bindings[node.id] if isinstance(s, ast.Assign))
            if any(counts(bodies, module, value, depth + 1) for value in given):
                return True
        for function in bodies.callees(module, node) if isinstance(node, ast.Call) else ():
            given = (r.value for r in syntax.every(function.node, ast.Return) if r.value is not None)
            if any(counts(bodies, function.module, value, depth + 1) for value in given):
                return True
    return False


@kept
def _counted(module: Module) -> frozenset[str]:
    """What a file counts by hand, up or down: `self.micro += 1`, `left -= 1`."""
    counted = (s for s in syntax.every(module.tree, ast.AugAssign) if isinstance(s.op, (ast.Add, ast.Sub)))
    return frozenset(syntax.text(s.target) for s in counted if isinstance(s.value, ast.Constant))


def first_turn(loop: ast.For) -> Facts:
    """What is known, in the first turn of a loop, of the number that it counts its turns by from 0: `for i, x in enumerate(xs)`."""
    call = loop.iter if isinstance(loop.iter, ast.Call) and not loop.iter.keywords else None
    kind = syntax.text(call.func) if call is not None and len(call.args) == 1 else ""
    pair = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    number = loop.target if kind == "range" else pair[0] if kind == "enumerate" and pair else None
    if not isinstance(number, ast.Name):
        return frozenset()
    return frozenset(constant(number.id, ast.Constant(0)))
