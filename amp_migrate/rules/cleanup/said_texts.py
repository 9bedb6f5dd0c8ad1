"""Lines that still say Apex where torch's has taken its place: `print("using apex synced BN")`. They stay, and so does the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.cleanup.only_told import tells
from amp_migrate.rules.migration import Output

CODES: tuple[Code, ...] = ()  # reported as AMP854: see `leftovers.py`

SAYS_APEX = re.compile(r"\bapex\b", re.IGNORECASE)


def apply(targets: Collection[Module], output: Output) -> None:
    """Name them once a file, in files of which nothing is left with Apex, nor kept of it."""
    for module in targets:
        edits = output.edits.get(module)
        if not edits or SAYS_APEX.search(module.text) is None or output.stays(module):
            continue
        note(module, [c for c in _said(module) if not edits.gone(c)], "a message", "what is printed or logged", output)


def note(module: Module, calls: Collection[ast.Call], construct: str, what: str, output: Output) -> None:
    """Tell once of the calls of a file in which something still says Apex, if there are any."""
    if not calls:
        return
    lines = sorted({call.lineno for call in calls})
    where = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
    message = f"{what} still says Apex ({where}): torch's own has taken its place"
    output.note(module, min(calls, key=lambda call: call.lineno), "AMP854", construct, message, about=where)


def _said(module: Module) -> Iterator[ast.Call]:
    """The calls that print or log a text which says Apex."""
    for call in module.of(ast.Call):
        texts = (n.value for a in call.args for n in walk(a) if isinstance(n, ast.Constant))
        if tells(call) and any(isinstance(t, str) and SAYS_APEX.search(t) for t in texts):
            yield call
