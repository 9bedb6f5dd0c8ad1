"""`isinstance(optimizer, FP16_Optimizer)` where a program makes none: never true, so it goes with what stands under it.

Apex: https://nvidia.github.io/apex/fp16_utils.html
"""

from __future__ import annotations

import ast

from amp_migrate.options import Options
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.units.legacy import asks_class, only_asked
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import joined

NEVER = "nothing here makes one, so this is never true"


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Take the class out of what is asked for, or the question out of its test."""
    if "FP16_Optimizer" not in module.text:
        return
    naming = [m for m in project.modules if "FP16_Optimizer" in m.text]
    for site in only_asked([s for m in naming for s in find_sites(project, m)]):
        if site.module is module and not output.edit(module).gone(site.node):
            if output.wants_at(module, site.node, "AMP707"):
                _answer(module, site, output)


def _answer(module: Module, site: Site, output: Output) -> None:
    edits, call = output.edit(module), asks_class(module, site.node)
    assert call is not None
    among, test = call.args[1], module.parents.get(call)
    if isinstance(among, ast.Tuple) and len(among.elts) > 1:
        others = [e for e in among.elts if e is not site.node]
        code = others[:1] if len(others) == 1 else ["(", *joined(others, ", "), ")"]
        edits.replace(among, tuple(code))
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        edits.replace(test, joined([v for v in test.values if v is not call], " or "))
    else:
        whole = test if isinstance(test, ast.BoolOp) else call
        stmt = module.parents.get(whole)
        if isinstance(stmt, ast.If) and stmt.test is whole:
            edits.fold(stmt, "orelse", about_apex=True)
        else:
            edits.replace(whole, "False")
    output.done(module, site.node, "AMP707", "FP16_Optimizer", NEVER, "look")
