"""The places of a migration: the statements it changed, on both sides, and the sites of Apex in the files it changed."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib.util import decode_source
from pathlib import Path

from amp_migrate.verify.coverage.statements import Spot, Statement, executable, statements
from amp_migrate.verify.programs import Pair, changed_files, tree_of
from amp_migrate.verify.recording.spec import Side

SIDES: tuple[Side, Side] = ("original", "migrated")
Key = tuple[str, str, str, Spot]  # side, path, digest of the file, where the statement begins


@dataclass(frozen=True)
class Place:
    """One changed statement."""

    side: Side
    path: str
    digest: str
    statement: Statement
    text: str
    file: str  # the file that is the same on both sides, as it is called in the migrated program

    @property
    def key(self) -> Key:
        """The same in every case that runs the same file."""
        return self.side, self.path, self.digest, self.statement.shows or (0, 0)

    @property
    def lines(self) -> tuple[int, int]:
        return self.statement.lines


@dataclass
class Source:
    """One side of a changed file."""

    side: Side
    path: str  # below the tree of its program, with slashes
    data: bytes
    lines: list[str]
    file: str
    places: list[Place] = field(default_factory=list)

    def spots(self) -> list[Spot]:
        """Where marks go: the places, and what tells why a place did not run."""
        found: set[Spot | None] = set()
        for place in self.places:
            found.add(place.statement.shows)
            for statement in place.statement.chain():
                found |= {statement.first, statement.spot}
        return sorted(spot for spot in found if spot is not None)


@dataclass
class Map:
    """The changed files of a pair; `trees` and `scripts` by side."""

    trees: dict[Side, Path]
    scripts: dict[Side, str]
    files: list[tuple[Source | None, Source | None]]

    def sources(self, side: Side) -> Iterator[Source]:
        for pair in self.files:
            source = pair[SIDES.index(side)]
            if source is not None:
                yield source

    def places(self) -> list[Place]:
        return [place for side in SIDES for source in self.sources(side) for place in source.places]

    def write(self, folder: Path) -> dict[Side, str]:
        """What the runs of each side are told to watch, as files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for side in SIDES:
            spots = {source.path: source.spots() for source in self.sources(side)}
            file = folder / f"watch-{side}.json"
            file.write_text(json.dumps({"script": self.scripts[side], "files": spots}))
            written[side] = str(file)
        return written


def find(pair: Pair) -> Map:
    """The places in which the two programs of `pair` differ. A file that does not parse has none."""
    trees: dict[Side, Path] = {"original": tree_of(pair.original), "migrated": tree_of(pair.migrated)}
    scripts: dict[Side, str] = {
        "original": pair.original.script.relative_to(trees["original"]).as_posix(),
        "migrated": pair.migrated.script.relative_to(trees["migrated"]).as_posix(),
    }
    files = []
    for before, after in changed_files(pair):
        named = (after, trees["migrated"]) if after is not None else (before, trees["original"])
        assert named[0] is not None
        file = named[0].relative_to(named[1]).as_posix()
        one, other = (_source(side, trees[side], path, file) for side, path in zip(SIDES, (before, after), strict=True))
        if not _is_test(file) or file in scripts.values():
            _fill(one, other)
        files.append((one, other))
    return Map(trees, scripts, files)


def _is_test(path: str) -> bool:
    """Tests are run by a test runner, not by the program."""
    *folders, name = path.split("/")
    return (
        name == "conftest.py"
        or name.startswith("test_")
        or name.endswith("_test.py")
        or bool({"test", "tests"} & set(folders))
    )


def _source(side: Side, tree: Path, path: Path | None, file: str) -> Source | None:
    if path is None:
        return None
    data = path.read_bytes()
    try:
        text = decode_source(data)  # as Python reads it: its encoding, its ends of lines
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("utf-8", "replace")
    return Source(side, path.relative_to(tree).as_posix(), data, text.split("\n"), file)


def _fill(one: Source | None, other: Source | None) -> None:
    """A line that only moved sideways is a change of the migrated program: it came into a region, or left one."""
    before, after = one.lines if one else [], other.lines if other else []
    if one is not None:
        stripped = [[line.strip() for line in lines] for lines in (before, after)]
        gone = {i for tag, i, j, _, _ in _opcodes(*stripped) if tag != "equal" for i in range(i, j)}
        one.places = _places(one, gone, apex=True)
    if other is not None:
        new = {i for tag, _, _, i, j in _opcodes(before, after) if tag != "equal" for i in range(i, j)}
        other.places = _places(other, new)


def _opcodes(before: Sequence[str], after: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def _places(source: Source, changed: set[int], *, apex: bool = False) -> list[Place]:
    """`changed` are lines from 0 on."""
    try:
        tree = ast.parse(source.data)
    except (SyntaxError, ValueError, RecursionError):
        return []
    names = _apex_names(tree) if apex else set()
    digest = hashlib.sha256(source.data).hexdigest()
    found = []
    for statement in statements(tree):
        if not executable(statement):
            continue
        first, last = statement.lines
        touched = any(line - 1 in changed and source.lines[line - 1].strip() for line in range(first, last + 1))
        if touched or (names and _uses(statement, names)):
            found.append(
                Place(source.side, source.path, digest, statement, source.lines[first - 1].strip(), source.file)
            )
    return found


def _apex_names(tree: ast.Module) -> set[str]:
    """What the imports of Apex of a file are called in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or "apex") for a in node.names if a.name.split(".")[0] == "apex"}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "apex":
            names |= {a.asname or a.name for a in node.names}
    return names


def _uses(statement: Statement, names: set[str]) -> bool:
    """Whether the statement itself, without the blocks in it, imports or names something of Apex."""
    node = statement.node
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any((a.asname or a.name.split(".")[0]) in names for a in node.names)
    blocks = {id(n) for n in ast.iter_child_nodes(node) if isinstance(n, (ast.stmt, ast.ExceptHandler, ast.match_case))}
    own = [n for n in ast.iter_child_nodes(node) if id(n) not in blocks]
    return any(isinstance(n, ast.Name) and n.id in names for child in own for n in ast.walk(child))
