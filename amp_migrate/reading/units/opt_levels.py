"""Which opt levels an `amp.initialize` call may be given, as far as the program tells."""

from __future__ import annotations

from amp_migrate.reading.units.unit import Init

ALL = frozenset(("O0", "O1", "O2", "O3"))
DEFAULT = "O1"


def opt_levels(init: Init) -> frozenset[str]:
    """The levels that may occur; all of them where the program leaves it open."""
    level = init.arguments.get("opt_level")
    if level is None:
        return ALL if init.spread is not None else frozenset((DEFAULT,))
    levels = frozenset(v.upper() for v in init.constants("opt_level") or () if isinstance(v, str)) & ALL
    return levels or ALL


def may_be_none(init: Init, name: str) -> bool:
    """Whether an argument may be left out or be None, which leaves Apex's own setting."""
    found = init.constants(name)
    return found is None or None in found
