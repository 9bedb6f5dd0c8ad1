"""Who asked for Apex gets the native branch: the two ways to choose become one.

`if args.apex_amp and has_apex: use_amp = "apex" elif args.native_amp and has_native_amp: use_amp = "native"` becomes
`if args.apex_amp or args.native_amp: use_amp = "native"`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from amp_migrate.reading.conditions.chains import Link, heads, links
from amp_migrate.reading.conditions.conjunctions import conjunction, conjuncts, disjuncts
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.logic import LOOSE
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.switch.flag import Flag, distinct
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.reading.twin.branches import residue
from amp_migrate.reading.twin.flags import native_flags
from amp_migrate.reading.twin.sides import NativeTwin, flat
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Edits, joined


def join_choices(m: Migration, module: Module, twin: NativeTwin) -> None:
    """Rewrite the chains of a module in which one link chose Apex and another the native side."""
    for head in heads(module):
        chain = links(head)
        if not _installed(m, module, chain):
            _chain(m, module, twin, chain)


def join_flags(m: Migration, module: Module, twin: NativeTwin) -> None:
    """Let the flag of the native side be true where that of Apex was, and Apex on: of two that are computed one after the
    other, `apex = fp16 and level is not None` and `native = fp16 and level is None`."""
    for name, native in twin.flags.items():
        for _, mine in (found := twin.given(name)):
            block = module.block(mine) if len(found) == 1 and found[0][0] is module else []
            beside = [s for s in block if isinstance(s, ast.Assign) and abs(block.index(s) - block.index(mine)) == 1]
            theirs = next((s for s in beside if [ast.unparse(t) for t in s.targets] == [ast.unparse(native)]), None)
            if theirs is None or len(twin.given(ast.unparse(native))) != 1 or len(mine.targets) != 1:
                continue
            either = _either(m, module, (mine, theirs))
            if either is None and _same_without_apex(m, module, mine, theirs):
                twin.taken_over.add(mine)  # `fp16 and has_apex` beside `fp16 and not has_apex`
            if either is not None:
                m.edit(module).replace(theirs.value, either[0])
                twin.taken_over.add(mine)
                _ask_the_same(m, module, mine, native, either[1])


def _ask_the_same(m: Migration, module: Module, mine: ast.Assign, native: ast.expr, either: str) -> None:
    """`if not args.fp16: optimizer.synchronize()`, or `if not apex and not native:`, asks for the runs that take neither side,
    which did not call that in the block of `scale_loss`. At O0 a run takes neither now: the flag of the native side says so.
    """
    blocks = [loss.with_stmt for loss in m.unit.losses if loss.module is module]
    called = {ast.unparse(n) for block in blocks for n in walk(block) if isinstance(n, ast.Call)}
    neither = {f"not {ast.unparse(mine.targets[0])}", f"not {ast.unparse(native)}"}
    for node in module.of(ast.If):
        test = node.test
        asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
        parts = {ast.unparse(v) for v in test.values} if isinstance(test, ast.BoolOp) else set()
        same = asked is not None and _as_given(module, mine, ast.unparse(asked)) == either
        same = same or (parts == neither and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And))
        calls = [s.value for s in node.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
        only = len(calls) == len(node.body) and all(ast.unparse(c) in called for c in calls)
        if same and only and not node.orelse:
            if visible(m.project, ast.unparse(native), module.scope_of(mine), module.scope_of(node)):
                m.edit(module).replace(test, f"not {ast.unparse(native)}")


def _either(m: Migration, module: Module, flags: tuple[ast.Assign, ast.Assign]) -> tuple[str, str] | None:
    """What one flag or the other asks, where both are computed from something else; of the first, Apex's, less where a
    level switches it off. And the same with that; empty where none does."""
    scope, available = module.scope_of(flags[0]), availability(m.project, module)
    mine, theirs = (conjunction(module, available, s.value) for s in flags)
    asked = [init_flag(m.project, init) for init in m.unit.inits]
    apex, native = (ast.unparse(s.targets[0]) for s in flags)
    if not mine or not theirs or any(isinstance(s.value, ast.Constant) for s in flags):
        return None
    if any(flag.never for flag in asked) or len({flag.parts for flag in asked}) > 1:
        return None
    if f"not {apex}" in theirs:  # what else Apex asks for is not so, then
        rest = " and ".join(p for p in mine if p not in theirs)
        wanting = conjunction(module, available, module.imagine(rest, scope), negate=True) if rest else None
        theirs = [p for p in theirs if p != f"not {apex}"] + (wanting or [apex])
    mine = [p for p in mine if p != f"not {native}"]
    if any(ast.unparse(n) in (apex, native) for p in (*mine, *theirs) for n in walk(ast.parse(p))):
        return None
    parts = (asked[0].parts or ()) if asked else ()
    both = Flag(scope, distinct(theirs)).either(Flag(scope, distinct(mine))).text() if parts else ""
    for part in parts:
        if not visible(m.project, part, asked[0].scope, scope):
            return None
        mine.append(_as_given(module, flags[0], part))
    text = Flag(scope, distinct(theirs)).either(Flag(scope, distinct(mine))).text()
    text = text[1:-1] if module.written(ast.parse(text, mode="eval").body) == text[1:-1] else text
    new = " and ".join(p for p in mine if p not in theirs) or "True"
    return (text if as_bool(m.project, scope, new) == new else as_bool(m.project, scope, text)), both


def _same_without_apex(m: Migration, module: Module, mine: ast.Assign, theirs: ast.Assign) -> bool:
    """Whether two flags ask the same, but for whether Apex is installed: what is left of both is one condition."""
    available = availability(m.project, module)
    parts = [list(conjuncts(s.value)) for s in (mine, theirs)]
    asked = [{ast.dump(p) for p in found if available.value(p) is None} for found in parts]
    return asked[0] == asked[1] and all(len(found) > len(asked[0]) for found in parts)


def _as_given(module: Module, stmt: ast.Assign, text: str) -> str:
    """A condition with the parameters in it that an object keeps: `args` where `self.args = args` stands above."""
    scope = module.scope_of(stmt)
    stored = [n for n in walk(scope.node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    for kept in (s for s in module.block(stmt) if isinstance(s, ast.Assign) and s.lineno < stmt.lineno):
        value, written = kept.value, ast.unparse(kept.targets[0])
        if isinstance(value, ast.Name) and value.id in scope.params and len(scope.bindings[value.id]) == 1:
            if [ast.unparse(n) for n in stored].count(written) == 1:
                text = re.sub(rf"(?<![\w.]){re.escape(written)}(?!\w)", value.id, text)
    return text


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
    simple = len(parts) == 1 and not isinstance(parts[0], LOOSE)
    return code if simple else ("(", *code, ")")


def _sets_constant(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant)
