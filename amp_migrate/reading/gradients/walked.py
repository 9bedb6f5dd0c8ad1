"""What the walk over all paths asks of single statements and calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, WITH_NODES, Module
from amp_migrate.reading.program.tree import children, spelled, walk
from amp_migrate.reading.program.view import Node, chain
from amp_migrate.reading.units.unit import Step, Unit

KNOWN = frozenset("range print len zip enumerate list tuple int float str min max sum torch time logging tqdm".split())
_LEAVES = frozenset({ast.Name, ast.Constant})
EXITS = frozenset(("sys.exit", "os._exit", "os.abort", "exit", "quit"))


def leaves(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement ends the program: `sys.exit(1)`."""
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return False
    return (module.qualify(stmt.value.func) or spelled(stmt.value.func)) in EXITS


def leaving(node: Node, in_loop: bool = False) -> Iterator[ast.stmt]:
    """What leaves the code around a statement: a `return`, and a `continue` or `break` of no loop within it."""
    if isinstance(node.stmt, ast.Return) or (isinstance(node.stmt, (ast.Continue, ast.Break)) and not in_loop):
        yield node.stmt
    if isinstance(node.stmt, (*FUNCTION_NODES, ast.ClassDef)):
        return
    for block in node.blocks:
        for inner in block.nodes:
            yield from leaving(inner, in_loop or isinstance(node.stmt, LOOP_NODES))


def known(module: Module, call: ast.Call) -> bool:
    """Whether a call of something out of sight is one that runs no backward."""
    name = module.qualify(call.func) or spelled(call.func)
    return name.partition(".")[0] in KNOWN or name.rpartition(".")[2] in ("zero_grad", "step", "item")


def counted(unit: Unit, step: Step) -> bool:
    """Whether a step is made under a condition on what changes from batch to batch: a count of the backwards."""
    tests = [a.test for a in step.module.ancestors(step.stmt) if isinstance(a, ast.If)]
    scaled_in = {a for x in unit.losses if x.module is step.module for a in step.module.ancestors(x.with_stmt)}
    set_there = {
        ast.unparse(n)
        for loop in scaled_in
        if isinstance(loop, LOOP_NODES)
        for n in walk(loop)
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
    }
    return any(
        ast.unparse(n) in set_there
        for test in tests
        if not _divides(test)
        for n in walk(test)
        if isinstance(n, (ast.Name, ast.Attribute))
    )


def _divides(test: ast.expr) -> bool:
    """Whether a condition asks for the rest of a division to be none, `count % steps == 0`, as it is for no count at all."""
    if isinstance(test, ast.BoolOp):
        return any(_divides(v) for v in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return isinstance(test.operand, ast.BinOp) and isinstance(test.operand.op, ast.Mod)
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.BinOp)
        and isinstance(test.left.op, ast.Mod)
        and isinstance(test.ops[0], ast.Eq)
    )


def managed(node: Node, call: ast.Call) -> bool:
    """A backward of what the with statement around it yields: the call in its header was followed in its place."""
    root = spelled(call.func).partition(".")[0]
    return any(
        isinstance(link.stmt, WITH_NODES)
        and any(isinstance(i.optional_vars, ast.Name) and i.optional_vars.id == root for i in link.stmt.items)
        for link in chain(node)
    )


def evaluated(node: Node) -> Sequence[ast.AST]:
    """The expressions of a statement in the order of their evaluation: what is passed before the call it is passed to."""
    found: list[ast.AST] = []
    _evaluated(node.stmt, found)
    return found


def _evaluated(part: ast.AST, found: list[ast.AST]) -> None:
    kind = type(part)
    if kind is ast.Lambda:
        return
    if kind not in _LEAVES:
        for child in children(part):
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                _evaluated(child, found)
    found.append(part)
