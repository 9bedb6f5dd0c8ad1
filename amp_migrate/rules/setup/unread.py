"""A scaler that nothing reads is not written: a script that sets Apex up and leaves all scaling to a library, which has its
own, a caller that only evaluates with what it is given.

Runs after every rule that asks for the scaler.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
import re

from amp_migrate import findings
from amp_migrate.reading.scaler.from_users import FromUsers
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.process_wide import ProcessWide
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Code, Edits

CODES: tuple[findings.Code, ...] = ()


def apply(m: Migration) -> None:
    for plan in m.scalers if m.scales else ():
        handed_by_others = any(not thread.calls for thread in plan.threads.values())  # which must have one to hand
        if not isinstance(plan, (FromUsers, ProcessWide)) and not handed_by_others:
            for home in [h for h in plan.created if _unread(plan, h)]:
                _take_back(m.edit(home.scope.module), home)
                plan.created.remove(home)
                m.created.remove(home)
                plan.unread.append(home)


def _unread(plan: ScalerPlan, home: Home) -> bool:
    """Whether no code reads the variable that a scaler would be kept in: an attribute may be read by whoever has the object,
    and what a loss scale of the run is prepared with by whoever updates the scaler."""
    if home.kind != "local" or home.carrier or home.above is not None or home.dissolved:
        return False
    return home.scope not in plan.named and not isinstance(static_scale(home.init), ast.expr)


def _take_back(edits: Edits, home: Home) -> None:
    block = edits.after if home.after else edits.before
    _leave(block, home.anchor, [code for code in block[home.anchor] if code not in home.lines])
    if not any(re.search(r"\btorch\b", text) for text in edits.emitted_text() if text != "import torch"):
        for stmt, codes in list(edits.before.items()):
            _leave(edits.before, stmt, [code for code in codes if code != "import torch"])


def _leave(block: dict[ast.stmt, list[Code]], stmt: ast.stmt, codes: list[Code]) -> None:
    if codes:
        block[stmt] = codes
    else:
        block.pop(stmt)
