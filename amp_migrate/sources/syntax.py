"""Whether a file parses, found without building a tree in Python: the check runs over whole projects."""

from __future__ import annotations

import contextlib
import re
import symtable
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from amp_migrate import literals
from amp_migrate.findings import Finding
from amp_migrate.sources.failures import OLD_WORD, PYTHON_2, SYNTAX, TOO_LARGE, SourceError
from amp_migrate.sources.files import SourceFile

# Bytes of one source that is parsed. libcst takes about a second and 100 MB for each 100 kB of dense code.
MAX_SIZE = 2_000_000
# Levels of syntax, one for each `elif` and each `+` of a chain. Time grows with the square of them.
MAX_DEPTH = 500
# Of patterns in a `case`. libcst tries each of them in several ways: time grows fourfold with a level.
MAX_PATTERNS = 8

# Characters that are parsed at once.
PIECE = 200_000
_DEFINITION = re.compile(r"(?<=\n\n)(?=(?:def|class|async)\b|@)")

_PYTHON_2 = (
    (re.compile(r"\bprint\s+[^\s=(.,:)\]]|\bprint\s*>>"), "print statement"),
    (re.compile(r"\bexcept\b[^#'\"]*[\w.)],\s*\w+\s*:"), "except clause with a comma"),
    (re.compile(r"\braise\s+[\w.]+\s*,"), "raise statement with a comma"),
    (re.compile(r"(?<![-.\w])exec\s+['\"\w]"), "exec statement"),
    (re.compile(r"<>"), "the <> operator"),
    (re.compile(r"`[^`]+`"), "backticks"),
    (re.compile(r"\b0[0-7]+\b"), "octal number"),
    (re.compile(r"\b[uU][rR]['\"]"), "ur string"),
    (re.compile(r"\b\d+[lL]\b"), "long number"),
    (re.compile(r"\bdef\s+\w+\s*\(.*\((\w+\s*,\s*)+\w*\s*\)\s*[,)]"), "tuple parameter"),
)
_MERGE = re.compile(r"(<{7}|={7}|>{7})( |$)")  # what git writes around the two sides of a conflict
_SHELL = re.compile(
    r"\s*(?:(?:sudo|find|ls|cd|cp|mv|rm|mkdir|ln|cat|echo|export|wget|curl|git|pip3?|conda|apt|apt-get|tar|unzip|chmod|bash|sh)"
    r"\s+(?!(?:is|in|and|or|if|not)\b)[-\w./~$*'\"{])(?!.*\s=\s)"
)
# `async` is a keyword since Python 3.7; torch calls the argument non_blocking since 0.4.
_ASYNC = re.compile(r"(\.(?:cuda|to|copy_|type)\s*\((?:[^()]|\([^()]*\))*?(?<![^\s(,]))async(?=\s*=(?!=))")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|#.*")


def parse_error(source: SourceFile) -> Finding | None:
    """Why the program of a file does not parse, or None when it does.

    Positions are those of the program text; for a notebook the caller maps them back.
    """
    if source.text.isspace() or not source.text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short = literals.shortened(source.text)
            if short is not source.text or len(short) > PIECE:
                with contextlib.suppress(SyntaxError):
                    for piece in pieces(short):
                        symtable.symtable(piece, source.display, "exec")
                    return None
            symtable.symtable(source.text, source.display, "exec")
    except SyntaxError as error:
        return _describe(source.text, error).finding()
    except (RecursionError, MemoryError):
        return too_deep().finding()
    except (ValueError, OverflowError) as error:
        return SourceError(SYNTAX, f"does not parse: {error or type(error).__name__}").finding()
    return None


def parsed(source: SourceFile) -> tuple[SourceFile, Finding | None]:
    """A file whose program parses, and why it does not: `x.cuda(async=True)` is read as what torch calls it by now."""
    problem = parse_error(source)
    if problem is None or source.notebook is not None or "async" not in source.text or "apex" not in source.text:
        return source, problem  # what has nothing of Apex is not written, and is told to be out of date
    renamed = replace(source, text=_ASYNC.sub(r"\1non_blocking", source.text), old=source.text)
    return (renamed, None) if renamed.text != source.text and parse_error(renamed) is None else (source, problem)


