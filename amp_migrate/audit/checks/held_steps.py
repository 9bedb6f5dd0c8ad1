"""A scaler steps what Apex was given, and not an object that holds it: `amp.initialize(model, self.schedule.optimizer)`.

Proved for the steps that a migration rewrites. A scaler asks what it steps for `param_groups`, and leaves its whole step
out after an overflow, where Apex left out that of the held optimizer only. Not proved: whether a class out of sight has them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import INITIALIZE, Identity, argument, identities
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP231: see `stepping.py`

TAKING = (INITIALIZE, "apex.amp.scale_loss")


def check(review: Review) -> Iterable[Doubt]:
    given: set[Identity] = set()
    holding: dict[Identity, str] = {}
    for module, optimizer in _given(review):
        scope = module.scope_of(optimizer)
        given |= identities(review.values_before, scope, optimizer)
        if isinstance(optimizer, (ast.Attribute, ast.Subscript)) and not review.before.is_self(scope, optimizer.value):
            for identity in identities(review.values_before, scope, optimizer.value):
                holding[identity] = syntax.text(optimizer)
    if not holding:
        return
    for change in review.changes.values():
        for call, was in _steps(change):
            module = change.before
            found = identities(review.values_before, module.scope_of(was), was)
            held = next((holding[i] for i in found if i in holding), None)
            if held is None or found & given or _has_groups(review, module, was):
                continue
            text = syntax.text(was)
            message = (
                f"{text} is not what Apex was given, but holds it ({held}): the scaler asks it for param_groups, and would leave "
                "all of its step out after an overflow"
            )
            yield review.doubt(change.after, call, "AMP231", "optimizer.step", message, "refuse")


def _given(review: Review) -> Iterator[tuple[Module, ast.expr]]:
    """The optimizers that Apex is handed."""
    for change in review.changes.values():
        module = change.before
        for call in module.calls():
            if review.before.dotted(module.scope_of(call), call.func) in TAKING:
                value = argument(call, "optimizers", 1) or argument(call, "optimizer", 1)
                for each in value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]:
                    if each is not None:
                        yield module, each


def _steps(change: Change) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The steps that go by a scaler after, with what was stepped before."""
    for stmt, old in change.rewritten.items():
        before = {
            syntax.text(n.func.value): n.func.value
            for n in syntax.own_line(old)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "step"
        }
        for call in syntax.own_line(stmt) if before else ():
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "step"
                and call.args
            ):
                was = before.get(syntax.text(call.args[0]))
                if was is not None and syntax.text(call.func.value) not in before:
                    yield call, was


def _has_groups(review: Review, module: Module, holder: ast.expr) -> bool:
    """Whether what holds an optimizer is seen to have `param_groups` itself, or may give all that the held one has."""
    classes: list[Class] = []
    for origin in review.values_before.origins(module.scope_of(holder), holder):
        if isinstance(origin.node, ast.Call):
            made = review.before.definitions(origin.module.scope_of(origin.node), origin.node.func, guess=False)
            classes += [d for d in made if isinstance(d, Class)]
    for cls in classes:
        for each in review.before.family_up(cls):
            text = each.module.source(each.node)
            if "self.param_groups" in text or "def param_groups" in text or "__getattr__" in each.methods:
                return True
        if any(base.rpartition(".")[2].endswith("Optimizer") for base in review.before.external_bases(cls)):
            return True
    return False
