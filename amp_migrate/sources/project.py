"""What a run looks at: the files to migrate, and lazily the rest of their projects.

A file that does not contain one of a few byte strings holds nothing to migrate. When no file of a run contains one,
nothing is decoded, parsed or imported any further. When one does, every file of the run is a target and must parse:
any of them may call, or be called from, the code that is migrated, and a file that nobody can read might hide a call.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

from amp_migrate.findings import FileResult, Finding, Review
from amp_migrate.sources.discover import SETTINGS_SUFFIXES, Discovery, Found, discover, project_root, shown
from amp_migrate.sources.failures import LEADS_OUT, PYTHON_2, STAYS, SYNTAX, SourceError, failure, os_failure
from amp_migrate.sources.files import SourceFile, decode, read, read_bytes
from amp_migrate.sources.related import related
from amp_migrate.sources.syntax import parsed, size_error

# Case matters: these are Python names. Flags such as APEX_AVAILABLE need no mention: where they are set, apex is. Beside them
# stand the option of trainers that took Apex's levels, and names of framework parts.
MENTIONS = (
    b"apex",
    b"Apex",
    b"cuda.amp",
    b"cpu.amp",
    b"cuda import",
    b"cpu import amp",
    b"master_params",
    b"amp_level",
    b"amp_backend",
    b"fp16_backend",
    b"half_precision_backend",
    b'"amp"',
    b"'amp'",
    b"opt_level",
    b"DistOptimizerHook",
)
RARE = (b"scale_loss", b"APEX")  # without a "p" to find them by

# Files without a project root above them: how many neighbours are read to understand them.
MAX_NEIGHBOURS = 2_000
# Settings are small; larger files are data.
SETTINGS_BYTES = 100_000
# Bytes below which starting worker processes costs more than parsing.
PARALLEL_FROM = 8_000_000

Progress = Callable[[str], None]


def _finder(needles: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """One expression that finds any needle by its first "p": several times faster than a search for each."""
    tails = ((needle, needle[needle.index(b"p") + 1 :]) for needle in needles)
    return re.compile(b"p(?:%b)" % b"|".join(b"%b(?<=%b)" % (re.escape(t), re.escape(n)) for n, t in tails))


_MENTION = _finder(MENTIONS)


def mentions(data: bytes) -> bool:
    """Whether these bytes can hold Apex or deprecated AMP code at all."""
    return _MENTION.search(data) is not None or any(needle in data for needle in RARE)


class Neighbours(Sequence[SourceFile]):
    """The other Python files and notebooks of the targets' projects, read when first asked for.

    They are only read for what they say about the targets: those that cannot be decoded are left out, and those
    that do not parse are the reader's to skip.
    """

    def __init__(self, targets: Sequence[Found]) -> None:
        self._targets = targets
        self._files: list[SourceFile] | None = None

    @property
    def files(self) -> list[SourceFile]:
        if self._files is None:
            self._files = list(self._read())
        return self._files

    def _read(self) -> Iterator[SourceFile]:
        known = {os.path.realpath(target.path) for target in self._targets}
        for root, limit in self._roots().items():
            walked = discover([root], wanted=lambda path: path.endswith((".py", ".ipynb")))
            found = [f for f in (*walked.files, *walked.outside) if os.path.realpath(f.path) not in known]
            if limit is not None and len(found) > limit:
                continue
            for file in found:
                known.add(os.path.realpath(file.path))
                with contextlib.suppress(OSError, SourceError):
                    source = read(Path(file.path), file.display)
                    if size_error(len(source.text)) is None:
                        yield source

    def _roots(self) -> dict[str, int | None]:
        """The folders to read, each with the number of files above which it is no project but somebody's home."""
        roots: dict[str, int | None] = {}
        for folder in {os.path.dirname(target.path) for target in self._targets}:
            root = project_root(folder)
            roots[root or folder] = None if root else MAX_NEIGHBOURS
        return {r: n for r, n in sorted(roots.items()) if not any(r != o and r.startswith(o + os.sep) for o in roots)}

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> SourceFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SourceFile]: ...
    def __getitem__(self, index: int | slice) -> SourceFile | Sequence[SourceFile]:
        return self.files[index]


