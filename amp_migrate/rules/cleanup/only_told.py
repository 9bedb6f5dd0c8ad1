"""Is a setting read for nothing but to be told: printed, logged, or put into a variable that is?"""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Output

# What sets a logger up is given a level, a file or a handler: `logging.basicConfig(level=...)`.
_SETTING_UP = (
    r"basicConfig|captureWarnings|disable|shutdown|(?:set|get|remove|config)\w*|add(?:Handler|Filter|LevelName)"
)
_TELLING = re.compile(
    rf"(?:\w+_)?print(?:_\w+)?|(?:.*\.)?_?(?:log|logger|logging|LOG|LOGGER)(?:\.(?!(?:{_SETTING_UP})$)\w+)?"
    r"|warnings\.warn|tqdm\.write"
)
MOST = 20  # reads that are followed


class OnlyTold:
    """Follows what one setting is read for, in the program as it will stand."""

    def __init__(self, project: Project, output: Output) -> None:
        self.project = project
        self.output = output
        self.told: list[tuple[Module, ast.stmt]] = []  # where it is
        self._names: set[tuple[object, str]] = set()  # of what it is put into
        self._left = MOST

    def is_idle(self, module: Module, node: ast.AST) -> bool:
        """Whether a read of it is gone, or tells it, or hands it to what is only told itself."""
        edits = self.output.edits.get(module)
        if edits is not None and edits.gone(node):
            return True
        self._left -= 1
        stmt = module.statement(node)
        if self._left < 0 or not self._as_it_is(module, stmt):
            return False
        if isinstance(stmt, ast.If) and any(n is node for n in walk(stmt.test)):
            return all(self._tells(module, s) or self._puts(module, s) for s in (*stmt.body, *stmt.orelse))
        return self._tells(module, stmt) or self._puts(module, stmt)

    def _as_it_is(self, module: Module, stmt: ast.stmt) -> bool:
        """Whether a statement, with what is in it, is no place that a rule writes something else to."""
        edits = self.output.edits.get(module)
        return edits is None or not any(
            n in edits.expressions or n in edits.statements for n in walk(stmt) if not edits.gone(n)
        )

    def _tells(self, module: Module, stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.Pass):
            return True
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not isinstance(call, ast.Call) or not tells(call):
            return False
        self.told.append((module, stmt))
        return True

    def _puts(self, module: Module, stmt: ast.stmt) -> bool:
        """Whether a statement puts it into a variable or an attribute that is only told."""
        if (
            not isinstance(stmt, ast.Assign)
            or len(stmt.targets) != 1
            or any(isinstance(n, ast.Call) for n in walk(stmt.value))
        ):
            return False
        target = stmt.targets[0]
        if isinstance(target, ast.Attribute):
            return self._of_attribute(target.attr)
        owner = module.scope_of(target).lookup(target.id) if isinstance(target, ast.Name) else None
        if not isinstance(target, ast.Name) or owner is None or owner.is_module:
            return False
        key = (owner, target.id)
        if key in self._names:
            return True
        self._names.add(key)
        reads = [n for n in module.loads.get(target.id, ()) if module.scope_of(n).lookup(target.id) is owner]
        return all(self.is_idle(module, n) for n in reads)

    def _of_attribute(self, name: str) -> bool:
        if (None, name) in self._names:
            return True
        self._names.add((None, name))
        reads = [(m, n) for m in self.project.modules for n in m.named.get(name, ())]
        attributes = [(m, n) for m, n in reads if isinstance(n, ast.Attribute)]
        return len(attributes) == len([r for r in reads if not _declares(*r)]) and all(
            self.is_idle(m, n) for m, n in attributes
        )


def tells(call: ast.Call) -> bool:
    """Whether a call prints or logs what it is given."""
    return _TELLING.fullmatch(dotted(call.func) or "") is not None


def _declares(module: Module, node: ast.AST) -> bool:
    """Whether a name in quotes is in a help or an option's own declaration: no read."""
    return isinstance(node, ast.Constant) and any(
        isinstance(a, ast.Call) and isinstance(a.func, ast.Attribute) and a.func.attr == "add_argument"
        for a in module.ancestors(node)
    )