def renamed(source: SourceFile) -> Iterator[Finding]:
    """What is written under another name where a file is changed."""
    lines = zip(source.written.split("\n"), source.text.split("\n"), strict=True)
    for number, (old, new) in enumerate(lines, 1):
        if old != new:
            message = "async is a keyword since Python 3.7, and no argument: torch's name for it is non_blocking"
            yield Finding(number, old.index("async") + 1, OLD_WORD, "async", "note", "look", message)


def parse_error_after(source: SourceFile, after: str) -> Finding | None:
    """Why a program does not parse that was changed; only the definitions that changed are looked at in one that did."""
    before = source.text
    start = _common(lambda n: before[:n] == after[:n], min(len(before), len(after)))
    end = _common(lambda n: before[-n:] == after[-n:], min(len(before), len(after)) - start)
    first = max((m.start() for m in _DEFINITION.finditer(after, 0, start)), default=0)
    rest = _DEFINITION.search(after, len(after) - end)
    changed = after[first : rest.start() if rest is not None else len(after)]
    part = replace(source, text=changed, notebook=None)
    if len(changed) < len(after) and parse_error(part) is None:
        return None
    return parse_error(replace(part, text=after))


def _common(same: Callable[[int], bool], limit: int) -> int:
    """The largest number up to a limit for which this holds, as it does for all that are smaller."""
    low = 0
    while low < limit:
        middle = (low + limit + 1) // 2
        low, limit = (middle, limit) if same(middle) else (low, middle - 1)
    return low


def pieces(text: str) -> Iterator[str]:
    """A program in pieces that each parse if, and only if, all of it does: the parser takes a hundred times their size."""
    start = 0
    for place in _DEFINITION.finditer(text):
        if place.start() - start > PIECE and "from __future__" not in text[place.start() :]:
            yield text[start : place.start()]
            start = place.start()
    yield text[start:]


def too_deep(limit: int = MAX_DEPTH, of: str = "") -> SourceError:
    """Why a file that nests beyond a limit, or beyond what Python's own parser takes, is not migrated."""
    return SourceError(SYNTAX, f"nested too deeply; the limit is {limit} levels{of}")


def size_error(size: int) -> SourceError | None:
    """Why a file that mentions Apex is not migrated for its size in bytes, or None."""
    if size <= MAX_SIZE:
        return None
    return SourceError(TOO_LARGE, f"{size / 1e6:.1f} MB is too large to rewrite; the limit is {MAX_SIZE / 1e6:g} MB")


def _describe(text: str, error: SyntaxError) -> SourceError:
    line = max(error.lineno or 1, 1)
    column = max(error.offset or 1, 1)
    lines = re.split(r"\r\n|\r|\n", text)
    shown = lines[line - 1] if line <= len(lines) else ""
    if _MERGE.match(shown):
        return SourceError(SYNTAX, f"does not parse: a merge left its marker, line {line}", line, 1)
    if _SHELL.match(shown):
        return SourceError(
            SYNTAX, f"does not parse: a command for a shell (a notebook has ! before it), line {line}", line, 1
        )
    code = _QUOTED.sub(lambda m: m[0][:1] + m[0][-1:] if m[0][0] != "#" else "", shown)
    indented = isinstance(error, IndentationError)  # what else stands in the line is not why
    for pattern, name in () if indented else _PYTHON_2:
        if pattern.search(code):
            return SourceError(PYTHON_2, f"Python 2 syntax: {name}, line {line}", line, column)
    if isinstance(error, TabError):
        return SourceError(PYTHON_2, f"Python 2 syntax: tabs and spaces mixed, line {line}", line, column)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return SourceError(SYNTAX, f"does not parse with Python {version}: {error.msg}, line {line}", line, column)
