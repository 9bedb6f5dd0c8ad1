"""Copies of a project for programs to run in: every run gets one of its own, as the project stood at the start.

Code and small files are copied. Large files and folders of very many (data sets, weights) are links; what a run does to
such a link is the business of `recording.guard`. Version control, caches and virtual environments stay behind.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

LARGE = 4 << 20  # bytes from which a file is linked
CROWDED = 2000  # entries from which a folder without Python files is linked as a whole
LEFT_OUT = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".tox", ".ipynb_checkpoints"}
LEFT_OUT |= {".mypy_cache", ".pytest_cache", ".ruff_cache"}
CODE = (".py", ".ipynb", ".toml", ".cfg", ".ini", ".yaml", ".yml", ".sh")  # never linked


def lay_out(source: Path, target: Path) -> Path:
    """A copy of the user's folder `source` at `target`, which must not exist."""
    _lay_out(source, target, target, ())
    return target


def again(tree: Path, target: Path) -> Path:
    """Another copy of what `lay_out` made, or of what a run left of one: links stay links."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(tree, target, symlinks=True, copy_function=_copy_file)
    return target


def beside(origin: Path, copy: Path, top: Path) -> None:
    """Links beside `copy`, and beside the folders above it up to `top`, to what stands beside the user's `origin`."""
    for user, folder in zip(origin.parents, copy.parents, strict=False):
        if folder == top or user == user.parent:
            return
        try:
            entries = list(itertools.islice(os.scandir(user), CROWDED + 1))
        except OSError:
            return
        for entry in entries if len(entries) <= CROWDED else ():
            if not os.path.lexists(folder / entry.name):
                (folder / entry.name).symlink_to(entry.path)


def links(tree: Path) -> Iterator[tuple[Path, Path]]:
    """The links in a copy that lead out of it, with what they lead to."""
    for entry in _entries(tree):
        if entry.is_symlink():
            there = Path(os.path.realpath(entry))
            if not is_inside(there, tree):
                yield entry, there


def is_inside(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or lies below it."""
    return path == folder or folder in path.parents


def _entries(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place) / name for name in sorted([*folders, *names]))


def _lay_out(source: Path, target: Path, top: Path, above: tuple[str, ...]) -> None:
    target.mkdir(parents=True)
    above = (*above, os.path.realpath(source))
    for entry in sorted(os.scandir(source), key=lambda e: e.name):
        if entry.name in LEFT_OUT or entry.name.endswith((".egg-info", ".pyc")):
            continue
        here, there = Path(entry.path), target / entry.name
        if is_inside(top, here.resolve()):
            continue  # the work folder itself lies in the tree
        if entry.is_dir():
            if (here / "pyvenv.cfg").is_file():  # a virtual environment, whatever its name
                continue
            if _is_data(here) or (entry.is_symlink() and not _is_small(here, above)):
                there.symlink_to(here.resolve())
            else:
                _lay_out(here, there, top, above)
        elif entry.is_file():
            if entry.stat().st_size > LARGE and not entry.name.endswith(CODE):
                there.symlink_to(here.resolve())
            else:
                _copy_file(str(here), str(there))


def _copy_file(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
    return target


def _is_data(folder: Path) -> bool:
    entries = os.listdir(folder)
    return len(entries) > CROWDED and not any(name.endswith(".py") for name in entries)


def _is_small(folder: Path, above: tuple[str, ...]) -> bool:
    """Whether a folder that the user links to can be copied like one that stands there: an output folder, not a data
    set, and no way back up."""
    if os.path.realpath(folder) in above:
        return False
    return all(seen < CROWDED for seen, _ in enumerate(_entries(folder)))
