"""Comments and docstrings of migrated files that still speak of Apex, where nothing of the program needs it any more.

They are a person's to change: what stands there may tell why code is as it is. Who says where code was taken from is right.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from amp_migrate import literals
from amp_migrate.findings import FileResult, Finding
from amp_migrate.leftovers import REFERENCE

_APEX = re.compile(r"\bapex\b", re.I)
_TAKEN_FROM = re.compile(r"\b(?:modified|adapted|copied|borrowed|taken|based|inspired|derived|ported)\b", re.I)


def stale_comments(results: Sequence[FileResult]) -> list[FileResult]:
    """The migrated files that have some, with the lines as they are now; none where a part of Apex is still needed."""
    if any(f.needs_apex for result in results for f in result.findings):
        return []
    found = ((r.path, _found(r.after)) for r in results if r.after is not None and r.path.endswith(".py"))
    return [FileResult(path, "unchanged", findings) for path, findings in found if findings]


def _found(text: str) -> list[Finding]:
    if _APEX.search(text) is None:
        return []
    message = "a comment still speaks of Apex, which the migrated program no longer uses"
    lines = {number for number, said in _told(text) if _APEX.search(said) and not _TAKEN_FROM.search(said)}
    return [Finding(number, 1, REFERENCE, "comment", "note", "look", message) for number in sorted(lines)]


def _told(text: str) -> Iterator[tuple[int, str]]:
    """The comments of a file, and the lines of its docstrings, by line."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        tree = literals.parse(text)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            last = first.end_lineno or first.lineno
            yield from ((n, lines[n - 1]) for n in range(first.lineno, last + 1) if n <= len(lines))
