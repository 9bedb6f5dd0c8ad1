"""Comments and docstrings of migrated files that still speak of Apex, where nothing of the program needs it any more; and all
texts of a program that was migrated before.

They are a person's to change: what stands there may tell why code is as it is. Who says where code was taken from is right.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from amp_migrate import literals
from amp_migrate.findings import FileResult, Finding, lines_told
from amp_migrate.leftovers import REFERENCE
from amp_migrate.sources.files import SourceFile

_APEX = re.compile(r"\bapex\b", re.I)
MOST = 8  # lines told of a file
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


# What is not said of an apex of another kind.
_MIXED = r"(?:fp16|mixed|half|16[- ]bit)"
_SURELY = re.compile(
    rf"nvidia[ ./-]*apex|\bapex[ ./]*amp\b|\bapex\b.{{0,40}}\b{_MIXED}|{_MIXED}.{{0,60}}\bapex\b", re.I
)
_NATIVE = re.compile(r"\btorch\.amp\.GradScaler\b|\bamp\.GradScaler\(\s*[\"']")


def migrated_before(sources: Sequence[SourceFile]) -> list[str]:
    """The files of a program that has torch's mixed precision of today, where its texts still speak of NVIDIA Apex."""
    if not any(_SURELY.search(source.text) for source in sources):
        return []
    return [source.display for source in sources if _NATIVE.search(source.text)]


def left_texts(sources: Sequence[SourceFile]) -> list[FileResult]:
    """The files of such a program that do, one line each."""
    found: list[FileResult] = []
    for source in sources:
        said = enumerate(source.text.splitlines(), 1) if _APEX.search(source.text) else ()
        lines = [number for number, line in said if _APEX.search(line) and not _TAKEN_FROM.search(line)]
        if lines:
            where = lines_told(lines, MOST)
            message = f"{where} still {'speak' if len(lines) > 1 else 'speaks'} of Apex, which nothing here uses: change the text"
            finding = Finding(lines[0], 1, REFERENCE, "text", "note", "look", message)
            found.append(FileResult(source.display, "unchanged", [finding]))
    return found
