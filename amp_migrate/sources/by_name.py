"""Files that a program loads by a name which it puts together or is given: `import_module("models." + name)`,
`import_class(args.model)` where that calls `__import__`. No import statement names them.

Which these are is a guess that leans to reading too much: all of the package that the beginning of a name says, else the
files that nothing imports, that hold classes for torch and whose names stand in a setting, a script or an option's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

MOST = 60  # files that one place may load; of more nobody knows which it does

_COMPUTED = re.compile(r"(?<!def )\b(?:import_module|__import__)\(\s*(?![\"'][\w.]*[\"']\s*[,)]|\))")
_REST = r"(?:[\"']\s*\+|\{|%s)"
_BEGINNING = re.compile(
    rf"[\"'](?P<dots>\.*)(?P<package>[A-Za-z_]\w*(?:\.\w+)*)\.{_REST}"
    rf"|\b(?:import_module|__import__)\(\s*[fF]?[\"'](?P<here>\.+){_REST}"
)
_BEGUN = re.compile(
    r"(?<!def )\b(?:import_module|__import__)\(\s*[fF]?[\"']\.*[A-Za-z_]\w*(?:\.\w+)*\.?(?:[\"']\s*[+%.]|\{|%s)"
)
_CLASS = re.compile(r"^[ \t]*class[ \t]+\w+[ \t]*\(", re.MULTILINE)
_DOTTED = re.compile(r"(?<![\w./])[A-Za-z_]\w*(?:\.\w+)+")
_QUOTED = re.compile(r"[\"']([A-Za-z_]\w*(?:\.\w+)+)[\"']")


def loads(text: str) -> bool:
    """Whether a file loads another by a name that is not written there in full."""
    return ("import_module" in text or "__import__" in text) and _COMPUTED.search(text) is not None


def loads_any(text: str) -> bool:
    """Whether a file loads another by a name of which not even the package is written: `import_module(args.model)`."""
    return loads(text) and len(_COMPUTED.findall(text)) > len(_BEGUN.findall(text))


def beginnings(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """How the names begin that a file puts together: leading dots, and the names of packages."""
    for match in _BEGINNING.finditer(text):
        package = match["package"]
        yield len(match["dots"] or match["here"] or ""), tuple(package.split(".")) if package else ()


def may_be_loaded(text: str) -> bool:
    """Whether a file that nothing imports looks like one that is loaded for its classes, and not run."""
    return "torch" in text and "argparse" not in text and _CLASS.search(text) is not None


def named_in(text: str, quoted: bool = False) -> set[str]:
    """The modules that a text may name, as `pkg.model` and, of a class in it, `pkg.model.Net`; of a program, in quotes."""
    found = set((_QUOTED if quoted else _DOTTED).findall(text))
    return found | {name.rpartition(".")[0] for name in found}


def brought(imports: Mapping[T, set[T]], paths: Mapping[T, str]) -> set[T]:
    """The files that imports bring; what the `__init__` of a package hands on, only where a file outside of that imports it."""
    idle = {f: paths[f].removesuffix("__init__.py") for f in imports if paths[f].endswith("__init__.py")}
    for one, others in imports.items():
        for package in [p for p in others if p in idle and not paths[one].startswith(idle[p])]:
            del idle[package]
    return {other for one, others in imports.items() if one not in idle for other in others}
