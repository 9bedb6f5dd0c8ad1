"""Classes whose constructor is made from their fields: dataclasses, attrs, NamedTuples; what calls of them give a field."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from amp_migrate.audit.kept import kept, kept_meanwhile
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program


class Given(NamedTuple):
    """What one call gives a field of a class."""

    cls: Class
    module: Module
    value: ast.expr


class Records:
    """Such classes, in one state of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @kept_meanwhile(list)
    def given(self, field: str) -> list[Given]:
        """What calls give a field of that name, of whichever class."""
        return list(self._found(field))

    def of_these(self, given: Sequence[Given], makers: Iterable[tuple[Module, ast.AST]]) -> list[Given]:
        """Those of objects made there."""
        made = {
            d
            for module, node in makers
            if isinstance(node, ast.Call)
            for d in self.program.definitions(module.scope_of(node), node.func, guess=False)
        }
        return [g for g in given if g.cls in made]

    def _found(self, field: str) -> Iterator[Given]:
        for cls in (c for m in self.program.having(field) for c in _with_field(m).get(field, ())):
            if self.program._method(cls, "__init__"):
                continue
            for made in (cls, *self.program.below(cls)):
                for module in self.program.having(made.name):
                    for call in module.calls_named.get(made.name, ()):
                        if made in self.program.definitions(module.scope_of(call), call.func, guess=False):
                            filled = dict(zip(self._fields(made), call.args, strict=False))
                            filled |= {k.arg: k.value for k in call.keywords if k.arg is not None}
                            if field in filled:
                                yield Given(made, module, filled[field])

    def of_call(self, module: Module, call: ast.Call, field: str) -> ast.expr | None:
        """What the object that a call makes has in a field: as the call fills it, else as the class does."""
        found = self.program.definitions(module.scope_of(call), call.func, guess=False)
        made = found[0] if len(found) == 1 and isinstance(found[0], Class) else None
        spread = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        if made is None or spread or self.program._method(made, "__init__"):
            return None
        filled = {k.arg: k.value for k in call.keywords} | dict(zip(self._fields(made), call.args, strict=False))
        declared = next((d[field] for c in self.program.family_up(made) if field in (d := _declared(c))), None)
        if declared is None or field in filled:
            return filled[field] if declared is not None else None
        return declared.value if isinstance(declared.value, ast.Constant) else None

    def _fields(self, cls: Class) -> list[str]:
        """The fields in the order of the constructor's parameters: those of the bases first."""
        return list(dict.fromkeys(n for c in reversed(self.program.family_up(cls)) for n in _own(c)))


@kept
def _with_field(module: Module) -> dict[str, list[Class]]:
    """The classes of a file by the fields that they declare."""
    found: dict[str, list[Class]] = {}
    for cls in module.classes:
        for name in dict.fromkeys(_own(cls)):
            found.setdefault(name, []).append(cls)
    return found


def _own(cls: Class) -> list[str]:
    return list(_declared(cls))


@kept
def _declared(cls: Class) -> dict[str, ast.AnnAssign]:
    stmts = (s for s in cls.node.body if isinstance(s, ast.AnnAssign))
    return {s.target.id: s for s in stmts if isinstance(s.target, ast.Name)}
