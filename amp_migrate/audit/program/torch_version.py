"""What tests of torch's version come to with every torch that can run a migrated program: it has `torch.amp.GradScaler`."""

from __future__ import annotations

import ast
import re

from amp_migrate.audit.kept import kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

FIRST = (2, 3)
_VERSION = re.compile(r"(?<![\w.])(\d+)(?:\.(\d+)|, (\d+))")


def by_version(module: Module, test: ast.expr) -> bool | None:
    """How a test comes out whichever such torch is there; None where it asks anything else, or about newer ones."""
    if "__version__" not in module.text:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = by_version(module, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.Or)
        parts = [by_version(module, value) for value in test.values]
        return decides if decides in parts else None if None in parts else not decides
    if isinstance(test, ast.Name):
        return _by_name(module, test.id)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    op = type(test.ops[0])
    left, right = _written(module, test.left), _written(module, test.comparators[0])
    if "torch.__version__" in right:
        left, right = right, left
        op = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}.get(op, op)
    if "torch.__version__" not in left or left.count("__version__") > 1 or "__version__" in right or "len(" in left:
        return None
    number = _VERSION.search(right)
    if number is None:
        return None
    asked = int(number[1]), int(number[2] or number[3])
    if asked > FIRST or (asked == FIRST and op not in (ast.Lt, ast.GtE)):
        return None
    return {ast.Lt: False, ast.LtE: False, ast.Eq: False, ast.Gt: True, ast.GtE: True, ast.NotEq: True}.get(op)


@kept_meanwhile(lambda: None)  # `new = new and torch.__version__ >= "1.6"`, `if new: new = False`
def _by_name(module: Module, name: str) -> bool | None:
    """The same of a name that the file gives a value once, and of a flag that only a branch for older torches sets to
    something else."""
    bound = module.top.bindings.get(name, ())
    if len(bound) == 1:
        return by_version(module, bound[0].value) if isinstance(bound[0], ast.Assign) else None
    if any(name in (*scope.bindings, *scope.outer) for scope in module.scopes if scope is not module.top):
        return None
    given: dict[ast.AST, object] = {}
    for stmt in bound:
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        given[stmt] = value.value if isinstance(value, ast.Constant) else None
    met = {value for stmt, value in given.items() if not never_met(module, stmt)}
    return met == {True} if set(given.values()) == {True, False} and len(met) == 1 else None


def never_met(module: Module, node: ast.AST) -> bool:
    """Whether a place stands in the branch of a test that only an older torch takes."""
    child = node
    for at in module.ancestors(node) if "__version__" in module.text else ():
        if isinstance(at, ast.If):
            told = by_version(module, at.test)
            if told is not None and any(child is s for s in (at.orelse if told else at.body)):
                return True
        child = at
    return False


def _written(module: Module, expr: ast.expr) -> str:
    """The text of an operand, with that of names which the file binds once, at its top."""
    text = syntax.text(expr)
    for name in {n.id for n in syntax.every(expr, ast.Name)}:
        bound = module.top.bindings.get(name, ())
        if len(bound) == 1 and isinstance(bound[0], ast.Assign):
            value = syntax.text(bound[0].value)
            text = re.sub(rf"\b{re.escape(name)}\b", value.replace("\\", r"\\"), text)
    return text
