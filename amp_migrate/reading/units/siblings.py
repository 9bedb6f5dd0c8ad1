"""Whose objects never meet a unit: classes that share a base with the one that sets mixed precision up. A field that the base
has is another variable in an object of theirs."""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project


def reached(project: Project, seeds: Iterable[Slot], setting_up: Iterable[Scope]) -> tuple[set[Slot], set[ClassInfo]]:
    """The variables that may hold what the seeds hold, or what came to be in them; and the classes whose objects hold none.
    `setting_up`: where that is done."""
    seeds = set(seeds)
    besides = _siblings(project, setting_up)
    while True:
        found = project.reaches(project.origins(seeds, besides), besides)
        fed = besides & {project.class_holding(slot) for slot in found - seeds}
        if not fed:
            return found, besides
        besides -= fed  # an object of theirs is given the same


def _siblings(project: Project, setting_up: Iterable[Scope]) -> set[ClassInfo]:
    """The classes with a constructor of their own of which no object can be one of a class that sets mixed precision up."""
    found: set[ClassInfo] | None = None
    for scope in setting_up:
        cls = project.class_of(scope)
        if cls is None:
            return set()
        shared = {*cls.ancestry()}
        apart = {
            c
            for c in cls.family.descendants()
            if not cls.shares_instances(c) and (made := c.method("__init__")) is not None and made.cls not in shared
        }
        found = apart if found is None else found & apart
    return found or set()
