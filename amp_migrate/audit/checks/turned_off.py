"""What turned mixed precision off for some runs, and went with Apex: told where it is still asked for.

Proved: a statement under a test gave a name None, False or an empty text, it is gone and nothing in its place does so, nor is
the name given that in the same branch; the name is read in a test of the program still. What stands where a machine has no Apex is
asked about by `settings_gone.py`. Not proved: that the branches which read it are those of mixed precision.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.installed import asks
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `whole.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        flags = both.before.installed.flags(change.before)
        for old in statements(change.before.tree):
            if not isinstance(old, ast.Assign) or not isinstance(old.value, ast.Constant) or old.value.value:
                continue
            if isinstance(old.value.value, (int, float)) and old.value.value is not False:
                continue
            test = _under(change, old)
            if test is None or change.back.get(old) is not None or asks(test, flags) is not None:
                continue
            names = [t for t in old.targets if isinstance(t, (ast.Name, ast.Attribute))]
            switch = next((n for n in names if _asked_by(test, n) and _asked_still(change, n)), None)
            if switch is not None and not _as_given(change, old):
                message = (
                    f"runs for which `{syntax.text(test)}` held had {syntax.text(old)} from here on, and nothing sets that now: they "
                    f"take the branches that {syntax.text(switch)} chooses, in mixed precision, where they ran without it"
                )
                yield Doubt(change.path, old.lineno, "AMP532", syntax.text(old), message, "review", told_by=("AMP120",))


def _under(change: Change, stmt: ast.stmt) -> ast.expr | None:
    """The test of the `if` in whose first branch a statement stands."""
    around = change.before.parents.get(stmt)
    return around.test if isinstance(around, ast.If) and stmt in around.body else None


def _asked_by(test: ast.expr, name: ast.expr) -> bool:
    """Whether a test asks for what is turned off under it."""
    return any(syntax.text(n) == syntax.text(name) for n in syntax.walk(test))


def _asked_still(change: Change, name: ast.expr) -> bool:
    tests = (n.test for n in syntax.walk(change.after.tree) if isinstance(n, (ast.If, ast.IfExp)))
    return any(_asked_by(test, name) for test in tests)


def _as_given(change: Change, old: ast.Assign) -> bool:
    """Whether what the name is given to begin with is all that is left of it."""
    wanted = {syntax.text(t) for t in old.targets}
    given = [
        n.value for n in syntax.every(change.after.tree, ast.Assign) if wanted & {syntax.text(t) for t in n.targets}
    ]
    return bool(given) and all(syntax.text(v) == syntax.text(old.value) for v in given)
