"""JSON and YAML as far as settings need it: entries of mappings with the places where they stand in the text.

JSON is read whole, comments allowed. Of YAML only block mappings of plain values are: what is written otherwise is
not seen, and so never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Entry:
    """One `key: value`. The key stands at `start`, the value from `value_start` to `value_end`.

    `value` is the plain value, Ellipsis for what is not one; a mapping is in `inner`. `alone` marks an entry that stands
    behind the dash of a list, so that its line cannot go.
    """

    key: str
    start: int
    key_end: int
    value: object
    value_start: int
    value_end: int
    inner: Settings | None = None
    alone: bool = False


@dataclass(eq=False)
class Settings:
    """One mapping and its entries, in order; `start` and `end` are its braces in JSON."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def get(self, key: str) -> Entry | None:
        return next((e for e in self.entries if e.key == key), None)

    def plain(self) -> dict[str, object]:
        return {e.key: e.inner.plain() if e.inner is not None else e.value for e in self.entries}


class NotRead(Exception):
    """A text that is not JSON."""


class TooDeep(NotRead):
    """A text that nests deeper than any settings do."""


_DEEPEST = 100

_TOKEN = re.compile(
    r"(?P<space>(?:\s|//[^\n]*|/\*.*?\*/|#[^\n]*)+)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<word>-?[\w.+-]+)"
    r"|(?P<mark>[{}\[\],:])",
    re.S,
)


def read_json(text: str) -> list[Settings]:
    """Every object of a JSON text, outer ones first; raises NotRead."""
    tokens = [m for m in _tokens(text) if m.lastgroup != "space"]
    found: list[Settings] = []
    reader = _Reader(tokens, found)
    reader.value()
    if reader.at != len(tokens):
        raise NotRead
    return found


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotRead
        yield match
        at = match.end()


class _Reader:
    """Recursive descent over the tokens; the depth of a settings file is small, that of anything else is refused."""

    def __init__(self, tokens: list[re.Match[str]], found: list[Settings]) -> None:
        self.tokens = tokens
        self.found = found
        self.at = 0
        self.depth = 0

    def take(self, *marks: str) -> re.Match[str]:
        if self.at >= len(self.tokens):
            raise NotRead
        token = self.tokens[self.at]
        if marks and token[0] not in marks:
            raise NotRead
        self.at += 1
        return token

    def value(self) -> tuple[object, Settings | None, int, int]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise TooDeep
        token = self.take()
        result: tuple[object, Settings | None, int, int]
        if token[0] == "{":
            settings = self.mapping(token.start())
            result = (..., settings, settings.start, settings.end)
        elif token[0] == "[":
            items: list[object] = []
            while self.tokens[self.at : self.at + 1] and self.tokens[self.at][0] != "]":
                items.append(self.value()[0])
                if self.tokens[self.at : self.at + 1] and self.tokens[self.at][0] == ",":
                    self.at += 1
            result = (items, None, token.start(), self.take("]").end())
        elif token.lastgroup in ("string", "word"):
            result = (_scalar(token[0]), None, token.start(), token.end())
        else:
            raise NotRead
        self.depth -= 1
        return result

    def mapping(self, start: int) -> Settings:
        settings = Settings(start=start)
        self.found.append(settings)
        while self.tokens[self.at : self.at + 1] and self.tokens[self.at][0] != "}":
            key = self.take()
            if key.lastgroup != "string":
                raise NotRead
            self.take(":")
            value, inner, first, last = self.value()
            settings.entries.append(Entry(str(_scalar(key[0])), key.start(), key.end(), value, first, last, inner))
            if self.tokens[self.at : self.at + 1] and self.tokens[self.at][0] == ",":
                self.at += 1
        settings.end = self.take("}").end()
        return settings


def _scalar(text: str) -> object:
    try:
        return json.loads(text, parse_int=_whole)
    except json.JSONDecodeError:
        raise NotRead from None


def _whole(digits: str) -> object:
    """An integer; one of thousands of digits, which Python does not convert, is no value of a setting."""
    return int(digits) if len(digits) < 1000 else digits


_LINE = re.compile(
    r"(?P<indent>[ ]*(?P<item>- +)?)(?P<key>[\w.-]+|\"[^\"\n]*\"|'[^'\n]*')[ ]*:"
    r"(?:[ ]+(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s#\"'&*|>{\[][^#\n]*?)?[ ]*(?P<other>[&*|>{\[][^\n]*)?)?"
    r"(?:[ ]+#[^\n]*)?[ \r]*$"
)


def read_yaml(text: str) -> list[Settings]:
    """The block mappings of a YAML text, each with the entries it can be told to have; raises TooDeep."""
    found: list[Settings] = []
    open_: list[tuple[int, Settings]] = []
    skipped: int | None = None  # the indentation of a block scalar's key
    at = 0
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        bare = line.rstrip("\r\n")
        if not bare.strip() or bare.lstrip().startswith("#"):
            continue
        indent = len(bare) - len(bare.lstrip(" "))
        if skipped is not None and indent > skipped:
            continue
        skipped = None
        match = _LINE.match(bare)
        if match is None:
            continue
        depth = len(match["indent"])
        while open_ and (open_[-1][0] > depth or (open_[-1][0] == depth and match["item"])):
            open_.pop()
        if not open_ or open_[-1][0] < depth:
            settings = Settings(start=start, end=at)
            if open_ and open_[-1][1].entries and not match["item"]:
                open_[-1][1].entries[-1].inner = settings
            open_.append((depth, settings))
            if len(open_) > _DEEPEST:
                raise TooDeep
            found.append(settings)
        key_start, key_end = start + match.start("key"), start + match.end("key")
        value = match["value"]
        first = start + match.start("value") if value is not None else key_end
        last = start + match.end("value") if value is not None else key_end
        if match["other"] is not None and match["other"][0] in "|>":
            skipped = indent
        plain = None if value is None else _plain(value)
        open_[-1][1].entries.append(
            Entry(
                match["key"].strip("\"'"),
                key_start,
                key_end,
                ... if match["other"] is not None else plain,
                first,
                last,
                alone=bool(match["item"]),
            )
        )
        open_[-1][1].end = at
    return found


def _plain(text: str) -> object:
    """A scalar as YAML 1.1 reads it, as far as settings differ by it."""
    if text[0] in "\"'":
        return text[1:-1]
    words: Mapping[str, object] = {"true": True, "false": False, "null": None, "~": None, "yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def lines_of(text: str, entry: Entry) -> tuple[int, int]:
    """The line of a YAML entry."""
    end = text.find("\n", entry.value_end)
    return text.rfind("\n", 0, entry.start) + 1, len(text) if end < 0 else end + 1


def runs_of(settings: Settings, gone: Sequence[Entry]) -> Iterator[tuple[Entry, int, int]]:
    """What to cut from a JSON object so that entries go with their commas: each run of them, led by its first."""
    entries = settings.entries
    for place, entry in enumerate(entries):
        if entry not in gone or (place and entries[place - 1] in gone):
            continue
        last = place
        while last + 1 < len(entries) and entries[last + 1] in gone:
            last += 1
        if last + 1 < len(entries):
            yield entry, entry.start, entries[last + 1].start
        elif place:
            yield entry, entries[place - 1].value_end, entries[last].value_end
        else:
            yield entry, settings.start + 1, settings.end - 1
