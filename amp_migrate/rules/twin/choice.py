"""Who asked for Apex gets the native branch: the two ways to choose become one.

`if args.apex_amp and has_apex: use_amp = "apex" elif args.native_amp and has_native_amp: use_amp = "native"` becomes
`if args.apex_amp or args.native_amp: use_amp = "native"`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.reading.conditions.chains import Link, heads, links
from amp_migrate.reading.conditions.conjunctions import disjuncts
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.twin.flags import native_flags
from amp_migrate.reading.twin.sides import NativeTwin, flat, residue
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Edits, joined


def join_choices(m: Migration, module: Module, twin: NativeTwin) -> None:
    """Rewrite the chains of a module in which one link chose Apex and another the native side."""
    for head in heads(module):
        chain = links(head)
        if not _installed(m, module, chain):
            _chain(m, module, twin, chain)


def fold_native_flags(m: Migration, module: Module) -> None:
    """Tests whether torch has mixed precision, which it has: they go, and the flags with them once nothing asks."""
    edits = m.edit(module)
    flags = native_flags(m.project, module)
    if not flags.statements:
        return
    for node in module.nodes:
        if edits.gone(node) or (isinstance(node, ast.stmt) and node in edits.statements):
            continue
        value = flags.value(node.test) if isinstance(node, (ast.If, ast.Assert)) else None
        if isinstance(node, ast.Assert) and value is True:
            edits.delete(node)
        elif isinstance(node, ast.If) and value is not None:
            edits.fold(node, "body" if value else "orelse", about_apex=not value)
        elif isinstance(node, ast.If) and node.test not in edits.expressions:
            kept = residue(m.project, module, node.test)
            asks = isinstance(node.test, ast.BoolOp) and any(flags.value(v) for v in node.test.values)
            if kept and asks:
                edits.replace(node.test, joined(kept, " and "))
    for name, statements in flags.statements.items():
        if all(edits.gone(n) for n in module.loads.get(name, ())) and not m.project.hands_on(module, name):
            for stmt in statements:
                edits.delete(stmt)


def _installed(m: Migration, module: Module, chain: Sequence[Link]) -> bool:
    """`if has_apex: args.apex_amp = True elif has_native_amp: args.native_amp = True`: the native side is there."""
    flags, available = native_flags(m.project, module), availability(m.project, module)
    for index, link in enumerate(chain):
        if link.test is not None and flags.value(link.test) is True:
            if not any(x.test is not None and available.value(x.test) is True for x in chain):
                return False
            _leave(m.edit(module), chain, index)
            return True
        if link.test is None or available.value(link.test) is None or not all(map(_sets_constant, link.body)):
            return False
    return False


def _chain(m: Migration, module: Module, twin: NativeTwin, chain: Sequence[Link]) -> None:
    edits = m.edit(module)
    tested = next((x for x in chain if x.test is not None and twin.joined.get(x.node) is not None), None)
    if tested is not None and tested.test is not None:
        kept = residue(m.project, module, tested.test)
        if kept:
            _ask(edits, tested.test, kept, [twin.joined[tested.node]])
        return
    mine = [x for x in chain if twin.only_chooses(module, x.body)]
    native = [x for x in chain if any(map(twin.chooses_native, flat(m.project, module, x.body)))]
    if len(mine) != 1 or len(native) != 1:
        return
    (apex,), (other,) = mine, native
    at, there = chain.index(apex), chain.index(other)
    if apex.test is None or other.test is None:
        # `else` takes what is left: it answers to both once the other link is gone.
        if len(chain) == 2:
            _leave(edits, chain, there)
        elif other.test is None:
            _drop(edits, apex)
        return
    asked, also = residue(m.project, module, apex.test), residue(m.project, module, other.test)
    if asked is None or also is None or abs(at - there) != 1:
        return
    if not asked or not also:
        if min(at, there) == 0:
            _leave(edits, chain, there)
        return
    _drop(edits, apex)
    first, second = (asked, also) if at < there else (also, asked)
    _ask(edits, other.test, first, second)
    answered = {ast.dump(part) for kept in (asked, also) if len(kept) == 1 for part in disjuncts(kept[0])}
    for link in chain[max(at, there) + 1 :]:
        if link.test is not None and all(ast.dump(part) in answered for part in disjuncts(link.test)):
            _drop(edits, link)  # both have been answered above


def _leave(edits: Edits, chain: Sequence[Link], index: int) -> None:
    """Leave the body of one link, where those before it go."""
    for link in chain[:index]:
        if link.node is not chain[index].node:
            edits.splice(link.node, "orelse", about_apex=True)
    edits.splice(chain[index].node, "orelse" if chain[index].test is None else "body", about_apex=True)


def _drop(edits: Edits, link: Link) -> None:
    edits.fold(link.node, "orelse", about_apex=True)


def _ask(edits: Edits, test: ast.expr, first: Sequence[ast.expr], second: Sequence[ast.expr]) -> None:
    """Let a test be true where one or the other is; the test itself may be one of them."""
    if list(first) == [test]:
        edits.insert("after", test, (" or ", *_bracketed(second)))
    elif list(second) == [test]:
        edits.insert("before", test, (*_bracketed(first), " or "))
    else:
        edits.replace(test, (*_bracketed(first), " or ", *_bracketed(second)))


def _bracketed(parts: Sequence[ast.expr]) -> tuple[str | ast.expr | ast.stmt, ...]:
    code = joined(parts, " and ")
    simple = len(parts) == 1 and not isinstance(parts[0], (ast.IfExp, ast.Lambda, ast.NamedExpr))
    return code if simple else ("(", *code, ")")


def _sets_constant(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant)
