"""Tests whether Apex is installed, around parts of Apex other than amp: which side stays.

The native side stays if it does what Apex's does. Where it only goes without (a message instead of synchronized batch
normalization), Apex's side stays and is rewritten: that is what ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.sites.apex import Site
from amp_migrate.writing.edits import Edits


def settle_guards(project: Project, module: Module, folds: Folds, sites: Iterable[Site], edits: Edits) -> None:
    """Correct the folds of availability tests where one side does less, or where the native code just follows."""
    for site in sites:
        for parent in module.ancestors(site.node):
            if not isinstance(parent, ast.If) or parent in edits.statements:
                continue
            branch = folds.splices.get(parent)
            if branch is None:
                continue
            apex = "body" if module.inside_of(site.node, parent.body) else "orelse"
            if apex != branch and not _stands_in(getattr(parent, branch), site):
                folds.splices[parent] = apex
                edits.splice(parent, "body" if apex == "body" else "orelse")
            elif apex == branch == "body" and _is_shortcut(project, module, parent):
                edits.delete(parent)


def _stands_in(other: Sequence[ast.stmt], site: Site) -> bool:
    """Whether a branch gives the names that the site's statement gives, or returns where that returns."""
    nodes = [node for stmt in other for node in walk(stmt)]
    stmt = site.stmt
    if isinstance(stmt, ast.Return):
        return any(isinstance(node, ast.Return) for node in nodes)
    if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        given = {ast.dump(target) for node in nodes for target in _targets(node)}
        return all(ast.dump(target) in given for target in _targets(stmt))
    return any(isinstance(node, type(stmt)) for node in nodes)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return [node.target]
    return []


def _returns(block: Sequence[ast.stmt]) -> bool:
    """Whether a block ends in a return on every path."""
    if not block:
        return False
    last = block[-1]
    return isinstance(last, ast.Return) or (isinstance(last, ast.If) and _returns(last.body) and _returns(last.orelse))


def _is_shortcut(project: Project, module: Module, node: ast.If) -> bool:
    """`if has_apex: return fused(x)` before code that does without."""
    if node.orelse or not _returns(node.body):
        return False
    block = module.block(node)
    rest = block[next(i for i, s in enumerate(block) if s is node) + 1 :]
    names = [
        project.qualify(module, n) or ""
        for stmt in rest
        for n in walk(stmt)
        if isinstance(n, (ast.Name, ast.Attribute))
    ]
    returns = any(isinstance(n, ast.Return) for stmt in rest for n in walk(stmt))
    return returns and not any(n.startswith("apex.") for n in names)
