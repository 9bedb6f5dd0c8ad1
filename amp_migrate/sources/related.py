"""The part of a project that can have to do with Apex: the files that use it, and those that imports tie to them.

A migration reaches from one file to another only along imports, in either direction: a helper that is called, a caller
that must pass the scaler on, another caller of that helper; and to what reads the checkpoints that it saves. Files in no
such chain are not parsed, which is what keeps a large repository with a few training scripts cheap. All of this is read
with regular expressions: they may see an import in a string, which costs time and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePath

from amp_migrate.sources import by_file, by_name
from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.named import all_there

# Uses of Apex that other files can be part of; the bare word may stand in a comment.
_USES_APEX = re.compile(r"(?:from|import)(?:[ \t]|\\\r?\n)+apex\b|[\"']apex[.\"']|scale_loss|master_params|_amp_state")
_APEX_WORDS = ("apex", "scale_loss", "master_params", "_amp_state")  # one of which is in whatever that finds
# Those whose functions may be handed a scaler: what only takes parts from Apex keeps its signatures.
_SCALES = re.compile(r"\bamp\b|scale_loss|master_params|_amp_state|fp16_utils|FP16_Optimizer")
# A file without any of these words neither trains nor hands a model, a loss or an optimizer on.
_TRAINING = ("torch", "optim", "loss", "backward", "scaler", ".step(", "model", "amp.")
# What runs a network may be given a region: whoever imports that may call it, and need name nothing of the above.
_RUNS = ("model(", "nn.Module", ".forward(")
# What a file must name to be concerned when another one re-exports torch.cuda.amp.
_AMP_NAMES = ("autocast", "GradScaler", "custom_fwd", "custom_bwd", "amp.")

# One of these stands in a folder that is installed, or described, by itself.
_OF_A_PROJECT = ("setup.py", "setup.cfg", "pyproject.toml", "requirements.txt", "README.md")

_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:"
    r"from[ \t]+(?P<module>\.*[ \t]*[\w.]*)[ \t]+import\b(?P<names>[ \t]*\([^)]*\)|(?:[^\n\\]|\\\r?\n)*)"
    r"|import[ \t]+(?P<modules>(?:[^\n\\;]|\\\r?\n)*)"
    r")"
    r"|import_module\(\s*[\"'](?P<dynamic>[\w.]+)",
    re.M,
)
_NAME = re.compile(r"[\w.]+")
_QUOTED_FOLDER = re.compile(r"[\"'](?:[^\"'\s]*[/\\])?([\w.-]+)[/\\]?[\"']")  # the last folder of a path


def related(
    files: Sequence[SourceFile],
    mention: Callable[[SourceFile], bool],
    settings: Callable[[], Iterable[str]] = lambda: (),
) -> set[str]:
    """The paths of all files that mention AMP at all, and of those that imports tie to them.

    From a file that uses Apex, chains of imports are followed both ways through files that have to do with training, name
    something of Apex's or import one that uses it, and then to whatever they import.
    From one that only has deprecated torch.cuda.amp names, just to the importers that name them too. `settings`: the texts of
    files that may name modules which are loaded by name; asked for where something is.
    """
    found = {str(file.path) for file in files if mention(file)}
    if not found:
        return found
    imports = imported_files(files, settings)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for here, others in imports.items():
        for there in others:
            importers[there].add(here)
    texts = {str(file.path): file.text for file in files}

    def names(path: str, words: tuple[str, ...]) -> bool:
        # A package's __init__ hands on what it does not name.
        return PurePath(path).name == "__init__.py" or any(word in texts[path] for word in words)

    users = {path for path in found if _USES_APEX.search(texts[path])}
    handed_on = _handed_on(texts[path] for path in users)

    def runs(path: str) -> bool:
        return "torch" in texts[path] and any(word in texts[path] for word in _RUNS)

    def ties(path: str) -> Iterator[str]:
        near = (*imports[path], *importers[path])
        follow = (there for there in near if names(there, _TRAINING) or handed_on.search(texts[there]))
        return chain(follow, importers[path]) if path in users or runs(path) else follow

    def takers(path: str) -> Iterator[str]:
        return (there for there in importers[path] if names(there, _AMP_NAMES))

    # What those import in turn takes no part, but says what their names are.
    explained = _reached(_reached(users, ties), lambda path: iter(imports[path]))
    return found | explained | _reached(found - users, takers)


def _handed_on(texts: Iterable[str]) -> re.Pattern[str]:
    """The names that files import from Apex, which others may import from them."""
    statements = (match for text in texts for match in _statements(text) if (match["module"] or "").startswith("apex"))
    words = {word for match in statements for word in re.findall(r"\w+", re.sub(r"#[^\n]*", "", match["names"]))} - {
        "as"
    }
    return re.compile(rf"\b(?:{'|'.join(sorted(words))})\b" if words else r"(?!)")


def _reached(start: set[str], neighbours: Callable[[str], Iterator[str]]) -> set[str]:
    found, waiting = set(start), list(start)
    while waiting:
        for path in neighbours(waiting.pop()):
            if path not in found:
                found.add(path)
                waiting.append(path)
    return found


def imported_files(
    files: Sequence[SourceFile], settings: Callable[[], Iterable[str]] | None = None
) -> Mapping[str, set[str]]:
    """The project files that each file may import, or whose checkpoints it reads. What is loaded by a name out of sight is
    named in the `settings` or in quotes; without settings, as those that are given have been chosen, it may be any."""
    index = _Index(files)
    found = {str(file.path): set(index.imported(file)) for file in files}
    for path, saving in by_file.readers({str(file.path): file.text for file in files}).items():
        found[path] |= {other for other in saving if not index.apart(path, other)}
    loading = [file for file in files if by_name.loads(file.text)]
    unknown = []
    for file in loading:
        below = set(index.below_beginnings(file))
        found[str(file.path)] |= below - {str(file.path)}
        unknown += [file] if not below and by_name.loads_any(file.text) else []
    if unknown:
        brought = by_name.brought(found, {path: path for path in found})
        alone = {str(f.path) for f in files if by_name.may_be_loaded(f.text)} - brought
        if settings is not None and alone:
            named = set().union(
                *(by_name.named_in(f.text, quoted=True) for f in files), *map(by_name.named_in, settings())
            )
            alone = {path for path in alone if any(n in named for n in _names(path))}
        for file in unknown:
            near = {path for path in alone if not index.apart(str(file.path), path)} - {str(file.path)}
            found[str(file.path)] |= near if len(near) <= by_name.MOST else set()
    return found


def _names(path: str) -> Iterator[str]:
    """What a file may be called in full: `model.net`, `package.model.net`."""
    parts = _dotted(path)
    return (".".join(parts[-length:]) for length in range(2, min(len(parts), 6) + 1))


def tied(files: Sequence[SourceFile]) -> list[list[str]]:
    """The paths of files that imports tie together, in either direction, group by group."""
    ties: dict[str, set[str]] = {str(file.path): set() for file in files}
    for path, others in imported_files(files).items():
        for other in others & ties.keys():
            ties[path].add(other)
            ties[other].add(path)
    groups: list[list[str]] = []
    seen: set[str] = set()
    for start in ties:
        if start in seen:
            continue
        seen.add(start)
        group = [start]
        for path in group:
            new = sorted(ties[path] - seen)
            seen.update(new)
            group += new
        groups.append(group)
    return groups


class _Index:
    """Files by the dotted names that an import may call them."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.by_place = {str(file.path) for file in files}
        self.scaling = {
            str(file.path)
            for file in files
            if any(
                word in file.text for word in _APEX_WORDS
            )  # which most files have none of: found in a tenth of the time
            and _USES_APEX.search(file.text)
            and _SCALES.search(file.text)
        }
        self._projects: dict[str, bool] = {}  # by folder, those that have been asked about
        self._inside: defaultdict[str, list[str]] = defaultdict(list)  # by folder
        for path in sorted(self.by_place):
            self._inside[os.path.dirname(path)].append(path)
        self.folders = set(self._inside)
        self.by_name: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for file in files:
            parts = _dotted(str(file.path))
            # Six components tell modules apart; more would only cost memory.
            for length in range(1, min(len(parts), 6) + 1):
                self.by_name[parts[-length:]].append(str(file.path))
        self.on_path = {name for file in files if "sys.path" in file.text for name in _QUOTED_FOLDER.findall(file.text)}
        self.top = os.path.commonpath(self.folders) if self.folders else ""
        self.own = ""
        packed = os.path.join(self.top, "__init__.py") in self.by_place
        if packed or any("sys.path" in file.text for file in files):
            texts = {".".join(_dotted(os.path.relpath(str(file.path), self.top))): file.text for file in files}
            name = own_name(texts.values(), dotted_names(texts))
            self.own = name if packed or (name and all_there(name, texts)) else ""

    def imported(self, file: SourceFile) -> Iterator[str]:
        """The project files that this file may import, itself not counted."""
        seen: set[tuple[int, tuple[str, ...]]] = set()
        for level, parts in _imports(file.text):
            if (level, parts) in seen:
                continue
            seen.add((level, parts))
            yield from (path for path in self._resolve(str(file.path), level, parts) if path != str(file.path))

    def below_beginnings(self, file: SourceFile) -> Iterator[str]:
        """The files of the packages with which the names begin that a file loads others by."""
        for level, parts in set(by_name.beginnings(file.text)):
            folder = os.path.dirname(str(file.path))
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            while not level and os.path.join(folder, *parts) not in self.folders and os.path.dirname(folder) != folder:
                folder = os.path.dirname(folder)
            inside = self._inside.get(os.path.join(folder, *parts), ())
            yield from inside if len(inside) <= by_name.MOST else ()

    def _resolve(self, importer: str, level: int, parts: tuple[str, ...]) -> Sequence[str]:
        folder = os.path.dirname(importer)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._at(folder, parts)
        if parts[-6:] not in self.by_name:
            own = self.own and parts[0] == self.own
            return (
                [*self._at(self.top, parts[1:]), *self._at(self.top, ())] if own else ()
            )  # the package is imported first
        # The nearest one wins: beside the importer, or in a folder above it that a script or an installation
        # would have on its path. Else whatever bears the name, wherever it is.
        while True:
            if (found := self._at(folder, parts)) or os.path.join(folder, *parts) in self.folders:
                return found
            if (parent := os.path.dirname(folder)) == folder:
                return self._elsewhere(importer, parts)
            folder = parent

    def _elsewhere(self, importer: str, parts: tuple[str, ...]) -> list[str]:
        """The files of that name whose folder may be on the path: no module of the standard library, none inside of a
        package, unless some file that edits `sys.path` names that, and none of another project, which is installed or a copy
        of what is, unless one of the two scales losses: a scaler is handed on as far as that goes."""
        if parts[0] in sys.stdlib_module_names:
            return []
        found = ((path, _above(path, len(parts))) for path in self.by_name[parts[-6:]])
        return [
            path
            for path, root in found
            if (os.path.join(root, "__init__.py") not in self.by_place or os.path.basename(root) in self.on_path)
            and (importer in self.scaling or path in self.scaling or not self.apart(importer, path))
        ]

    def apart(self, one: str, other: str) -> bool:
        """Whether each of two files lies in a project of its own within a larger tree: they are installed each by itself."""
        mine, others = set(_folders(one)), set(_folders(other))
        return any(map(self._is_project, mine - others)) and any(map(self._is_project, others - mine))

    def _is_project(self, folder: str) -> bool:
        if folder not in self._projects:
            self._projects[folder] = any(os.path.exists(os.path.join(folder, name)) for name in _OF_A_PROJECT)
        return self._projects[folder]

    def _at(self, folder: str, parts: tuple[str, ...]) -> list[str]:
        place = os.path.join(folder, *parts)
        return [path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if path in self.by_place]


