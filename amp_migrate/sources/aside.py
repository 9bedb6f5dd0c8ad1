"""What of a long file has nothing to do with training, and is left out while the rest is read and written.

A tree of a file takes a hundred times its text, and every line of it is looked at before and after the migration. In a file
of very many lines a string of as many lines stands in place of the functions and classes that neither train, nor call what
does, nor are called by it; it becomes their lines again at the end.
"""

from __future__ import annotations

import keyword
import re
import symtable
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from amp_migrate import literals
from amp_migrate.sources.files import SourceFile

LONG = 400_000  # characters of a file that is not read whole
FEWEST = 40  # lines that are worth leaving out
NAME = "_left_aside_"

_DEFINES = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+(\w+)")
_HEAD = re.compile(r"(?:async|def|class)\b|@")
_TRAINS = re.compile(
    r"apex|amp|torch|optim|loss|backward|scale|step|model|grad|half|float|cast|cuda|fp16|globals\(", re.I
)
_TAKES = re.compile(r"\bfor\b(.+?)\bin\b|\bas[ \t]+(\w+)")
_WORD = re.compile(r"\w+")
_PLACE = re.compile(rf'"""{NAME}(\d+)\n(?:\.\n)*"""')


@dataclass(frozen=True)
class Aside:
    """A file without what was left out of it, and the lines that belong in its places."""

    source: SourceFile
    kept: Sequence[str]

    def whole(self, text: str) -> str | None:
        """A text with all lines in their places again; None where a place is gone, or is there twice."""
        places = [int(place) for place in _PLACE.findall(text)]
        if places != list(range(len(self.kept))) or text.count(NAME) != len(places):
            return None
        return _PLACE.sub(lambda place: self.kept[int(place[1])], text)


def left_aside(files: Iterable[SourceFile]) -> Iterator[Aside]:
    """The files, those that are long without what concerns nothing of the rest."""
    files = list(files)
    for file in files:
        aside = None
        if len(file.text) > LONG:
            others = {word for other in files if other is not file for word in _WORD.findall(other.text)}
            aside = _shortened(file, others)
        yield aside or Aside(file, ())


def _shortened(file: SourceFile, named: Collection[str]) -> Aside | None:
    """A file without the definitions at its top level that concern nothing else; `named` are words of other files."""
    text = file.text
    if NAME in text or "\r" in text or "\f" in text:
        return None
    rows = text.split("\n")
    kept: list[str] = []
    short: list[str] = []
    done = 0
    for start, end in _runs(_unconcerned(rows, named)):
        if end - start >= FEWEST:
            short += [*rows[done:start], f'"""{NAME}{len(kept)}', *["."] * (end - start - 2), '"""']
            kept.append("\n".join(rows[start:end]))
            done = end
    found = Aside(replace(file, text="\n".join([*short, *rows[done:]])), kept)
    try:
        symtable.symtable(literals.shortened(found.source.text) if kept else "", file.display, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # lines of a string or within brackets that read as a definition
    return found if kept and found.whole(found.source.text) == text else None


def _unconcerned(rows: Sequence[str], named: Collection[str]) -> Iterator[tuple[int, int]]:
    """The rows of definitions at the top level of a file that neither train nor are tied to what does, by words."""
    rows = literals.shortened("\n".join(rows)).split("\n")
    blocks = list(_blocks(rows))
    texts = ["\n".join(rows[start:end]) for start, end in blocks]
    defined = [(_DEFINES.search(text) or [""] * 2)[1] if _HEAD.match(text) else "" for text in texts]
    words = [set(_WORD.findall(text)) for text in texts]
    bound = {word for text, name in zip(texts, defined, strict=True) if not name for word in _bound(text)}
    waiting = [
        i
        for i, text in enumerate(texts)
        if not defined[i]
        or defined[i] in named
        or _TRAINS.search(text) is not None
        or text.count('"""') % 2
        or text.count("'''") % 2
        or not words[i].isdisjoint(bound)
    ]
    concerned = set(waiting)
    of_name: dict[str, list[int]] = {}
    naming: dict[str, list[int]] = {}
    names = set(defined) - {""}
    for i, name in enumerate(defined):
        of_name.setdefault(name, []).append(i)
        for word in words[i] & names:
            naming.setdefault(word, []).append(i)
    while waiting:
        i = waiting.pop()
        near = [j for word in words[i] & names for j in of_name[word]] + naming.get(defined[i], [])
        new = set(near) - concerned
        concerned |= new
        waiting += new
    yield from (block for i, block in enumerate(blocks) if i not in concerned)


def _bound(text: str) -> Iterator[str]:
    """The names that statements may bind, and some more."""
    for row in text.split("\n"):
        taken = [row.partition("=")[0]] if "=" in row else []
        taken += [part for groups in _TAKES.findall(row) for part in groups]
        yield from (word for part in taken for word in _WORD.findall(part) if not keyword.iskeyword(word))


def _blocks(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The rows of each statement at the top level, the decorators and the comments above it not told apart from it."""
    starts = [i for i, row in enumerate(rows) if row and not row[0].isspace() and row[0] not in ")]}#"]
    first = 0
    decorated = False
    for start in starts:
        if start > first and not decorated:
            yield first, start
            first = start
        decorated = rows[start].startswith("@")
    yield first, len(rows)


def _runs(blocks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Blocks that follow each other, joined."""
    run: tuple[int, int] | None = None
    for start, end in blocks:
        if run is not None and run[1] == start:
            run = run[0], end
        else:
            if run is not None:
                yield run
            run = start, end
    if run is not None:
        yield run
