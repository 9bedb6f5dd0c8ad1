"""What no import of Apex reached raised a NameError with Apex, too: it is not migrated as if it had run.

`from apex import amp` in one function binds nothing in another. Proved for uses of `amp` and `apex` that Python's scoping
binds nowhere, in files without star imports: their statements stand as they did.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP134: see `untouched.py`
PARTS = {
    "amp": {"initialize", "scale_loss", "master_params"},
    "apex": {"amp", "parallel", "optimizers", "normalization"},
}


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        before = change.before
        if before.stars or before.words.isdisjoint(PARTS):
            continue
        for node in syntax.every(before.tree, ast.Attribute):
            base = node.value
            if not isinstance(base, ast.Name) or node.attr not in PARTS.get(base.id, ()):
                continue
            stmt = before.statement(node)
            if before.scope_of(base).binder(base.id) is not None or stmt in change.same.values():
                continue
            now = change.back.get(stmt)
            if now is not None and syntax.text(node) in syntax.text(now):
                continue
            message = (
                f"no import binds {base.id} here: {syntax.text(node)} raised a NameError with Apex, too, and mixed precision in its "
                "place was never there"
            )
            yield Doubt(change.path, node.lineno, "AMP134", f"{base.id}.{node.attr}", message)
