"""Which files of a program an import means, which import which, and which are tied together by imports."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from amp_migrate.reading.program.module import Module
from amp_migrate.sources import by_name


class Imports:
    """The modules of a program by name, and how they import each other."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = list(modules)
        self.by_name: dict[str, Module] = {}
        self._by_tail: dict[str, list[Module]] = defaultdict(list)  # `b.c` of a.b.c, for imports from another root
        self._folders: set[str] = set()
        for module in sorted(
            self.modules, key=lambda m: m.path.suffix == ".ipynb"
        ):  # a notebook is imported by no name
            self.by_name.setdefault(module.name, module)
        for name, module in self.by_name.items():
            parts = name.split(".")
            for index in range(1, len(parts)):
                self._by_tail[".".join(parts[index:])].append(module)
                self._folders.add(".".join(parts[:index]))

    def meant(self, importer: Module, name: str) -> list[Module]:
        """The modules that an import may mean by a dotted name; several where the project holds copies.

        The nearest one wins: beside the importer, or in a folder above it that would be on the path of a script. Else
        whatever bears the name, but no namesake of the standard library, and none inside of a package.
        """
        module = self.by_name.get(name)
        if module is not None:
            return [module]
        if name not in self._by_tail:
            return []
        folder = importer.package
        while folder:
            near = f"{folder}.{name}"
            if near in self.by_name or near in self._folders:
                return [self.by_name[near]] if near in self.by_name else []
            folder = folder.rpartition(".")[0]
        if name.partition(".")[0] in sys.stdlib_module_names:
            return []
        return [m for m in self._by_tail[name] if not self._is_package(m.name.removesuffix(f".{name}"))]

    def _is_package(self, name: str) -> bool:
        module = self.by_name.get(name)
        return module is not None and module.path.name == "__init__.py"

    def may_be_own(self, name: str) -> bool:
        """Whether a first name of an import is that of a file or a folder of the project."""
        return any(name in known for known in (self.by_name, self._folders, self._by_tail))

    @cached_property
    def imports(self) -> dict[Module, set[Module]]:
        """The project's modules that each module imports, packages on the way included."""
        found = {module: set(self._imported(module)) - {module} for module in self.modules}
        unknown = []
        for module in self.modules:
            if by_name.loads(module.text):
                below = set(self._below_beginnings(module)) - {module}
                found[module] |= below
                unknown += [module] if not below and by_name.loads_any(module.text) else []
        if unknown:  # the files that were chosen to be read, among them what settings name
            brought = by_name.brought(found, {m: m.path.as_posix() for m in self.modules})
            alone = {m for m in self.modules if by_name.may_be_loaded(m.text) and m not in brought}
            for module in unknown if len(alone) <= by_name.MOST else ():
                found[module] |= alone - {module}
        return found

    def _below_beginnings(self, module: Module) -> Iterator[Module]:
        """The modules of the packages with which the names begin that a file loads others by."""
        for level, parts in sorted(set(by_name.beginnings(module.text))):
            base = module.package.split(".") if module.package else []
            starts = [base[: len(base) - level + 1]] if level else [base[:n] for n in range(len(base), -1, -1)]
            folder = next((f for s in starts if (f := ".".join([*s, *parts])) in self._folders), None)
            inside = [m for m in self.modules if folder is not None and m.name.rpartition(".")[0] == folder]
            yield from inside if len(inside) <= by_name.MOST else ()

    def hands_on(self, module: Module, name: str) -> bool:
        """Whether another file of the project takes a name from a module."""
        others = [m for m in self.modules if m is not module and name in m.text]
        return any(
            any(
                target.endswith(f".{name}") and module in self.meant(other, target.rpartition(".")[0])
                for _, target in other.imported
            )
            or (module.name in other.star_imports and name in other.loads)
            or any(isinstance(n, ast.Attribute) and self._is(other, n.value, module) for n in other.named.get(name, ()))
            for other in others
        )

    def _is(self, importer: Module, node: ast.expr, module: Module) -> bool:
        """Whether an expression is a module of the project: `fusing` of `fusing.Adam`."""
        name = importer.qualify(node)
        return name is not None and module in self.meant(importer, name)

    @cached_property
    def programs(self) -> dict[Module, Module]:
        """A module that stands for all that imports tie together; programs in one tree that share nothing have their own."""
        root = {module: module for module in self.modules}

        def find(module: Module) -> Module:
            while root[module] is not module:
                root[module] = module = root[root[module]]
            return module

        for module, others in self.imports.items():
            for other in others:
                root[find(other)] = find(module)
        return {module: find(module) for module in self.modules}

    def _imported(self, module: Module) -> Iterator[Module]:
        for node in module.imports:
            if isinstance(node, ast.Import):
                names = [module.absolute(alias.name) for alias in node.names]
            else:
                names = [f"{module.import_base(node)}.{alias.name}" for alias in node.names]
            for parts in (name.split(".") for name in names):
                for length in range(1, len(parts) + 1):
                    yield from self.meant(module, ".".join(parts[:length]))
