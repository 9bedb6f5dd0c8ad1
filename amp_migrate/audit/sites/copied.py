"""Copies of an initialized model that were made once Apex had made its weights half: at O2 and O3."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.setups import Identity, identities

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

COPY = "copy.deepcopy"


def copied_since(both: Mixed, module: Module, call: ast.AST) -> bool:
    """Whether a call of the program before copies a model whose weights Apex may have made half by then."""
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return False
    scope = module.scope_of(call)
    if both.before.program.dotted(scope, call.func) != COPY:
        return False
    return may_be_half(both, module, call, identities(both.review.values_before, scope, call.args[0]))


def may_be_half(both: Mixed, module: Module, node: ast.AST, model: frozenset[Identity]) -> bool:
    """Whether the weights of a model may be half where a node stands: some way to it comes by a set-up that made them so."""
    model &= both.initialized_around(module)
    if not model or not (both.floats(module) or both.asks(module)):
        return False
    return any(both.under_apex(way, model).half is not False for way in both.before.chains.to(module, node))
