"""A setting that is read under the switch alone, where the scaler is created outside of it.

What a configuration holds differs from run to run: one without mixed precision may have no loss scale to be read. No
construct of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.reading.program.logic import bracketed
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.values.there import may_lack
from amp_migrate.rules.migration import Migration


def asked_first(m: Migration, home: Home, settings: Sequence[ast.expr]) -> str:
    """What a scaler's place has to ask before it reads settings of an `initialize` call; empty where it may read them."""
    flag = home.own or home.flag
    if home.above is not None or flag.always or flag.never or not settings:
        return ""
    init = home.init
    around = {a for a in init.module.ancestors(init.stmt) if isinstance(a, ast.If)}
    outside = home.climbed or home.carrier or home.scope is not init.site.scope
    if not around or not outside or not any(may_lack(m.project, init.module, s, around) for s in settings):
        return ""
    return flag.text()


def guarded(text: str, asked: str, otherwise: str) -> str:
    """A text that is evaluated only where what is asked first holds."""
    if not asked:
        return text
    return f"{bracketed(ast.parse(text, mode='eval').body, text)} if {asked} else {otherwise}"
