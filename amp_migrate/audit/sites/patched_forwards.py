"""Which forwards O2 and O3 patched, so that they gave float32: those of the models that `initialize` was given. What another
method of these gives, or a part of one, came as it was computed: `model.encoder(ids)` in half."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.setups import identities
from amp_migrate.audit.sites.within import given_itself, within_given
from amp_migrate.audit.values.names import last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

DEPTH = 4


def is_patched(both: Mixed, forward: Forward) -> bool:
    """Whether what runs is the forward of a model that Apex was given, or a method that runs that."""
    runs = both.after.forwards.runs(forward)
    itself = forward.runs == "forward" or any(map(_calls_itself, runs))
    run = forward.model if runs or forward.method in (None, "data_parallel") else forward.call.func
    if isinstance(run, ast.Attribute) and run.attr == "forward":
        run = run.value
    return (itself and not _is_layer(both, forward) and not _taken_out(both, forward.module, run, DEPTH)) or (
        isinstance(run, ast.Attribute) and _given_by_name(both, run)
    )


def _is_layer(both: Mixed, forward: Forward) -> bool:
    """Whether what runs is a part of a network: one that its object has, or one that an initialized model holds, wherever it is
    handed to."""
    program, model = both.review.after, forward.model
    owner = program.is_self(forward.scope, model.value) if isinstance(model, ast.Attribute) else None
    run = both.after.forwards.identities(forward)
    if owner is None or not program.is_network(owner):
        return within_given(both, run) and not given_itself(both, run)
    return not run & both.initialized


def _taken_out(both: Mixed, module: Module, run: ast.expr, depth: int) -> bool:
    """Whether an expression is an attribute of a model that Apex was given, or of one of its parts."""
    if not depth:
        return False
    values, scope = both.after.values, module.scope_of(run)
    if isinstance(run, ast.Attribute) and not both.review.after.is_self(scope, run.value):
        if run.attr != "module" and not _given_by_name(both, run):
            if given_itself(both, identities(values, scope, run.value)):
                return True
        return _taken_out(both, module, run.value, depth - 1)
    if not isinstance(run, ast.Name):
        return False
    found = (o for o in values.origins(scope, run) if o.kind == "unknown" and not o.path)
    return any(isinstance(o.node, ast.Attribute) and _taken_out(both, o.module, o.node, depth - 1) for o in found)


def _given_by_name(both: Mixed, run: ast.Attribute) -> bool:
    """Whether Apex was given what is held under this name: `amp.initialize(trainer.model, ...)`."""
    given = (m for s in both.removed for m in s.models if isinstance(m, ast.Attribute))
    return any(last_name(m) == run.attr for m in given)


def _calls_itself(function: Function) -> bool:
    """Whether a method runs its network's forward; what another computes came as it was."""
    own = function.parameters[0].arg if function.bound and function.parameters else None
    calls = (syntax.text(n.func) for n in syntax.every(function.node, ast.Call))
    return own is None or any(text in (own, f"{own}.forward", f"{own}.__call__") for text in calls)
