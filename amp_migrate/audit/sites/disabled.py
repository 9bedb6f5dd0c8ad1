"""Where the casts of O1 were switched off: in `with amp.disable_casts():`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program

if TYPE_CHECKING:
    from amp_migrate.audit.review import Review
    from amp_migrate.audit.ways.chains import Chain

DISABLED = "amp.disable_casts() had switched its casts off"


def was_float32(review: Review, chain: Chain) -> str:
    """Why what a way of the program after comes to ran in float32, where it did."""
    steps = (review.statement_before(s.module, s.node) for s in chain.steps if not s.value)
    disabled = any(s is not None and casts_disabled(review.before, *s) for s in steps)
    return DISABLED if disabled else "Apex had not been set up for it before"


@kept
def casts_disabled(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node stands in `with amp.disable_casts():` within its function."""
    if "disable_casts" not in module.text:
        return False
    for around in module.ancestors(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        for item in around.items if isinstance(around, (ast.With, ast.AsyncWith)) else ():
            opened = item.context_expr
            if isinstance(opened, ast.Call) and syntax.last(opened.func) == "disable_casts":
                name = program.dotted(module.scope_of(opened), opened.func)
                if name in (
                    None,
                    "apex.amp.disable_casts",
                ):  # None: of an amp that some object keeps, or that is handed on
                    return True
    return False
