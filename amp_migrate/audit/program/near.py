"""Which files run in one process with a file: those that import it, and what they import in turn. Read off the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program

_GAP = r"(?:[ \t\f]|\\\r?\n)"
IMPORT = re.compile(
    rf"^{_GAP}*(?:from{_GAP}+(\.*)([\w.]*){_GAP}+import{_GAP}*((?:[^\n#\\]|\\\r?\n)*)|import{_GAP}+((?:[\w.,]|{_GAP})+))",
    re.MULTILINE,
)


class Near:
    """Which file imports which, in one state of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.imports = {m: _imported(program, m) for m in program.modules.values()}
        self.importers: dict[Module, set[Module]] = {}
        for module, found in self.imports.items():
            for other in found:
                self.importers.setdefault(other, set()).add(module)

    def files(self, start: Iterable[Module]) -> list[Module]:
        """The files of every program that comes by one of these, in the order of the project."""
        entries = _closure(start, self.importers)
        reached = _closure(entries, self.imports)
        return [m for m in self.program.modules.values() if m in reached]


def _closure(start: Iterable[Module], edges: dict[Module, set[Module]]) -> set[Module]:
    found = set(start)
    todo = list(found)
    while todo:
        for other in edges.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def _imported(program: Program, module: Module) -> set[Module]:
    """The files that a file imports itself."""
    found: set[Module] = set()
    package = module.name.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    for dots, base, names, plain in IMPORT.findall(module.read):
        names, plain = names.replace("\\", " "), plain.replace("\\", " ")
        dotted = [part.split()[0] for part in plain.split(",") if part.split()]
        if dots or base:
            above = package[: len(package) - (len(dots) - 1)] if dots else []
            home = ".".join([*above, *([base] if base else [])])
            inner = [n.split()[0] for n in names.strip("() \n\r").split(",") if n.split()]
            dotted = [home, *(f"{home}.{n}" for n in inner)]
        for name in dotted:
            parts = name.split(".")
            for end in range(len(parts), 0, -1):
                other = program.module_named(".".join(parts[:end]), module)
                if other is not None:
                    found.add(other)
                    break
    return found - {module}


def runs_itself(module: Module) -> bool:
    """Whether a file does something when it is run: it asks for `__main__`, or works through a loop outside of functions."""
    return "__main__" in module.text or any(isinstance(s, ast.For | ast.While | ast.With) for s in module.tree.body)
