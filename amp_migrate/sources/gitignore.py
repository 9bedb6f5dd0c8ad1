"""`.gitignore` rules, read lazily folder by folder (https://git-scm.com/docs/gitignore)."""

from __future__ import annotations

import contextlib
import os
import re
from itertools import count
from typing import TYPE_CHECKING

from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pathspec import GitIgnoreSpec


class Rules:
    """The patterns that one folder's ignore file, or one list of --exclude patterns, lays on what is below it."""

    def __init__(self, base: str, lines: Iterable[str]) -> None:
        from pathspec import GitIgnoreSpec

        lines = list(lines)
        if crowded := next((line for line in lines if line.count("**") > _MOST_FOLDERS), None):
            raise ValueError(f"{crowded!r} is tried in too many ways; the limit is {_MOST_FOLDERS} times **")
        self.base = base if base.endswith(os.sep) else base + os.sep
        self.spec: GitIgnoreSpec = GitIgnoreSpec.from_lines(lines)
        for pattern in self.spec.patterns:
            regex = getattr(pattern, "regex", None)
            if regex is not None and regex.pattern.count(_STAR) > 1:
                pattern.regex = re.compile(_without_second_thoughts(regex.pattern))
        self._quick = _any_of(self.spec)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored; False: expressly kept; None: these rules say nothing."""
        if not path.startswith(self.base):
            return None
        relative = path[len(self.base) :] + ("/" if is_folder else "")
        if os.sep != "/":
            relative = relative.replace(os.sep, "/")
        if self._quick is not None and not self._quick.search(relative):
            return None
        return self.spec.check_file(relative).include


_MOST_FOLDERS = 4  # `**` in a pattern, each of which may stand for any number of folders
_STAR = "[^/]*"  # as pathspec writes it
_KEPT_TO = "(?=(?P<star"  # what begins in place of one that keeps to the first place it can take
# A star and what stands between it and the next one of the same name, all of a fixed length.
_STARRED = re.compile(
    r"\[\^/\]\*((?:\\.|(?:\[\^/\]|\[(?!\^)(?:\\.|[^\]\\])+\])(?!\*)|[^\\\[\](){}|/.*+?^$])+)(?=\[\^/\]\*)"
)


def _without_second_thoughts(source: str) -> str:
    """The expression of a pattern with several stars, each of which takes the first place where what follows it stands and
    keeps to it, for a later one can do no more: `*a*a*a*a*b` took a year to find that a long name does not match."""
    numbers = count()
    return _STARRED.sub(lambda m: f"{_KEPT_TO}{(n := next(numbers))}>[^/]*?{m[1]}))(?P=star{n})", source)


def _any_of(spec: GitIgnoreSpec) -> re.Pattern[str] | None:
    """One expression that finds whatever any pattern finds: most paths match none, and one search says so."""
    compiled = (getattr(pattern, "regex", None) for pattern in spec.patterns)
    # Of those whose stars are kept to, the beginning: it finds more, and has no groups to refer to.
    sources = [regex.pattern.split(_KEPT_TO)[0] for regex in compiled if regex is not None]
    try:
        return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", source) for source in sources)) if sources else None
    except re.error:
        return None


def read_rules(folder: str) -> Rules | None:
    """The rules of the folder's own .gitignore and, at a repository's root, of .git/info/exclude."""
    lines: list[str] = []
    for name in (os.path.join(".git", "info", "exclude"), ".gitignore"):
        with contextlib.suppress(OSError, SourceError):
            lines += read_bytes(os.path.join(folder, name)).decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    try:
        return Rules(folder, lines)
    except ValueError:
        return Rules(folder, [line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    """Whether a line is a pattern: git passes over one that is none (`!`)."""
    try:
        Rules("", [line])
    except ValueError:
        return False
    return True


def is_ignored(rules: Iterable[Rules], path: str, is_folder: bool) -> bool:
    """What the innermost rules that say something say; `rules` come innermost first."""
    for layer in rules:
        verdict = layer.verdict(path, is_folder)
        if verdict is not None:
            return verdict
    return False
