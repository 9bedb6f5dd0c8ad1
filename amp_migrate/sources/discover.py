"""Finding the files of a run: the paths given, walked, less what nobody wants rewritten.

Skipped below a path, unless the path itself lies inside: what .gitignore ignores, hidden folders, virtual
environments, caches, build outputs and vendored copies of Apex or of torch itself. Symbolic links to folders are not
followed, so there are no loops; a link to a file is read, and written through to its target, if that lies below the paths
too: a link that leads out of them is not followed and, where it leads to code, told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from amp_migrate.findings import FileResult, Finding
from amp_migrate.sources.failures import LEADS_OUT, UNREADABLE, SourceError, failure, os_failure
from amp_migrate.sources.files import read_bytes
from amp_migrate.sources.git import kept_although_ignored
from amp_migrate.sources.gitignore import Rules, is_ignored, read_rules
from amp_migrate.sources.journal import SUFFIX, is_journal

PYTHON_SUFFIXES = (".py", ".ipynb")
SETTINGS_SUFFIXES = (".json", ".yaml", ".yml", ".jsonnet", ".libsonnet")

_NEVER_SOURCES = frozenset(
    ("__pycache__", "node_modules", "site-packages", "__pypackages__", "venv", "virtualenv", "buck-out")
)
_OF_TORCH = (("nn", "modules", "module.py"), ("optim", "optimizer.py"), ("autograd", "function.py"))
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
# Hidden, yet part of the project: what `check` reads beside Python.
_KEPT_HIDDEN = frozenset((".github", ".circleci", ".ci", ".gitlab", ".buildkite", ".devcontainer"))


@dataclass(frozen=True)
class Found:
    """One file of the run. `named` when the command line gave it itself."""

    path: str
    display: str
    named: bool = False


@dataclass
class Discovery:
    """The files of a run in a stable order, and the paths that could not be looked at."""

    files: list[Found] = field(default_factory=list)
    failures: list[FileResult] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # those named, and those that named files are in
    outside: list[Found] = field(default_factory=list)  # links to files that lead out of the paths
    notices: list[FileResult] = field(default_factory=list)  # links to folders that do
    remains: list[str] = field(default_factory=list)  # what a killed run of ours left: see sources.journal


def discover(
    paths: Sequence[str],
    exclude: Sequence[Rules] = (),
    wanted: Callable[[str], bool] = lambda path: path.endswith(PYTHON_SUFFIXES),
    apart: frozenset[str] = frozenset(),
) -> Discovery:
    """All files below `paths` that are `wanted`, by their path, and every file named itself; each once. What lies in the
    folders `apart`, by their real paths, is left out."""
    found = Discovery()
    seen: set[tuple[str, str]] = set()
    below = [real + os.sep if not real.endswith(os.sep) else real for real in map(os.path.realpath, paths)]
    for path in paths:
        try:
            os.stat(path)
        except FileNotFoundError:
            what = "a symbolic link to nothing" if os.path.islink(path) else "no such file or folder"
            found.failures.append(failure(shown(path), SourceError(UNREADABLE, f"cannot be read: {what}")))
            continue
        except OSError as error:
            found.failures.append(os_failure(shown(path), error))
            continue
        if os.path.isdir(path):
            found.folders.append(os.path.realpath(path))
            _Walk(path, exclude, wanted, seen, found, below, apart).run()
        else:
            absolute = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
            key = _key(path, os.path.realpath(path))
            if key not in seen and not is_ignored(exclude, absolute, False):
                seen.add(key)
                found.folders.append(os.path.dirname(absolute))
                found.files.append(Found(absolute, shown(path), named=True))
    return found


def walked(paths: Sequence[str], exclude: Sequence[Rules], wanted: Callable[[str], bool]) -> Discovery:
    """The same, without what a walk of the projects around `paths` leaves out: what a list of names was made by, pre-commit
    for one, is no wish to have vendored code rewritten."""
    named = discover(paths, exclude, wanted)
    roots = sorted({project_root(folder) or folder for folder in named.folders})
    found = discover([r for r in roots if not any(r.startswith(o + os.sep) for o in roots)], exclude, wanted)
    seen = {file.path for file in found.files}
    return replace(named, files=[replace(f, named=False) for f in named.files if os.path.realpath(f.path) in seen])


def project_root(path: str) -> str | None:
    """The nearest folder at or above `path` that holds `.git` or `pyproject.toml`."""
    folder = os.path.abspath(path)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    while True:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in (".git", "pyproject.toml")):
            return folder
        if (parent := os.path.dirname(folder)) == folder:
            return None
        folder = parent


def shown(path: str) -> str:
    """A path as reports print it: relative to the working directory, where that is on the same drive."""
    try:
        return Path(os.path.relpath(path)).as_posix()
    except ValueError:
        return Path(os.path.abspath(path)).as_posix()


def is_vendored(folder: str) -> bool:
    """Whether this is a copy of Apex: a folder so named that holds its package or its repository, tests and examples
    included, also where the package itself was left out or is of the first versions; or torch's own package."""
    name = os.path.basename(folder).lower()
    if name == "torch":
        return all(os.path.exists(os.path.join(folder, *part)) for part in _OF_TORCH)
    if "apex" not in name:
        return False
    package = any(
        os.path.exists(os.path.join(folder, *inner, "amp", part))
        for inner in ((), ("apex",), ("src", "apex"))
        for part in ("frontend.py", "handle.py")
    )
    return package or _builds_apex(os.path.join(folder, "setup.py"))


