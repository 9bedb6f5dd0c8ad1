"""A run that came by Apex, where a native side of the program's own stands beside it, has that side now.

Proves: where the migration makes no GradScaler of its own, and the program had one beside Apex, that one is made in every run
that came by `initialize`. A choice that a variable keeps (`use_amp = "apex"`) is asked for where it is made. Cannot prove it of
choices that come from out of sight, nor of scalers that a library makes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.ways.formulas import (
    atoms,
    conjunction,
    disjunction,
    example,
    matter,
    minimal,
    negation,
    spelled,
)
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    own = _own_scalers(both) if both.removed else []
    if not own:
        return
    for setup in both.removed:
        if setup.module.path not in review.changes:
            continue
        near = {m.path for m in both.nearness.files([setup.module])}
        ways = [w for module, call in own if module.path in near for w in both.after.chains.to(module, call)]
        made = disjunction(both.after.predicates.given(w, loops=False) for w in ways)
        for way in both.before.chains.to(setup.module, setup.call) if ways else ():
            lost = conjunction([both.on(setup, way), negation(made)])
            unknown = any(" == " in a or " is " in a for a in atoms(lost))
            if unknown or (found := example(lost)) is None:
                continue
            when = matter(minimal(lost, found), True, lost)
            message = (
                f"Apex was set up here{spelled(when)}, and the program's own GradScaler, which stays, is not made in such a run: it "
                "trains in float32 now. Let what chose Apex choose the native side"
            )
            yield Doubt(setup.module.path, setup.call.lineno, "AMP531", "amp.initialize", message, "review")
            return


def _own_scalers(both: Mixed) -> list[tuple[Module, ast.Call]]:
    """The GradScalers of the program, where all stood in it before."""
    found: list[tuple[Module, ast.Call]] = []
    for module in both.after.modules:
        for call, _ in calls_in(both.review.after, module, GRAD_SCALER) if "GradScaler" in module.words else ():
            was = both.review.statement_before(module, call)
            if was is None or "GradScaler" not in syntax.text(was[1]):
                return []
            found.append((module, call))
    return found
