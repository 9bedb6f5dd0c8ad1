"""Lines that still say Apex where torch's has taken its place: `print("using apex synced BN")`. They stay, and so does the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from amp_migrate.findings import Code, lines_told
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.cleanup.only_told import tells
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import Edits

CODES: tuple[Code, ...] = ()  # reported as AMP854: see `leftovers.py`

SAYS_APEX = re.compile(r"\bapex\b", re.IGNORECASE)


def apply(targets: Collection[Module], output: Output) -> None:
    """Name them once a file, in files of which nothing is left with Apex, nor kept of it."""
    for module in targets:
        edits = output.edits.get(module)
        if not edits or SAYS_APEX.search(module.text) is None or output.stays(module):
            continue
        told = {f.line for f in output.findings.get(module, ())}
        said = [p for p in _said(module, edits) if not isinstance(p, ast.Raise) or p.lineno not in told]
        note(module, said, "a message", "what is printed, logged, asserted or raised", output)


def note(
    module: Module, places: Sequence[ast.Call | ast.Assert | ast.Raise], construct: str, what: str, output: Output
) -> None:
    """Tell once of the places of a file in which something still says Apex, if there are any."""
    if not places:
        return
    where = lines_told(place.lineno for place in places)
    message = f"{what} still says Apex ({where}): change the text"
    output.note(module, min(places, key=lambda place: place.lineno), "AMP854", construct, message, about=where)


def _said(module: Module, edits: Edits) -> Iterator[ast.Call | ast.Assert | ast.Raise]:
    """What prints, logs, asserts or raises with a text that says Apex, as it will stand."""
    for call in module.of(ast.Call):
        if tells(call) and _says(edits, call, call.args):
            yield call
    for test in module.of(ast.Assert):
        if test.msg is not None and _says(edits, test, [test.msg]):
            yield test
    for stmt in module.of(ast.Raise):
        if isinstance(stmt.exc, ast.Call) and _says(edits, stmt, stmt.exc.args):
            yield stmt


def _says(edits: Edits, place: ast.AST, told: Collection[ast.expr]) -> bool:
    texts = (n for part in told for n in walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return not edits.gone(place) and any(SAYS_APEX.search(_left(edits, n)) for n in texts)


def _left(edits: Edits, text: ast.Constant) -> str:
    if text in edits.expressions:
        return edits.text(text)
    return "" if edits.gone(text) else str(text.value)
