"""What is sure of a condition where a statement stands: a run that does not have it was ended above."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.conditions.assertions import ended_above
from amp_migrate.reading.conditions.conjunctions import conjunction
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.switch.given_again import stored_fields


def not_sure(project: Project, flag: Flag, stmt: ast.stmt) -> Flag:
    """A switch without what is sure above a statement of its scope: `if not args.train: raise ValueError` on the way there."""
    module = flag.scope.module
    if not flag.parts or module.scope_of(stmt) is not flag.scope:
        return flag
    sure = {part for part in _sure(project, module, stmt) if _settled(project, flag, part)}
    return Flag(flag.scope, tuple(p for p in flag.parts if _plain(p) not in sure))


def returned_above(project: Project, module: Module, stmt: ast.stmt) -> list[str] | None:
    """What a run that comes by a statement has asked for above it, where it would have returned else; None where that cannot
    be told."""
    found: list[str] = []
    for above in ended_above(project, module, stmt):
        if isinstance(above.stmt, ast.If) and isinstance(above.stmt.body[-1], ast.Return):
            parts = conjunction(module, availability(project, module), above.test, negate=True)
            if parts is None:
                return None
            found += parts
    return found


def _sure(project: Project, module: Module, stmt: ast.stmt) -> Iterator[str]:
    for above in ended_above(project, module, stmt):
        parts = conjunction(module, availability(project, module), above.test, negate=not above.holds)
        yield from (_plain(part) for part in parts or ())


def _settled(project: Project, flag: Flag, part: str) -> bool:
    """Whether a condition is the same wherever it is asked: what it names is bound once, no field of it is set."""
    tree = ast.parse(part)
    owners = ((flag.scope.lookup(name), name) for name in identifiers(tree))
    once = all(owner is not None and len(owner.bindings.get(name, ())) < 2 for owner, name in owners)
    return once and not any(place for module in project.modules for place in stored_fields(project, module, tree))


def _plain(part: str) -> str:
    return ast.unparse(ast.parse(part, mode="eval"))
