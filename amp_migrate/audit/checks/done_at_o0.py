"""What stood in the block that scaled a loss is done at O0, too, where that block ran with a scale of 1.

A native side that is written beside Apex's scales nothing at O0: such a run takes the plain branch. Compared over all flags:
the runs at O0 that came to a call in the `with` statement of `scale_loss`, `optimizer.synchronize()` of Horovod's, with those
that come to such a call of the same function now.

Cannot prove anything where the conditions of both are not written with the same flags.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.scaled_at_o0 import at_o0
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.formulas import atoms, conjunction, disjunction, example, negation
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `switch.py`

SCALING = frozenset(("backward", "scale_loss", "print", "clip_grad_norm_", "clip_grad_value_", "zero_grad", "step"))


def check(review: Review) -> Iterable[Doubt]:
    if not any("scale_loss" in c.before.words for c in review.changes.values()):
        return
    both = mixed(review)
    for change in review.changes.values():
        for block in change.before.calls_named.get("scale_loss", ()):
            around = change.before.statement(block)
            if isinstance(around, ast.With):
                for call in _besides(around):
                    yield from _compared(both, change, call)


def _besides(block: ast.With) -> Iterator[ast.Call]:
    """What is called in a block for what it does, and has nothing to do with scaling."""
    for stmt in syntax.every(block, ast.Expr):
        if isinstance(stmt.value, ast.Call) and syntax.last(stmt.value.func) not in SCALING:
            yield stmt.value


def _compared(both: Mixed, change: Change, call: ast.Call) -> Iterator[Doubt]:
    text, last, function = syntax.text(call), syntax.last(call.func), change.before.name_around(call)
    before, after = both.before, both.after
    gone = before.chains.to(change.before, call)
    came = disjunction([before.predicates.given(way) for way in gone])
    was = conjunction([at_o0(both, tuple(gone)), came])
    beside = [
        c for c in change.before.calls_named.get(last, ()) if syntax.text(c) == text
    ]  # what is asked there is a flag on both sides
    ways = [way for c in beside for way in before.chains.to(change.before, c)]
    known = {atom for way in ways for atom in atoms(before.predicates.given(way))} | atoms(was)
    same = [
        c
        for c in change.after.calls_named.get(last, ())
        if syntax.text(c) == text and change.after.name_around(c) == function
    ]
    now = disjunction([after.predicates.given(way) for c in same for way in after.chains.to(change.after, c)])
    if not atoms(now) <= known or example(conjunction([was, negation(now)])) is None:
        return
    left = f", and is left to {', '.join(f'line {both.review.line(change.after, c)}' for c in same)}" if same else ""
    message = (
        f"{text} ran at O0 as well, in the block of scale_loss; a run at O0 takes the plain branch now, which does not call "
        f"it{left}. Call it there, too"
    )
    yield Doubt(change.path, call.lineno, "AMP532", syntax.text(call.func), message, "review")
