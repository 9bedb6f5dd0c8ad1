"""Where the casts of O1 were switched off: in `with amp.disable_casts():`."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program


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
            if isinstance(opened, ast.Call):
                if program.dotted(module.scope_of(opened), opened.func) == "apex.amp.disable_casts":
                    return True
    return False
