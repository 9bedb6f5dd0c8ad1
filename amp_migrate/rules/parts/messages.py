"""Messages beside a call that say whose DistributedDataParallel it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts import parallel
from amp_migrate.rules.parts.branches import is_idle
from amp_migrate.writing.edits import Edits

APEX_DDP = re.compile(r"(nvidia )?apex[. ](parallel\.)?(?=DistributedDataParallel)", re.IGNORECASE)


def correct_messages(module: Module, edits: Edits, live: Iterable[Site]) -> None:
    """No message beside what is torch's now says that it is Apex's."""
    for site in live:
        if site.name != parallel.DDP or not edits.gone(site.node):
            continue
        for stmt in _around(module, site.stmt):
            for node in walk(stmt):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_idle(stmt):
                    text = module.verbatim(node)
                    said = APEX_DDP.sub("", text)
                    if said != text and not isinstance(module.parents.get(node), ast.JoinedStr):
                        edits.replace(node, said)


def _around(module: Module, stmt: ast.stmt) -> Iterable[ast.stmt]:
    """The statements of the blocks around a statement, within its function."""
    yield from module.block(stmt)
    parent = module.parents.get(stmt)
    if isinstance(parent, ast.stmt) and parent not in module.scopes:
        yield from _around(module, parent)
