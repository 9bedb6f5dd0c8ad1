"""Which files load others by a name that they put together, `import_module("nets." + name)`, and of which packages?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module

if TYPE_CHECKING:
    from amp_migrate.audit.program.program import Program

IMPORTERS = frozenset({"__import__", "import_module"})
COMPUTED = re.compile(r"(?<!def )\b(?:import_module|__import__)\(\s*(?![\"'][\w.]*[\"']\s*[,)]|\))")
_REST = r"(?:[\"']\s*\+|\{|%s)"
BEGINNING = re.compile(
    rf"[\"'](\.*)([A-Za-z_]\w*(?:\.\w+)*)\.{_REST}|\b(?:import_module|__import__)\(\s*[fF]?[\"'](\.+){_REST}"
)
BEGUN = re.compile(
    r"(?<!def )\b(?:import_module|__import__)\(\s*[fF]?[\"']\.*[A-Za-z_]\w*(?:\.\w+)*\.?(?:[\"']\s*[+%.]|\{|%s)"
)
MOST = 60  # files that one place may load by name; of more nobody knows which it does


def loading(program: Program) -> list[Module]:
    """The files that load others by such a name."""
    texts = ((m, m.read) for m in program.modules.values())
    return [m for m, text in texts if ("import_module" in text or "__import__" in text) and COMPUTED.search(text)]


def of_any_package(text: str) -> bool:
    """Whether a text loads files by names of which not even the package is written: `import_module(args.model)`."""
    return len(COMPUTED.findall(text)) > len(BEGUN.findall(text))


def packaged(program: Program, module: Module, text: str) -> list[Module]:
    """The files of the packages with which names begin that a text of a file puts together."""
    found = {_package(program, module, *match) for match in BEGINNING.findall(text)} - {""}
    return [m for m in program.modules.values() if m.name.rpartition(".")[0] in found] if found else []


def _package(program: Program, module: Module, dots: str, name: str, here: str) -> str:
    """The package of the program that a name begins with; empty where it is none."""
    above = module.name.split(".")
    above = above if module.path.endswith("__init__.py") else above[:-1]
    if dots or here:
        above = above[: len(above) - len(dots or here) + 1]
    starts = [above] if dots or here else [above[:n] for n in range(len(above), -1, -1)]
    folders = {m.name.rpartition(".")[0] for m in program.modules.values()}
    names = (".".join([*start, *([name] if name else [])]) for start in starts)
    return next((n for n in names if n and n in folders), "")
