"""Classes whose base is out of sight: networks, where a method of theirs runs a layer of torch's, or what networks call a part."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function
from amp_migrate.audit.sites.lookalikes import HEADLESS, PARTS

if TYPE_CHECKING:
    from amp_migrate.audit.sites.forwards import Forwards


def runs_no_network(forwards: Forwards, cls: Class, method: str) -> bool:
    """Whether objects of a class are no networks, as far as its bases are seen, and have a method; with a base out of sight,
    where that runs no part."""
    program = forwards.program
    found = program._method(cls, method) if not program.is_network(cls) else []
    unseen = any(not hasattr(builtins, b) for b in program.external_bases(cls))
    return bool(found) and not (unseen and any(_runs_part(forwards, f) for f in found))


def _runs_part(forwards: Forwards, function: Function) -> bool:
    for call in syntax.every(function.node, ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and forwards.program.is_self(function.scope, func.value) is not None:
            if func.attr in HEADLESS or PARTS.search(func.attr) or forwards.is_layer(function.scope, func):
                return True
    return False
