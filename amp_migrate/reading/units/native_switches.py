"""Parameters that tell a program's own regions whether they are on: what an earlier run wrote for another program, or the owner.

As with the names of scalers: where both programs are migrated at once, each has the first name that is free.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.switch_parameters import left_out, switch_parameters

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Unit


class NativeSwitches:
    """What one file says of them: see `Project.once`."""

    def __init__(self, project: Project, module: Module) -> None:
        self.nodes: set[ast.AST] = set()
        known = project.once(switch_parameters)
        names = {*known.values()}
        for node in module.nodes if names else ():
            if isinstance(node, ast.keyword) and node.arg in names:
                call = module.parents.get(node)
                called = project.resolved.get(call, ()) if isinstance(call, ast.Call) else ()
                if called and all(known.get(f) == node.arg for f in called):
                    self.nodes.add(node)
            elif isinstance(node, ast.Name) and node.id in names:
                owner = module.scope_of(node).lookup(node.id)
                if owner is not None and known.get(project.functions.get(owner.node)) == node.id:  # type: ignore[arg-type]
                    self.nodes.add(node)
            elif isinstance(node, ast.arg) and node.arg in names:
                if known.get(project.functions.get(module.scope_of(node).node)) == node.arg:  # type: ignore[arg-type]
                    self.nodes.add(node)


def shared_switches(unit: Unit) -> dict[Function, str]:
    """The functions that take such a parameter and are to be handed a unit's switch: some call leaves it out."""
    known = unit.project.once(switch_parameters)
    return {f: name for f, name in known.items() if left_out(unit.project, f, name, unit.modules)}


def says_itself(unit: Unit, name: str) -> bool:
    """Whether a unit gives a parameter of a name to such a function by itself: it needs another one beside it."""
    known = unit.project.once(switch_parameters)
    return any(n == name and left_out(unit.project, f, n, unit.modules) is None for f, n in known.items())