def own_name(texts: Iterable[str], known: Collection[str]) -> str:
    """The name by which the files of a package that is the top of its project import each other, whatever its folder is called:
    the one below which most of the dotted names they import are known there, and hardly any are not. Empty: none."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    for match in chain.from_iterable(map(_statements, texts)):
        for dotted in (match["module"] or "", *(n.split(" ")[0] for n in re.split(r",\s*", match["modules"] or ""))):
            first, _, rest = dotted.strip().partition(".")
            if first and rest and first not in known and first not in sys.stdlib_module_names:
                named[first].add(rest)
    sure = {first: len(rests & set(known)) for first, rests in named.items()}
    found = max(sure, key=lambda first: sure[first], default="")
    return found if found and sure[found] > max(1, 4 * len(named[found] - set(known))) else ""


def dotted_names(names: Iterable[str]) -> set[str]:
    """The names of modules, and of the folders that they lie in."""
    return {".".join(parts[: i + 1]) for parts in (name.split(".") for name in names) for i in range(len(parts))}


def _folders(path: str) -> Iterator[str]:
    """The folders above a file, the nearest first."""
    while (folder := os.path.dirname(path)) != path:
        yield (path := folder)


def _above(path: str, levels: int) -> str:
    """The folder that holds a module of so many parts."""
    folder = os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def _dotted(path: str) -> tuple[str, ...]:
    parts = os.path.splitext(path)[0].split(os.sep)
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Level and dotted name of all that is imported; of `from a import b`, both a and a.b."""
    for match in _statements(text):
        if match["module"] is not None:
            module = match["module"].replace(" ", "").replace("\t", "")
            level = len(module) - len(module.lstrip("."))
            base = _parts(module)
            if base or level:
                yield level, base
            names = re.sub(r"#[^\n]*", "", match["names"])
            for name in re.findall(r"(?:^|[,(])[\s\\]*(\w+)", names):
                yield level, (*base, name)
        elif match["modules"] is not None:
            for name in match["modules"].split("#")[0].split(","):
                if (dotted := _NAME.search(name)) and (parts := _parts(dotted[0])):
                    yield 0, parts
        elif parts := _parts(match["dynamic"]):  # none where a dot only joins: `import_module(".".join(names))`
            yield 0, parts


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part for part in dotted.split(".") if part)


def _statements(text: str) -> Iterator[re.Match[str]]:
    """Import statements, sought from the word `import`: a tenth of the time of matching at every line."""
    done = position = 0
    while (position := text.find("import", position)) >= 0:
        start = max(text.rfind("\n", 0, position) + 1, done)
        end = text.find("\n", position)
        match = _IMPORT.search(text, start, end if end >= 0 else len(text))
        # Once more without the end: names in parentheses and continued lines go on.
        match = match and _IMPORT.match(text, match.start())
        if match is not None:
            yield match
            done = match.end()
        position = max(position + 6, done)