def _builds_apex(setup: str) -> bool:
    """Whether a setup script is Apex's own: it alone builds the extension amp_C."""
    try:
        return b"amp_C" in read_bytes(setup)
    except (OSError, SourceError):
        return False


def is_environment(folder: str) -> bool:
    """Whether this is a virtual or conda environment."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in _ENVIRONMENT_MARKS)


def _is_build_output(folder: str) -> bool:
    """Whether a folder called `build` is setuptools' own rather than a package of that name."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return bool(names) and all(name == "lib" or name.startswith(("lib.", "bdist.", "temp.")) for name in names)


class _Walk:
    """One walk from one folder that the command line names."""

    def __init__(
        self,
        root: str,
        exclude: Sequence[Rules],
        wanted: Callable[[str], bool],
        seen: set[tuple[str, str]],
        found: Discovery,
        below: Sequence[str],
        apart: frozenset[str] = frozenset(),
    ) -> None:
        self.root = root
        self.exclude = exclude
        self.wanted = wanted
        self.seen = seen
        self.found = found
        self.apart = apart
        self.below = below  # the paths of the run: what links lead to may be written there
        self.kept: dict[str, frozenset[str]] = {}  # by the folder in which git was asked
        above = _ancestors(os.path.realpath(root))
        # "Unless named": what the named folder itself lies in is not a reason to skip below it.
        self.in_environment = any(map(is_environment, above)) or any(
            os.path.basename(a) in _NEVER_SOURCES for a in above
        )
        self.in_vendored = any(map(is_vendored, above))

    def run(self) -> None:
        real = os.path.realpath(self.root)
        if is_ignored(self.exclude, real, True):
            return
        prefix = shown(self.root)
        # Not by recursion: folders nest deeper than Python's stack.
        waiting = [(real, "" if prefix == "." else prefix + "/", self._rules_above(real))]
        while waiting:
            waiting += reversed(self._folder(*waiting.pop()))

    def _rules_above(self, real: str) -> tuple[Rules, ...]:
        """The ignore rules of the project's folders above the named one, innermost first."""
        top = project_root(real)
        if top is None or top == real:
            return ()
        folders = [a for a in _ancestors(real)[1:] if a == top or a.startswith(top + os.sep)]
        layers = tuple(rules for folder in folders if (rules := read_rules(folder)))
        named_although_ignored = any(
            is_ignored(layers, folder, True) for folder in (real, *(f for f in folders if f != top))
        )
        return () if named_although_ignored else layers

    def _folder(self, folder: str, prefix: str, rules: tuple[Rules, ...]) -> list[tuple[str, str, tuple[Rules, ...]]]:
        """Look at what lies in a folder; the folders in it that are to be looked at, in order."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self.found.failures.append(os_failure(prefix.rstrip("/") or ".", error))
            return []
        if any(entry.name in (".gitignore", ".git") for entry in entries) and (own := read_rules(folder)):
            rules = (own, *rules)
        below: list[os.DirEntry[str]] = []
        for entry in entries:
            name = entry.name
            if name.startswith(".") and (is_journal(name) or name.endswith(SUFFIX)):
                self.found.remains.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                below.append(entry)
            elif self.wanted(entry.path) and not self._skipped(entry.path, False, rules):
                self._file(entry, prefix + name)
            elif entry.is_symlink() and not self._skipped(entry.path, True, rules):
                self._linked_folder(entry, prefix + name)
        return [
            (entry.path, f"{prefix}{entry.name}/", rules)
            for entry in below
            if entry.path not in self.apart
            if not self._unwanted_folder(entry) and not self._skipped(entry.path, True, rules)
        ]

    def _file(self, entry: os.DirEntry[str], display: str) -> None:
        try:
            if not entry.is_file():
                if entry.is_symlink() and not os.path.exists(entry.path):
                    error = SourceError(UNREADABLE, "cannot be read: a symbolic link to nothing")
                    self.found.failures.append(failure(display, error))
                elif entry.is_symlink():
                    self._linked_folder(entry, display)
                return
        except OSError as refused:  # a link to itself, or into a folder that is closed to us
            self.found.failures.append(os_failure(display, refused))
            return
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        key = _key(entry.name, real)
        if key in self.seen:
            return
        written = entry.name.endswith((*PYTHON_SUFFIXES, *SETTINGS_SUFFIXES))  # others are read at most
        if entry.is_symlink() and written and not self._leads_below(real):
            self.found.outside.append(Found(entry.path, display))
            return
        self.seen.add(key)
        self.found.files.append(Found(entry.path, display))

    def _leads_below(self, real: str) -> bool:
        return any(real.startswith(path) or real + os.sep == path for path in self.below)

    def _linked_folder(self, entry: os.DirEntry[str], display: str) -> None:
        """Tell of a link to a folder of code that lies elsewhere; of one to data nothing is to be told."""
        if entry.name.startswith(".") or not os.path.isdir(entry.path):
            return
        real = os.path.realpath(entry.path)
        if not self._leads_below(real) and _holds_code(real):
            note = Finding(
                1, 1, LEADS_OUT, "file", "note", "look", f"not followed: this link leads out, to {shown(real)}"
            )
            self.found.notices.append(FileResult(path=display, findings=[note]))

    def _skipped(self, path: str, is_folder: bool, rules: tuple[Rules, ...]) -> bool:
        if self.exclude and is_ignored(self.exclude, path, is_folder):
            return True
        return bool(rules) and is_ignored(rules, path, is_folder) and not self._is_kept(path, rules)

    def _is_kept(self, path: str, rules: tuple[Rules, ...]) -> bool:
        """Whether git keeps what one of some rules names: asked where the outermost of them stand, and of repositories below."""
        folders = {r.base for r in rules if r is rules[-1] or os.path.exists(os.path.join(r.base, ".git"))}
        for folder in folders - self.kept.keys():
            self.kept[folder] = kept_although_ignored(folder.rstrip(os.sep))
        return any(path in self.kept[folder] for folder in folders)

    def _unwanted_folder(self, entry: os.DirEntry[str]) -> bool:
        name, path = entry.name, entry.path
        if name.startswith("."):
            return name not in _KEPT_HIDDEN
        if name == "build":
            return _is_build_output(path)
        if not self.in_environment and (name in _NEVER_SOURCES or is_environment(path)):
            return True
        if name.endswith((".egg-info", ".egg")) or name == "__pycache__":
            return True
        return not self.in_vendored and is_vendored(path)


def _key(name: str, real: str) -> tuple[str, str]:
    """What makes a file the same as one that was found: where it really lies, and what its name has it read as. A program
    is one under its own name, whatever else a link to it is called."""
    read_as = name if os.path.splitext(name)[1] else real
    if read_as.endswith(PYTHON_SUFFIXES):
        return real, PYTHON_SUFFIXES[0]
    return real, SETTINGS_SUFFIXES[0] if read_as.endswith(SETTINGS_SUFFIXES) else ""


def _holds_code(folder: str) -> bool:
    """Whether a folder, or one right in it, holds Python files; only the beginning of large ones is looked at."""
    try:
        with os.scandir(folder) as listing:
            entries = list(islice(listing, 200))
        inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:20]
        names = [entry.name for entry in entries]
        for path in inner:
            with os.scandir(path) as listing:
                names += [entry.name for entry in islice(listing, 200)]
    except OSError:
        return False
    return any(name.endswith(PYTHON_SUFFIXES) for name in names)


def _ancestors(folder: str) -> list[str]:
    """The folder and all above it, innermost first."""
    above = [folder]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    return above
