"""What an absolute import finds in the folder of the file that imports, or in one above it.

Python puts the folder of a script first on its path, so `import utils` there means the file beside it, however many
others have that name. In a package the project's own top level comes first. A project of several trees is run from
within each of them: `src.utils` is that of the tree in which the file lies.

https://docs.python.org/3/library/sys_path_init.html
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from amp_migrate.sources.named import has, taken_from


class SiblingImports:
    """The modules and packages of a program by the folder they lie in, given their dotted names by path, and their texts."""

    def __init__(self, names: Mapping[Path, str], texts: Mapping[Path, str] | None = None) -> None:
        self._names = names
        self._texts = {names[path]: text for path, text in (texts or {}).items()}
        self._found: dict[Path, frozenset[str]] = {}
        self._packages = {name for path, name in names.items() if path.name == "__init__.py"}
        self._known: set[str] = set()  # modules, packages and folders
        self._within: dict[str, set[str]] = defaultdict(set)
        for name in names.values():
            parts = name.split(".")
            for index, part in enumerate(parts):
                self._within[".".join(parts[:index])].add(part)
                self._known.add(".".join(parts[: index + 1]))
        # A copy of Apex is no part of the program, and a file named as torch is hides it from nobody.
        for found in self._within.values():
            found -= {"apex", "torch", ""}

    def of(self, path: Path) -> frozenset[str]:
        """The first names of absolute imports that mean something in the folder of a file."""
        if path not in self._found:
            self._found[path] = self._of(path)
        return self._found[path]

    def _of(self, path: Path) -> frozenset[str]:
        name = self._names[path]
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        if not folder:
            return frozenset()
        found = self._within[folder]
        if folder in self._packages:
            found = found - self._within[""] - sys.stdlib_module_names
        elsewhere = {f for f in found & self._within[""] if self._only_above(self._names[path], f"{folder}.{f}", f)}
        return frozenset(found - elsewhere)

    def _only_above(self, importer: str, beside: str, first: str) -> bool:
        """Whether the file at the top of the project has all that a file takes of an import, and the one beside it nothing: it is
        run from the top, as a module of its folder."""
        texts = self._texts.get(importer), self._texts.get(beside), self._texts.get(first)
        own, near, top = (text or "" for text in texts)
        taken = _taken(own, first) - {"*"} if own and near and top and first in own else set()
        return bool(taken) and not any(has(near, n) for n in taken) and all(has(top, n) for n in taken)

    def meant(self, path: Path, name: str) -> str:
        """The dotted name, from the top of the project, of the module that an absolute import in a file names; the name
        as it is where it is no module of the project, or lies in none of the folders above the file."""
        first = name.partition(".")[0]
        if first in ("apex", "torch"):
            return name
        own = self._names[path]
        folder = own if path.name == "__init__.py" else own.rpartition(".")[0]
        if first in self.of(path) and (f"{folder}.{name}" in self._known or name not in self._known):
            return f"{folder}.{name}"
        if first in self._within[""] or first in sys.stdlib_module_names:
            return name
        while folder:
            if f"{folder}.{name}" in self._known and folder not in self._packages:
                return f"{folder}.{name}"
            folder = folder.rpartition(".")[0]
        return self._from_above(path, own, name) or name

    def _from_above(self, path: Path, own: str, name: str) -> str | None:
        """The module that an import names by way of the folder that the project lies in, or of one above that: its checkout
        is run from outside, or the folder around it is on the path."""
        parts, depth = name.split("."), len(own.split(".")) + (path.name == "__init__.py")
        above = path.parts[: len(path.parts) - depth]
        for place in range(len(above) - 1, -1, -1):
            between = list(above[place + 1 :])
            inner = parts[1 + len(between) :]
            if above[place] == parts[0] and parts[1 : 1 + len(between)] == between and ".".join(inner) in self._known:
                return ".".join(inner)
        return None


def _taken(text: str, module: str) -> set[str]:
    """What a file takes of a module that it imports by its bare name."""
    names = {name for rest, listed in taken_from(text, module) for name in listed if not rest}
    if re.search(rf"^[ \t]*import[ \t]+{module}[ \t]*$", text, re.MULTILINE):
        names |= set(re.findall(rf"(?<![\w.]){module}\.(\w+)", text))
    return names