@dataclass
class Project:
    """The sources of one run. `targets` is empty when nothing among them mentions Apex or deprecated AMP."""

    targets: list[SourceFile] = field(default_factory=list)
    context: Sequence[SourceFile] = ()
    failures: list[FileResult] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)  # the texts of programs that could be read, not understood
    files: int = 0  # every file looked at
    root: Path | None = None  # what module names are relative to
    stdin: bytes = b""  # the program on standard input, where that is the source

    def relevant(self) -> tuple[list[SourceFile], list[SourceFile]]:
        """The targets and the context that can have to do with Apex; see sources.related."""
        context = list(self.context)
        kept = related(
            [*self.targets, *context],
            lambda file: mentions(file.text.encode(errors="surrogatepass")),
            self._settings,
        )
        return [f for f in self.targets if str(f.path) in kept], [f for f in context if str(f.path) in kept]

    def _settings(self) -> Iterator[str]:
        """The texts of the project's settings and scripts."""
        roots = {project_root(os.path.dirname(t.path)) or os.path.dirname(t.path) for t in self.targets}
        walked = discover(sorted(map(str, roots)), wanted=lambda path: path.endswith((*SETTINGS_SUFFIXES, ".sh")))
        for file in walked.files[:MAX_NEIGHBOURS]:
            with contextlib.suppress(OSError, SourceError):
                if os.path.getsize(file.path) <= SETTINGS_BYTES:
                    yield read_bytes(file.path).decode(errors="replace")


def load(discovery: Discovery, jobs: int = 1, progress: Progress = lambda _: None) -> Project:
    """Read what was discovered; `jobs` is the number of processes that parse a large project."""
    project = Project(failures=list(discovery.failures), files=len(discovery.files) + len(discovery.failures))
    readable, relevant, size = [], False, 0
    progress(f"reading {len(discovery.files)} files")
    for number, found in enumerate(discovery.files):
        if number and not number % 500:
            progress(f"reading {number} of {len(discovery.files)} files")
        try:
            data = read_bytes(found.path)
        except OSError as error:
            project.failures.append(os_failure(found.display, error))
        except SourceError as error:
            project.failures.append(failure(found.display, error))
        else:
            readable.append(found)
            size += len(data)
            relevant = relevant or mentions(data)
    project.failures += [*discovery.notices, *_leading_out(discovery.outside)]
    if not relevant:
        readable = [found for found in readable if found.named]
    parsed = _parsed(readable, jobs if size > PARALLEL_FROM else 1)
    for number, (found, source, problem) in enumerate(parsed):
        if len(readable) > 100 and not number % 100:
            progress(f"parsing {number + 1} of {len(readable)} files")
        if problem is not None:
            project.failures.append(FileResult(path=found.display, status="failed", findings=[problem]))
            project.unparsed.append(source.text if source is not None else _any_text(found))
        elif source is not None:
            project.targets.append(source)
    if not relevant:
        project.targets = []
    else:
        project.context = Neighbours(discovery.files)
        project.root = _root(discovery)
    return project


def _any_text(found: Found) -> str:
    """What can be made out of a file that is in no encoding known."""
    try:
        return read_bytes(found.path).decode("latin-1")
    except (OSError, SourceError):
        return ""


def _leading_out(links: Sequence[Found]) -> Iterator[FileResult]:
    """What is said of links to files elsewhere that mention Apex: they are not written through."""
    for found in links:
        try:
            mentioned = mentions(read_bytes(found.path))
        except OSError as error:
            yield os_failure(found.display, error)
        except SourceError as error:
            yield failure(found.display, error)
        else:
            if mentioned:
                target = shown(os.path.realpath(found.path))
                message = f"left alone: this link leads out of the paths given; name {target} too to have it migrated"
                yield FileResult(
                    found.display, "blocked", [Finding(1, 1, LEADS_OUT, "file", "manual", "review", message)]
                )


