"""Functions of a file that did what Apex's do go once nothing calls them, and what only they called.

Apex: https://nvidia.github.io/apex/amp.html
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import stand_ins
from amp_migrate.rules.migration import Output


def remove(project: Project, module: Module, output: Output) -> None:
    """Delete those of one file that nothing uses any more, given all other edits."""
    edits = output.edit(module)
    found = project.once(stand_ins, module)
    idle = {name for name in found if not _used(project, module, output, name)}
    for name in found:
        if name not in idle:
            continue
        for node in found[name]:
            edits.delete(node)
        meaning = project.handed_on.stand_ins(module)[name].removeprefix("apex.")
        message = f"{name} did what {meaning} does: nothing calls it any more"
        output.note(module, found[name][0], "AMP101", meaning, message, "as-is")
    gone = [n for name in idle for node in found[name] for n in walk(node) if isinstance(n, ast.Name)]
    for name in {n.id for n in gone} - idle:  # the helpers for a machine without Apex
        nodes = module.root.bindings.get(name, [])
        helpers = [n for n in nodes if isinstance(n, FUNCTION_NODES)]
        if len(helpers) == len(nodes) and not _used(project, module, output, name):
            for helper in helpers:
                edits.delete(helper)


def _used(project: Project, module: Module, output: Output, name: str) -> bool:
    """Whether anything that stays reads a name of a file, or hands it on."""
    edits = output.edit(module)
    own = [n for n in module.root.bindings.get(name, ()) if isinstance(n, FUNCTION_NODES)]
    inner = {n for node in own for n in walk(node)}
    if any(not edits.gone(n) and n not in inner for n in module.loads.get(name, ())) or name in (module.listed or ()):
        return True
    elsewhere = project.handed_on.readers(module, name)
    return any(m not in output.edits or not output.edits[m].gone(n) for m, n in elsewhere)
