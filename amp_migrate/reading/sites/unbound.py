"""Which names of Apex's are used where no import brings them: there they raise a NameError with Apex installed, too, unless
something else puts them among the globals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project

# What tells that a name is meant to be Apex, or its amp.
PARTS = {
    "apex": frozenset({"amp", "parallel", "optimizers", "normalization", "fp16_utils", "contrib"}),
    "amp": frozenset({"initialize", "scale_loss", "master_params"}),
}


@dataclass(frozen=True)
class Unbound:
    """A name that is used and not bound, where, and which functions import it for themselves alone."""

    name: str
    uses: tuple[ast.Name, ...]  # in the order of lines
    homes: tuple[str, ...]
    placed: int | None = None  # the line that puts it among the globals: `globals()["amp"] = amp`


def unbound(project: Project, module: Module) -> Iterator[Unbound]:
    """The names of a file that are used without an import of the file's reaching them, but for those a star import may bring."""
    if any(base not in project.handed_on.by_name for base in module.star_imports):
        return
    homes: dict[str, set[str]] = {}
    for scope in module.scopes.values():
        if isinstance(scope.node, FUNCTION_NODES):
            for name, target in scope.imports.items():
                if target.partition(".")[0] == "apex":
                    homes.setdefault(name, set()).add(scope.node.name)
    for name in [*PARTS, *(n for n in homes if n not in PARTS)]:
        uses = [
            node
            for node in module.loads.get(name, ())
            if module.scope_of(node).lookup(name) is None
            and module.qualify(node) is None
            and (name not in PARTS or part(module, node) in PARTS[name])
        ]
        if uses:
            uses.sort(key=lambda node: node.lineno)
            yield Unbound(name, tuple(uses), tuple(sorted(homes.get(name, ()))), _placed(module, name))


def part(module: Module, node: ast.AST) -> str | None:
    """What a use of a module takes of it: `scale_loss` of `amp.scale_loss`."""
    outer = module.parents.get(node)
    return outer.attr if isinstance(outer, ast.Attribute) else None


def taken_of(module: Module, node: ast.AST) -> Iterator[str]:
    """All that a use of a module goes through: `amp` and `scale_loss` of `apex.amp.scale_loss`."""
    outer = module.parents.get(node)
    while isinstance(outer, ast.Attribute):
        yield outer.attr
        outer = module.parents.get(outer)


def _placed(module: Module, name: str) -> int | None:
    for call, _ in module.calls:
        item = module.parents.get(call)
        if isinstance(call.func, ast.Name) and call.func.id == "globals" and isinstance(item, ast.Subscript):
            if isinstance(item.ctx, ast.Store) and isinstance(item.slice, ast.Constant) and item.slice.value == name:
                return item.lineno
    return None
