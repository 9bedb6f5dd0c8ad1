"""Files that no process gets past the imports of: they ask a file of the program for a name that it does not have.

`from engine.inference import Eval`, where that file has no `Eval` any more, raises ImportError in whoever loads it. Not told
of packages, which may have more (compiled parts, what `__init__` is given), nor of imports under a `try` or a test.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept, kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

if TYPE_CHECKING:
    from amp_migrate.audit.program.program import Program

# What may give a file more names.
MORE = re.compile(r"\bglobals\(\)|\b__getattr__\b|\bsys\.modules\b|\bexec\(|\bsetattr\(")


def stops_at(program: Program, module: Module) -> ast.ImportFrom | None:
    """The import of a file that raises whenever it is loaded; None where none is seen to."""
    return _Stopping.of(program).at(module)


class _Stopping:
    def __init__(self, program: Program) -> None:
        self.program = program

    @staticmethod
    @kept
    def of(program: Program) -> _Stopping:
        return _Stopping(program)

    @kept_meanwhile(lambda: None)  # files may import each other
    def at(self, module: Module) -> ast.ImportFrom | None:
        if module.path.endswith(".ipynb"):
            return None
        for stmt in module.tree.body:
            if not isinstance(stmt, ast.ImportFrom):
                continue
            base = self.program._base(module, stmt)
            home = self.program.module_named(base, module)
            if home is None or not self._meant(module, home, base, stmt.level):
                continue
            lacking = [a.name for a in stmt.names if not self._has(home, base, a.name, module)]
            if lacking or self.at(home) is not None:
                return stmt
        return None

    def _meant(self, module: Module, home: Module, base: str, level: int) -> bool:
        """Whether no other file can be meant: one by the full name, or beside the one that imports it."""
        return bool(level) or home.name == base or home.name == f"{module.name.rpartition('.')[0]}.{base}"

    def _has(self, home: Module, base: str, name: str, module: Module) -> bool:
        if home.path.endswith("__init__.py") or home.stars or name == "*" or name.startswith("__"):
            return True
        if name in home.top.bindings or (name in home.words and self._set_inside(home, name)):
            return True
        return self.program.module_named(f"{base}.{name}", module) is not None or MORE.search(home.text) is not None

    def _set_inside(self, home: Module, name: str) -> bool:
        """Whether a function of a file may make a name of the file: `global name`."""
        return any(name in n.names for n in syntax.every(home.tree, ast.Global))
