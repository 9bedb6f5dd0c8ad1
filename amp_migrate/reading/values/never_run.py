"""What never runs: branches whose test comes to the same in every run, as all that its names are ever given is a constant."""

from __future__ import annotations

import ast
from functools import partial

from amp_migrate.reading.program.branches import Branch, branches_around
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.analysis import Values


def never_taken(project: Project, module: Module, node: ast.AST) -> Branch | None:
    """The branch around a place that no run takes, of `if fp16:` below `fp16 = False`; None where a run may come to it."""
    told = partial(project.once(Values).truth, module)
    return next((b for b in branches_around(module, node) if truth(b.test.test, told) is (not b.holds)), None)
