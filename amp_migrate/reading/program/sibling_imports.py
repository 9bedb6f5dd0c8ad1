"""What an absolute import finds in the folder of the file that imports.

Python puts the folder of a script first on its path, so `import utils` there means the file beside it, however many
others have that name. In a package the project's own top level comes first.

https://docs.python.org/3/library/sys_path_init.html
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path


class SiblingImports:
    """The modules and packages of a program by the folder they lie in, given their dotted names by path."""

    def __init__(self, names: Mapping[Path, str]) -> None:
        self._names = names
        self._packages = {name for path, name in names.items() if path.name == "__init__.py"}
        self._within: dict[str, set[str]] = defaultdict(set)
        for name in names.values():
            parts = name.split(".")
            for index, part in enumerate(parts):
                self._within[".".join(parts[:index])].add(part)
        # A copy of Apex is no part of the program, and a file named as torch is hides it from nobody.
        for found in self._within.values():
            found -= {"apex", "torch", ""}

    def of(self, path: Path) -> frozenset[str]:
        """The first names of absolute imports that mean something in the folder of a file."""
        name = self._names[path]
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        if not folder:
            return frozenset()
        found = self._within[folder]
        if folder in self._packages:
            found = found - self._within[""] - sys.stdlib_module_names
        return frozenset(found)
