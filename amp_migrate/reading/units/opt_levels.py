"""Which opt levels an `amp.initialize` call may be given, as far as the program tells."""

from __future__ import annotations

from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values

ALL = frozenset(("O0", "O1", "O2", "O3"))
DEFAULT = "O1"


def opt_levels(project: Project, init: Init) -> frozenset[str]:
    """The levels that may occur; all of them where the program leaves it open."""
    level = init.arguments.get("opt_level")
    if level is None:
        return ALL if init.spread is not None else frozenset((DEFAULT,))
    found = project.once(Values).constants(init.module, level) or ()
    levels = frozenset(v.upper() for v in found if isinstance(v, str)) & ALL
    return levels or ALL


def may_be_none(project: Project, init: Init, name: str) -> bool:
    """Whether an argument may be left out or be None, which leaves Apex's own setting."""
    given = init.arguments.get(name)
    if given is None:
        return init.literal(name) is None
    found = project.once(Values).constants(init.module, given)
    return found is None or None in found
