"""Which files run in one process with a file: those that import it, and what they import in turn. Read off the text, which may
also load files by a name that it puts together, `import_module("nets." + name)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.stopping import stops_at

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

_GAP = r"(?:[ \t\f]|\\\r?\n)"
IMPORT = re.compile(
    rf"^{_GAP}*(?:from{_GAP}+(\.*)([\w.]*){_GAP}+import{_GAP}*((?:[^\n#\\]|\\\r?\n)*)|import{_GAP}+((?:[\w.,]|{_GAP})+))",
    re.MULTILINE,
)


# Who writes one of these may load files that no import names.
BY_NAME = frozenset(
    "__import__ import_module import_string import_submodules find_spec spec_from_file_location SourceFileLoader load_source "
    "run_path run_module walk_packages iter_modules exec execfile locate instantiate".split()
)


class Loaded:
    """Which files a process loads, by the one that it starts with. A file is read when a question leads to it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @kept
    def of(self, start: Module) -> frozenset[Module] | None:
        """The files that are loaded; None where a program loads more than imports name."""
        found = _closure([start], self._imported)
        named = all(BY_NAME.isdisjoint(m.words) for m in found)
        return frozenset(found) if named else None

    @kept
    def _imported(self, module: Module) -> set[Module]:
        found = _imported(self.program, module)
        folders = {str(folder) for m in (module, *found) for folder in PurePosixPath(m.path).parents}
        packages = (self.program.modules.get(str(PurePosixPath(f, "__init__.py"))) for f in folders)
        return found | {m for m in packages if m is not None}


class Near:
    """Which file imports which, in one state of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.imports = {m: _imported(program, m) for m in program.modules.values()}
        self.alone: list[Module] = []  # what a name out of sight may mean
        self._guessed: dict[Module, set[Module]] = {}  # what a file imports by no more than that
        self._by_name()
        self.importers: dict[Module, set[Module]] = {}
        for module, found in self.imports.items():
            for other in found:
                self.importers.setdefault(other, set()).add(module)

    def _by_name(self) -> None:
        """Add what a file loads by a name that it puts together: what lies in the package that the name begins with; else,
        of the files that nothing imports, those that only have classes for torch."""
        modules, found = self.program.modules.values(), loading(self.program)
        if not found:
            return
        brought = self._brought()
        alone = [m for m in modules if m not in brought and "torch" in m.words and "argparse" not in m.words]
        alone = [m for m in alone if re.search(r"^\s*class \w+\(", m.read, re.MULTILINE)]
        self.alone = alone if len(alone) <= MOST else []
        for module in found:
            inside = {m for m in packaged(self.program, module, module.read) if m is not module}
            if inside or of_any_package(module.read):
                if not inside:
                    self._guessed[module] = {*self.alone} - {module, *self.imports[module]}
                self.imports[module] |= inside or self._guessed[module]

    def _brought(self) -> set[Module]:
        """What imports bring: of what a package's `__init__` hands on, that of packages which are imported from outside."""
        packages = {m for m in self.imports if m.path.endswith("__init__.py")}
        asked = {
            p
            for m, found in self.imports.items()
            for p in found & packages
            if not f"{m.name}.".startswith(f"{p.name}.")
        }
        return {other for m, found in self.imports.items() if m not in packages or m in asked for other in found}

    def files(self, start: Iterable[Module], *, guess: bool = True) -> list[Module]:
        """The files of every program that comes by one of these, in the order of the project; but for those that no process
        gets past the imports of. Without `guess`, what may be loaded by a name of which nothing is written is none of it."""
        entries = self.leading_to(start)
        reached = _closure(entries, lambda m: self.imports[m] - (set() if guess else self._guessed.get(m, set())))
        return [m for m in self.program.modules.values() if m in reached and stops_at(self.program, m) is None]

    def together(self, one: Module, other: Module) -> bool:
        """Whether a process may load both files: of two scripts, where some file imports both, or one the other."""
        if not (runs_itself(one) and runs_itself(other)):
            return True
        return not self.leading_to([one]).isdisjoint(self.leading_to([other]))

    def leading_to(self, start: Iterable[Module]) -> set[Module]:
        """The files that lead to some: what imports them, and they themselves."""
        return _closure(start, lambda m: self.importers.get(m, set()))


@kept
def near_in(program: Program) -> Near:
    """Which file imports which in a program."""
    return Near(program)


def _closure(start: Iterable[Module], edges: Callable[[Module], set[Module]]) -> set[Module]:
    found = set(start)
    todo = list(found)
    while todo:
        for other in edges(todo.pop()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def _imported(program: Program, module: Module) -> set[Module]:
    """The files that a file imports itself."""
    found: set[Module] = set()
    for name in _written(module):
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            other = program.module_named(".".join(parts[:end]), module)
            if other is not None:
                found.add(other)
                break
    return found - {module}


@kept
def _written(module: Module) -> list[str]:
    """The dotted names that a file may import, as the project calls them."""
    found: dict[str, None] = {}
    package = module.name.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    for dots, base, names, plain in IMPORT.findall(module.read):
        names, plain = names.replace("\\", " "), plain.replace("\\", " ")
        dotted = [part.split()[0] for part in plain.split(",") if part.split()]
        if dots or base:
            above = package[: len(package) - (len(dots) - 1)] if dots else []
            home = ".".join([*above, *([base] if base else [])])
            inner = [n.split()[0] for n in names.strip("() \n\r").split(",") if n.split()]
            dotted = [home, *(f"{home}.{n}" for n in inner)]
        found |= dict.fromkeys(dotted)
    return list(found)


def runs_itself(module: Module) -> bool:
    """Whether a file does something when it is run: it asks for `__main__`, or works through a loop outside of functions."""
    return "__main__" in module.text or any(isinstance(s, (ast.For, ast.While, ast.With)) for s in module.tree.body)


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
