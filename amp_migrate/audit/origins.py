"""What makes a value, and what all searches for that share."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from amp_migrate.audit.module import Function, Module, Scope
from amp_migrate.audit.program import Program
from amp_migrate.audit.records import Records
from amp_migrate.audit.targets import Path, attributes

Kind = Literal["call", "constant", "literal", "function", "class", "parameter", "unknown"]


@dataclass(frozen=True)
class Origin:
    """One thing that makes a value. `node` is the call, the literal, the definition, or where the trail is lost.

    For a parameter of a function that code out of sight may call, `node` is the `ast.arg`; `path` says which item of what
    the node makes is meant.
    """

    module: Module
    node: ast.AST
    kind: Kind
    path: Path = ()

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)


class Sources:
    """What all searches in one state of a program share: what is assigned to fields, given to functions, returned."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._fields: dict[str, list[tuple[Module, ast.Attribute, ast.expr | None, Path]]] = {}
        self.given: dict[Function, list[tuple[Module, ast.Call, dict[str, ast.expr] | None]]] = {}
        self.returns: dict[Function, list[ast.Return | ast.Yield]] = {}
        self.made: dict[Function, bool] = {}  # whether class methods give what they make with `cls(...)`
        self._elsewhere: dict[tuple[Module, str], list[tuple[Scope, ast.expr, Path]]] = {}
        self.records = Records(program)

    def fields(self, name: str) -> list[tuple[Module, ast.Attribute, ast.expr | None, Path]]:
        """Every assignment to an attribute of this name: the target, the value (None where it has none), the item of it."""
        if name not in self._fields:
            self._fields[name] = [
                (module, target, value, path)
                for module in self.program.having(name)
                for target, value, path in attributes(module).get(name, ())
            ]
        return self._fields[name]

    def set_elsewhere(self, module: Module, name: str) -> list[tuple[Scope, ast.expr, Path]]:
        """What other files give a name of a file: `engine.scaler = ...`."""
        if (module, name) not in self._elsewhere:
            found = self._elsewhere[module, name] = []
            for where, target, value, path in self.fields(name):
                scope = where.scope_of(target)
                dotted = self.program.dotted(scope, target.value)
                if value is not None and dotted is not None and self.program.module_named(dotted, where) is module:
                    found.append((scope, value, path))
        return self._elsewhere[module, name]
