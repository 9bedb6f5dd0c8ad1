"""What a case needs and is not there: modules that nothing here holds, files that its arguments name."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from amp_migrate.verify.case import FILL_IN
from amp_migrate.verify.commandline.files import Project

SHOWN = 6


def notes(project: Project, script: str, argv: Sequence[str], cwd: str) -> list[str]:
    """Sentences on what `script` imports and what `argv` names, without which it cannot run here as it stands."""
    given = dict.fromkeys(word.partition("=")[2] or word for word in argv)
    told = [f"`{path}` does not exist here" for path in given if _is_missing(path, project.root / cwd)]
    if absent := modules(project, script):
        is_are = "is" if len(absent) == 1 else "are"
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        names = ", ".join(f"`{name}`" for name in absent[:SHOWN])
        told.append(f"{names}{more} {is_are} imported, and neither in the project nor installed here")
    return told


def modules(project: Project, script: str) -> list[str]:
    """What the files behind `script` import as soon as they are loaded, if no file of the project has such a name and no
    package of this Python. Apex, which has a stand-in, is none of them."""
    own = {part for path in project.files for part in (*PurePosixPath(path).parts[:-1], PurePosixPath(path).stem)}
    names = {
        name.split(".")[0]
        for path in project.behind(script) if (tree := project.tree(path)) is not None
        for node in tree.body for name in _named(node)
    }  # fmt: skip
    return sorted(name for name in names - own - {"apex"} if not _installed(name))


def _named(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []


def _installed(name: str) -> bool:
    """Without importing anything, and without what happens to lie in the folder that the tool was called in."""
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return True
    here = os.getcwd()
    places = [place for place in sys.path if place and os.path.realpath(place) != os.path.realpath(here)]
    return PathFinder.find_spec(name, places) is not None


def _is_missing(word: str, folder: Path) -> bool:
    """Whether a word names a file: from the root or a home, or with a suffix; and none is there."""
    if FILL_IN in word or "://" in word:
        return False
    if word.startswith(("/", "~/")):
        return not os.path.exists(os.path.expanduser(word))
    return bool(re.fullmatch(r"[\w./-]*\w\.[A-Za-z]\w{0,5}", word)) and not (folder / word).exists()
