"""What a machine without Apex did besides computing in float32, it goes on doing.

`if not mixed_precision: teacher.eval()` asks for Apex, and what it guards has nothing to do with precision. Proves: a call
that stood alone in a branch for want of Apex is still made, in whatever branch; else it is said.

Cannot prove that what a call does matters. Calls of the step are the business of others, and what only tells something goes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.without_apex import flags_of
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways import installed
from amp_migrate.audit.ways.within import leaves
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`

# A machine without Apex goes on making these calls in another form.
STEP = "backward step update unscale_ zero_grad clip_grad_norm_ clip_grad_value_ synchronize".split()
TELLING = re.compile(
    r"(.*\.)?_?(print|log|logger|logging|echo)|exit|quit|(.*\.)?(log\w*|warnings?|stdout|stderr|sys)\..*|.*\.(info|debug|warn\w*|error|write)"
)


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        flags = flags_of(review, change)
        for stmt in statements(change.before.tree) if flags else ():
            if isinstance(stmt, ast.If) and (there := installed.asks(stmt.test, flags)) is not None:
                without = stmt.orelse if there else stmt.body
                yield from _gone(change, [] if leaves(without) else without)


def _gone(change: Change, without: list[ast.stmt]) -> Iterator[Doubt]:
    for old in without:
        call = old.value if isinstance(old, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        called, own, new = syntax.text(call.func), change.before.name_around(old), change.back.get(old)
        same: list[ast.AST] = [new] if new is not None else []
        same += [c for c in change.after.calls() if syntax.text(c) == syntax.text(call)]
        if called.rpartition(".")[2] in STEP or TELLING.fullmatch(called):
            continue
        if any(change.after.name_around(s) == own for s in same):
            continue
        message = f"a machine without Apex ran {syntax.text(call)} here, which is more than precision, and nothing runs it now"
        yield Doubt(change.path, old.lineno, "AMP133", called, message, "review")
