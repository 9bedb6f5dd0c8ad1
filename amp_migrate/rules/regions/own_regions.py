"""A region that the program has of its own, on for its other back end: it is on for this one as well.

No code of its own in the report: AMP501 speaks of it, and AMP517 where the region takes its switch as a parameter, as one does
that an earlier run wrote for another program. A region around it would be switched off by it.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.logic import LOOSE
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.own_regions import OwnRegion
from amp_migrate.reading.program.switch_parameters import left_out, switch_parameter
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import shared_regions


def widen(m: Migration, module: Module, own: OwnRegion) -> list[Blocked]:
    """Switch a region of the program's own on where Apex cast; why the switch cannot be handed to some call, if it takes one.

    Raises Blocked where its switch cannot be told, or it casts to another type.
    """
    other = own.dtype is not None and (module.qualify(own.dtype) or "") != f"torch.{m.options.dtype}"
    default = own.dtype is None and m.options.dtype != "float16"
    if own.switch is None or other or default:
        raise Blocked(
            module,
            own.call,
            "AMP501",
            "torch.autocast",
            "a region of the program's own stands where Apex cast, and may be off or of another type: let it be on, in "
            f"{m.options.dtype}, for both",
        )
    if (taken := switch_parameter(m.project, module, own)) is not None:
        calls = left_out(m.project, *taken, m.unit.modules)
        if calls:
            return shared_regions.hand(m, taken[1], calls)
    enabled = m.switch.at(module, own.call) or "True"
    switch = own.switch
    if isinstance(switch, ast.Constant) or enabled == "True":
        always = enabled == "True" or bool(getattr(switch, "value", False))
        m.edit(module).replace(switch, "True" if always else enabled)
    else:
        loose = isinstance(switch, LOOSE)
        if loose:
            m.edit(module).insert("before", switch, "(")
        m.edit(module).insert("after", switch, f"{')' if loose else ''} or {enabled}")
    m.output.note(
        module,
        own.call,
        "AMP501",
        "torch.autocast",
        "the region that the program has here is on for what Apex cast as well",
        "look",
    )
    return []
