"""`isinstance(optimizer, FP16_Optimizer)`, or a type compared with it, where a program makes none: never true, so it goes
with what stands under it.

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
    edits, question = output.edit(module), asks_class(module, site.node)
    assert question is not None
    among, test = module.parents[site.node], module.parents.get(question)
    holds = isinstance(question, ast.Compare) and isinstance(question.ops[0], (ast.NotEq, ast.IsNot, ast.NotIn))
    if isinstance(among, (ast.Tuple, ast.List, ast.Set)) and len(among.elts) > 1:
        others = [e for e in among.elts if e is not site.node]
        alone = len(others) == 1 and isinstance(question, ast.Call)
        edits.replace(
            among, tuple(others[:1]) if alone else ("(", *joined(others, ", "), "," * (len(others) == 1) + ")")
        )
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or):
        edits.replace(test, joined([v for v in test.values if v is not question], " and " if holds else " or "))
    else:
        whole = test if isinstance(test, ast.BoolOp) else question
        stmt = module.parents.get(whole)
        if isinstance(stmt, ast.If) and stmt.test is whole:
            edits.fold(stmt, "body" if holds else "orelse", about_apex=True)
        else:
            edits.replace(whole, str(holds))
    output.done(
        module,
        site.node,
        "AMP707",
        "FP16_Optimizer",
        f"nothing here makes one, so this is {'always' if holds else 'never'} true",
        "look",
    )
