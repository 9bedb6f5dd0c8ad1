"""A machine without Apex that passed by the set-up and trained in float32: told as AMP133, see `without_apex.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.sites.setups import INITIALIZE, argument
from amp_migrate.audit.ways import installed
from amp_migrate.audit.ways.off_instead import GRAD_SCALER


def passed_by(review: Review, change: Change) -> Iterator[Doubt]:
    """Mixed precision was set up only where Apex was there, and without it the program went on: it trained in float32."""
    before = change.before
    flags = mixed(review).before.installed.flags(before)
    if not flags or "initialize" not in before.text:
        return
    chains = mixed(review).before.chains
    for call in before.calls():
        if review.before.dotted(before.scope_of(call), call.func) != INITIALIZE:
            continue
        new = change.back.get(before.statement(call))
        if new is not None and new in change.same:
            continue
        tests = [t for t, _ in chains.tests(before, call)]
        about = {name for part in (*tests, call) for name in installed.asked_of(part)}
        if installed.fails_without(before, flags, about):
            continue
        asked = installed.only_with_it(chains, before, call, flags)
        if asked is None or installed.native_without(before, asked) or _asked_still(review, change, asked, flags):
            continue
        if _failed_where_on(review) or installed.set_with_it(review.before, before, asked, flags):
            continue
        halved = installed.halved_without(before, asked, call)
        without = (
            f"in half (`{syntax.text(halved)}`)" if halved else "without mixed precision, whatever had been asked for"
        )
        message = (
            f"a machine without Apex passed by the set-up here and went on {without}; it runs in mixed precision now"
        )
        if halved is None and (native := installed.native_where(before, asked)) is not None:
            message = (
                f"a machine without Apex passed by the set-up here and took the native side where `{native}`; where Apex's alone was "
                "asked for, it went on without mixed precision, and runs in it now"
            )
        yield Doubt(before.path, asked.lineno, "AMP133", syntax.text(asked), message, "look", ("AMP133",))
        return


def _failed_where_on(review: Review) -> bool:
    """Whether a machine without Apex came to no loss to be scaled, where it would have failed, and what was asked for there is
    what switches mixed precision on now: `if args.fp16:` around each `scale_loss`, which does not ask for Apex."""
    side = mixed(review).before
    switches = [
        _conjuncts(argument(call, "enabled", GRAD_SCALER[name]))
        for change in review.changes.values()
        for call, name in calls_in(review.after, change.after, GRAD_SCALER)
    ]
    asked: list[set[str]] = []
    for module, call, _ in review.calls_before("apex.amp.scale_loss"):
        if installed.only_with_it(side.chains, module, call, side.installed.flags(module)) is not None:
            return False
        tests = [test for test, came_out in side.chains.tests(module, call) if came_out]
        asked.append(set[str]().union(*map(_conjuncts, tests)))
    return bool(asked and switches) and all(tests & switch for tests in asked for switch in switches)


def _conjuncts(test: ast.expr | None) -> set[str]:
    """What a condition asks, part by part: `a` and `b` of `bool(a and b)`."""
    while isinstance(test, ast.Call) and syntax.text(test.func) == "bool" and len(test.args) == 1:
        test = test.args[0]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set[str]().union(*map(_conjuncts, test.values))
    return {syntax.text(test)} if test is not None else set()


def _asked_still(review: Review, change: Change, asked: ast.expr, flags: dict[str, bool]) -> bool:
    """Whether the statement that asked for Apex does so still, or nothing switches mixed precision on."""
    if not any("autocast" in m.text or "GradScaler" in m.text for m in review.after.modules.values()):
        return True
    new = change.back.get(change.before.statement(asked))
    head = new.test if isinstance(new, (ast.If, ast.While)) else new
    telling = flags.keys() & mixed(review).after.installed.flags(change.after).keys()
    return head is not None and any(syntax.text(n) in telling for n in syntax.walk(head))
