"""The part of a project that can have to do with Apex: the files that mention it, and all that imports tie to them.

A migration reaches from one file to another only along imports, in either direction: a helper that is called, a caller
that must pass the scaler on, another caller of that helper. Files in no such chain are not parsed, which is what keeps
a large repository with a few training scripts cheap. Imports are read with a regular expression: it may see one in a
string, which costs time and nothing else.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from amp_migrate.sources.files import SourceFile

_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:"
    r"from[ \t]+(?P<module>\.*[ \t]*[\w.]*)[ \t]+import\b(?P<names>[ \t]*\([^)]*\)|(?:[^\n\\]|\\\r?\n)*)"
    r"|import[ \t]+(?P<modules>(?:[^\n\\;]|\\\r?\n)*)"
    r")"
    r"|import_module\(\s*[\"'](?P<dynamic>[\w.]+)",
    re.M,
)
_NAME = re.compile(r"[\w.]+")


def related(files: Sequence[SourceFile], seeds: Sequence[SourceFile]) -> set[str]:
    """The paths of the seeds and of every file that a chain of imports, followed both ways, ties to one of them."""
    index = _Index(files)
    tied: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        here = str(file.path)
        for there in index.imported(file):
            tied[here].add(there)
            tied[there].add(here)
    found = {str(seed.path) for seed in seeds}
    waiting = list(found)
    while waiting:
        for path in tied[waiting.pop()] - found:
            found.add(path)
            waiting.append(path)
    return found


class _Index:
    """Files by the dotted names that an import may call them."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.by_place = {str(file.path) for file in files}
        self.by_name: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for file in files:
            parts = _dotted(str(file.path))
            # Six components tell modules apart; more would only cost memory.
            for length in range(1, min(len(parts), 6) + 1):
                self.by_name[parts[-length:]].append(str(file.path))

    def imported(self, file: SourceFile) -> Iterator[str]:
        """The project files that this file may import, itself not counted."""
        seen: set[tuple[int, tuple[str, ...]]] = set()
        for level, parts in _imports(file.text):
            if (level, parts) in seen:
                continue
            seen.add((level, parts))
            yield from (path for path in self._resolve(str(file.path), level, parts) if path != str(file.path))

    def _resolve(self, importer: str, level: int, parts: tuple[str, ...]) -> Sequence[str]:
        folder = os.path.dirname(importer)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._at(folder, parts)
        if parts[-6:] not in self.by_name:
            return ()
        # The nearest one wins: beside the importer, or in a folder above it that a script or an installation
        # would have on its path. Else whatever bears the name, wherever it is.
        while True:
            if found := self._at(folder, parts):
                return found
            if (parent := os.path.dirname(folder)) == folder:
                return self.by_name[parts[-6:]]
            folder = parent

    def _at(self, folder: str, parts: tuple[str, ...]) -> list[str]:
        place = os.path.join(folder, *parts)
        return [path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if path in self.by_place]


def _dotted(path: str) -> tuple[str, ...]:
    parts = os.path.splitext(path)[0].split(os.sep)
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Level and dotted name of all that is imported; of `from a import b`, both a and a.b."""
    for match in _IMPORT.finditer(text):
        if match["module"] is not None:
            module = match["module"].replace(" ", "").replace("\t", "")
            level = len(module) - len(module.lstrip("."))
            base = tuple(part for part in module.split(".") if part)
            if base or level:
                yield level, base
            names = re.sub(r"#[^\n]*", "", match["names"])
            for name in re.findall(r"(?:^|[,(])[\s\\]*(\w+)", names):
                yield level, (*base, name)
        elif match["modules"] is not None:
            for name in match["modules"].split("#")[0].split(","):
                if dotted := _NAME.search(name):
                    yield 0, tuple(part for part in dotted[0].split(".") if part)
        else:
            yield 0, tuple(part for part in match["dynamic"].split(".") if part)
