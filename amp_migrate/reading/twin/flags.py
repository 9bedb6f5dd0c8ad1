"""Names that tell whether torch has mixed precision of its own: `has_native_amp`. It has since 1.6."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import caught, walk

HOMES = ("torch.cuda.amp", "torch.amp")
ERRORS = {"AttributeError", "ImportError", "ModuleNotFoundError", "Exception"}


class NativeFlags:
    """The flags of one module that are true where `torch.cuda.amp` exists, with the statements that only set them."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.module = module
        self.statements: dict[str, list[ast.stmt]] = {}
        if "amp" in module.text:
            for stmt in module.tree.body:
                if isinstance(stmt, ast.Try):
                    self._guard(stmt)

    def _guard(self, guard: ast.Try) -> None:
        if guard.orelse or guard.finalbody or not all(self._shrugs(h) for h in guard.handlers):
            return
        names: set[str] = set()
        for stmt in guard.body:
            if isinstance(stmt, ast.If) and not stmt.orelse and self._asks_torch(stmt.test):
                names |= _set_to(stmt.body, True)
        if len(names) != 1 or len(guard.body) != 1:
            return
        (name,) = names
        bindings = [self.module.statement(b) for b in self.module.root.bindings.get(name, ())]
        others = [s for s in bindings if not any(s is n for n in walk(guard))]
        if others and all(_set_to([s], False) == {name} for s in others):
            self.statements[name] = [*others, guard]

    def _asks_torch(self, test: ast.expr) -> bool:
        return any(
            isinstance(n, ast.Attribute) and (self.project.qualify(self.module, n) or "").startswith(HOMES)
            for n in walk(test)
        )

    def _shrugs(self, handler: ast.ExceptHandler) -> bool:
        kinds = caught(handler)
        return kinds <= ERRORS and all(isinstance(s, (ast.Pass, ast.Assign)) for s in handler.body)

    def value(self, test: ast.expr) -> bool | None:
        """What a test is, if it asks nothing but whether torch has mixed precision; else None."""
        return truth(test, lambda part: True if isinstance(part, ast.Name) and part.id in self.statements else None)


def native_flags(project: Project, module: Module) -> NativeFlags:
    """The native flags of a module, read once."""
    return project.once(NativeFlags, module)


def _set_to(block: Iterable[ast.stmt], value: bool) -> set[str]:
    """The names that statements set to a constant, where they do nothing else."""
    names: set[str] = set()
    for stmt in block:
        if not (isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant) and stmt.value.value is value):
            return set()
        names |= {t.id for t in stmt.targets if isinstance(t, ast.Name)}
    return names
