"""A program: its files, and what is found in them before anything is decided."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from amp_migrate.sources.failures import SYNTAX, SourceError

if TYPE_CHECKING:
    from amp_migrate.reading.program.module import Module
    from amp_migrate.reading.program.project import Project
    from amp_migrate.reading.program.sibling_imports import SiblingImports
    from amp_migrate.reading.sites.apex import Site
    from amp_migrate.reading.units.unit import Unit
    from amp_migrate.sources.files import SourceFile


# Characters of code that are read at once, and given back before more is read.
LARGE = 2_000_000


@dataclass(frozen=True)
class Program:
    """The files of one project: `targets` may be written, `context` is only read, and only if a target needs it."""

    targets: Sequence[SourceFile]
    context: Iterable[SourceFile] = ()
    root: Path | None = None

    names: SiblingImports | None = None  # where it is one part of what is read
    called: str | None = None  # and what the whole is called, as a package
    unparsed: Sequence[str] = ()  # the texts of files beside these that could not be understood

    @cached_property
    def siblings(self) -> SiblingImports:
        """What absolute imports mean, which is a question to all files."""
        from amp_migrate.reading.program.sibling_imports import SiblingImports

        if self.names is not None:
            return self.names
        files = {s.path: s for s in (*self.targets, *self.context)}.values()
        return SiblingImports({s.path: self.name_of(s.path) for s in files}, {s.path: s.text for s in files})

    @cached_property
    def package(self) -> str:
        """What the files call the project that is one package, whatever its folder is called; else empty."""
        from amp_migrate.sources.named import all_there
        from amp_migrate.sources.related import dotted_names, own_name

        if self.called is not None:
            return self.called
        files = [*self.targets, *self.context]
        packed = self.root is not None and any(s.path == self.root / "__init__.py" for s in files)
        if self.root is None or not (packed or any("sys.path" in s.text for s in files)):
            return ""
        texts = {_module_name(s.path, self.root): s.text for s in files}
        name = own_name(texts.values(), dotted_names(texts))
        return name if packed or (name and all_there(name, texts)) else ""

    def name_of(self, path: Path) -> str:
        """The dotted name of a file's module, from the top of the project."""
        name = _module_name(path, self.root)
        first, _, rest = name.partition(".")
        if first == "apex" and rest and rest.partition(".")[0] not in APEX_PARTS:
            name = f"apex_.{rest}"  # a folder of scripts that is called so, and not NVIDIA's package
        return ".".join(part for part in (self.package, name) if part) if self.package else name

    @cached_property
    def tied(self) -> list[list[str]]:
        """The paths of files that imports tie together, group by group."""
        from amp_migrate.sources.related import tied

        return tied([*self.targets, *self.context])

    def parts(self) -> list[Program]:
        """The program; of one that is large what imports tie together, and what else there is room for, at a time."""
        targets, context = ({str(s.path): s for s in sources} for sources in (self.targets, self.context))
        sizes = {path: len(source.text) for path, source in (context | targets).items()}
        if sum(sizes.values()) <= LARGE:
            return [self]
        parts: list[list[str]] = []
        room = 0
        for group in sorted(map(sorted, self.tied)):
            size = sum(sizes[path] for path in group)
            if size > room:
                parts.append([])
                room = LARGE
            parts[-1] += group
            room -= size
        return [
            Program(
                [targets[path] for path in paths if path in targets],
                [context[path] for path in paths if path in context],
                self.root,
                self.siblings,
                self.package,
                self.unparsed,
            )
            for paths in parts
        ]


# What stands in Apex's package: its files and folders.
APEX_PARTS = frozenset(
    "amp parallel optimizers normalization fp16_utils multi_tensor_apply contrib mlp RNN pyprof reparameterization "
    "transformer fused_dense".split()
)


@dataclass(frozen=True)
class Read:
    """What was found in the program, before anything is decided."""

    modules: list[Module]
    by_path: dict[Path, Module]
    project: Project
    sites: list[Site]
    targets: set[Module]
    unread: dict[Path, SourceError]  # files that do not parse, and why

    def units(self) -> list[Unit]:
        """The migration units, always in the same order: what is held back is held back by number."""
        from amp_migrate.reading.units.grouping import build_units

        # Training first: code that it shares with inference gets one region, with the switch of the training.
        return sorted(build_units(self.project, self.sites), key=lambda u: not u.losses)


def read(program: Program) -> Read:
    from amp_migrate.reading.program.project import Project
    from amp_migrate.reading.sites.apex import brings_apex, find_sites

    """Parse a program and find its sites."""
    modules, by_path, unread = _parse(program)
    project = Project(modules, follow=any("apex" in m.text and brings_apex(m) for m in modules))
    sites = [s for m in modules if project.may_name_apex(m) for s in find_sites(project, m)]
    targets = {by_path[s.path] for s in program.targets if s.path in by_path}
    project.targets = frozenset(targets)
    files = (*program.context, *program.targets) if unread else ()
    project.unparsed = [*program.unparsed, *(s.text for s in files if s.path in unread)]
    return Read(modules, by_path, project, sites, targets, unread)


def _parse(program: Program) -> tuple[list[Module], dict[Path, Module], dict[Path, SourceError]]:
    from amp_migrate.reading.program.module import Module
    from amp_migrate.sources.syntax import MAX_DEPTH, MAX_PATTERNS, too_deep

    modules: list[Module] = []
    by_path: dict[Path, Module] = {}
    unread: dict[Path, SourceError] = {}
    siblings = program.siblings
    # In an order of its own, so that the one in which paths are given decides nothing.
    for source in sorted({s.path: s for s in (*program.context, *program.targets)}.values(), key=lambda s: s.path):
        try:
            name = program.name_of(source.path)
            module = Module(
                source.path, source.text, name, source.display, functools.partial(siblings.meant, source.path)
            )
        except (SyntaxError, ValueError) as error:
            unread[source.path] = SourceError(SYNTAX, f"does not parse: {error}")
            continue
        except (RecursionError, MemoryError):
            unread[source.path] = too_deep()
            continue
        if module.depth > MAX_DEPTH:
            unread[source.path] = too_deep()
            continue
        if module.pattern_depth > MAX_PATTERNS:
            unread[source.path] = too_deep(MAX_PATTERNS, " of patterns")
            continue
        modules.append(module)
        by_path[source.path] = module
    return modules, by_path, unread


def _module_name(path: Path, root: Path | None) -> str:
    if root is not None:
        try:
            path = path.relative_to(root)
        except ValueError:
            path = Path(path.name)
    else:
        path = Path(path.name)
    parts = [*path.parts[:-1], path.stem] if path.name != "__init__.py" else list(path.parts[:-1])
    return ".".join(parts)
