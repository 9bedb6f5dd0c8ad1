"""A program that trained natively where Apex was missing still does: `try: amp.initialize(...)`, `except: scaler = GradScaler()`.

Proves that such a scaler is still made. Cannot prove that what stands in its place covers the same statements: Apex's side
and the native one have regions of their own, which is why the unit is left to who knows which of them is to stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.review import Review, names_called
from amp_migrate.audit.sites.setups import INITIALIZE
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`


def check(review: Review) -> Iterable[Doubt]:
    if not any("autocast" in m.text for m in review.before.modules.values()):
        return
    for change in review.changes.values():
        if "GradScaler" in change.before.text and "initialize" in change.before.text:
            yield from _gone(review, change)


def _gone(review: Review, change: Change) -> Iterable[Doubt]:
    """The scalers that a failing `initialize` left to the program, and that are made no more."""
    before = change.before
    for stmt in statements(before.tree):
        if not isinstance(stmt, ast.Try) or not any(
            INITIALIZE in names_called(review.before, before, s) for s in stmt.body
        ):
            continue
        for made in (s for h in stmt.handlers for s in h.body):
            if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call):
                continue
            name = review.before.dotted(before.scope_of(made), made.value.func)
            if name in GRAD_SCALER and not _made_anew(change, made):
                target = syntax.text(made.targets[0])
                message = (
                    f"where Apex is missing, initialize fails here and {target} is the program's own GradScaler: it trains "
                    "with autocast where it opens that itself, and Apex's side covers other statements. Keep what stands under "
                    "except, and delete the try with all that only Apex's side needs"
                )
                yield Doubt(change.path, made.lineno, "AMP133", target, message, "refuse")
                break


def _made_anew(change: Change, made: ast.Assign) -> bool:
    """Whether that function still gives the same name a GradScaler: the native side reads it."""
    function, target = change.before.name_around(made), syntax.text(made.targets[0])
    return any(
        isinstance(new, ast.Assign)
        and "GradScaler" in syntax.text(new.value)
        and change.after.name_around(new) == function
        and target in map(syntax.text, new.targets)
        for new in statements(change.after.tree)
    )
