"""Per-line comments: `# amp-migrate: ignore[AMP201,AMP3]` or, for every code, `# amp-migrate: ignore`."""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from amp_migrate.registry import normal

_COMMENT = re.compile(r"#\s*amp-migrate:\s*ignore\b(?:\[([^\]]*)\])?")


def ignored_lines(text: str) -> dict[int, set[str] | None]:
    """Lines (from 1) whose sites are left alone, each with its code prefixes, or None for every code.

    A comment counts for all physical lines of the logical line it ends or interrupts: the whole of a call that
    spans lines, the header of a `with`, but not its body. Comments inside strings are no comments.
    """
    if "amp-migrate:" not in text:
        return {}
    found: dict[int, set[str] | None] = {}
    start = 0
    marks: list[tuple[int, set[str] | None]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                marks.append((token.start[0], _codes(match[1])))
            elif token.type == tokenize.NEWLINE:
                for _, codes in marks:
                    for line in range(start or token.start[0], token.start[0] + 1):
                        _add(found, line, codes)
                start, marks = 0, []
            elif token.type == tokenize.NL and not start:
                for line, codes in marks:
                    _add(found, line, codes)
                marks = []
            elif not start and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT):
                start = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass  # the file does not parse, and is reported for that
    return found


def comment_lines(text: str) -> dict[int, set[str] | None]:
    """The same of a file that is no Python: each comment counts for its own line."""
    if "amp-migrate:" not in text:
        return {}
    marks = ((number, _COMMENT.search(line)) for number, _, line in _in_lines(text))
    return {n: _codes(match[1]) for n, match in marks if match is not None}


def unknown_codes(text: str, known: Iterable[str], *, python: bool = True) -> list[tuple[int, int, str]]:
    """Line, column and code of each prefix in an ignore comment that no known code starts with."""
    if "amp-migrate:" not in text:
        return []
    codes = list(known)
    found = []
    for line, column, comment in _comments(text) if python else _in_lines(text):
        if match := _COMMENT.search(comment):
            unknown = (p for p in sorted(_codes(match[1]) or ()) if not any(c.startswith(p) for c in codes))
            found += [(line, column + match.start() + 1, prefix) for prefix in unknown]
    return found


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Line, offset and text of each comment of a program."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # it does not parse, and is reported for that
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield *token.start, token.string


def _in_lines(text: str) -> Iterator[tuple[int, int, str]]:
    return ((number, 0, line) for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1))


def is_ignored(lines: dict[int, set[str] | None], line: int, code: str) -> bool:
    """Whether a site on this line with this code is to be left alone."""
    if line not in lines:
        return False
    codes = lines[line]
    return codes is None or any(code.startswith(prefix) for prefix in codes)


def _codes(listed: str | None) -> set[str] | None:
    if listed is None:
        return None
    return {normal(code) for code in re.split(r"[,\s]+", listed) if code}


def _add(found: dict[int, set[str] | None], line: int, codes: set[str] | None) -> None:
    known = found.get(line, set())
    found[line] = None if codes is None or known is None else known | codes