def _root(discovery: Discovery) -> Path | None:
    """The folder that module names start from: the project's, else the one all paths share."""
    roots = {project_root(folder) for folder in discovery.folders}
    shared = roots.pop() if len(roots) == 1 else None
    return Path(shared or os.path.commonpath(discovery.folders)) if discovery.folders else None


def from_stdin(data: bytes) -> Project:
    """The program on standard input, on its own."""
    project = Project(files=1, stdin=data)
    try:
        source = _checked(data, Path("<stdin>"), "<stdin>")
    except SourceError as error:
        project.failures.append(failure("<stdin>", error))
        return project
    source, problem = parsed(source)
    if problem is not None:
        project.failures.append(FileResult(path=source.display, status="failed", findings=[problem]))
    elif mentions(data):
        project.targets.append(source)
    return project


def _checked(data: bytes, path: Path, display: str) -> SourceFile:
    if (error := size_error(len(data))) is not None and _code_mentions(data, path):
        raise error
    return decode(data, path, display)


def _code_mentions(data: bytes, path: Path) -> bool:
    """Whether the code of a large file can hold Apex: the letters turn up in the pictures of notebooks, too."""
    if not mentions(data) or path.suffix != ".ipynb":
        return mentions(data)

    from amp_migrate.sources.notebooks import Notebook

    try:
        cells = Notebook.parse(data.decode()).cells
    except (UnicodeDecodeError, SourceError):
        return True
    return any(mentions(cell.source.encode(errors="surrogatepass")) for cell in cells)


def _examine(found: Found) -> tuple[SourceFile | None, Finding | None]:
    """Decode and parse one file: its source, or what is wrong with it."""
    data = b""
    try:
        data = read_bytes(found.path)
        if size_error(len(data)) is not None and not found.named and not _code_mentions(data, Path(found.path)):
            return None, None  # generated: data in the shape of a program, with nothing to migrate
        source = _checked(data, Path(found.path), found.display)
    except OSError as error:
        return None, os_failure(found.display, error).findings[0]
    except SourceError as error:
        return None, _weighed(error.finding(), data, Path(found.path))
    source, problem = parsed(source)
    if problem is not None and source.notebook is not None:
        problem = source.notebook.place(problem)
    return source, _weighed(problem, data, Path(found.path)) if problem is not None else None


def _weighed(problem: Finding, data: bytes, path: Path) -> Finding:
    """What keeps a file from being read, which is no loss where nothing in it has to do with Apex."""
    if problem.code not in (SYNTAX, PYTHON_2):
        return problem
    if _code_mentions(data, path) and not all(map(_in_a_comment, filter(mentions, data.splitlines()))):
        named = b"apex" in data.lower()
        return replace(problem, message=f"{problem.message}{STAYS}") if named else problem
    level: Review = "as-is" if problem.code == PYTHON_2 else "look"
    return replace(problem, review=level, message=f"{problem.message}; it names nothing of Apex")


def _in_a_comment(line: bytes) -> bool:
    """Whether only the comment of a line can hold Apex: the heart has one, too."""
    code, sign, _ = line.partition(b"#")
    return bool(sign) and not mentions(code) and not (b'"' in code or b"'" in code)


def _parsed(files: Sequence[Found], jobs: int) -> Iterator[tuple[Found, SourceFile | None, Finding | None]]:
    done = 0
    if jobs > 1 and len(files) >= 2 * jobs:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import active_children

        try:
            with ProcessPoolExecutor(jobs) as pool:
                chunk = max(1, len(files) // (jobs * 8))
                for found, (source, problem) in zip(files, pool.map(_examine, files, chunksize=chunk), strict=True):
                    yield found, source, problem
                    done += 1
        except (OSError, RuntimeError):  # no more processes are granted, or one was killed: without them
            for child in active_children():
                child.terminate()
    for found in files[done:]:
        yield found, *_examine(found)
