"""Names that files of a program hand on: what they stand for in the end, and where they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from amp_migrate.reading.program.module import STAR_EXPORTS, Module
from amp_migrate.reading.program.stand_ins import stand_ins
from amp_migrate.reading.program.tree import within_apex

OUTSIDE = ("apex", "torch")  # never a file of the program: an adapter of its own is often called so
Read = tuple[Module, ast.expr]
LONGEST = 8  # files that a name is followed through


class HandedOn:
    """Names through the imports of a program's files, which are given by their dotted names."""

    def __init__(self, by_name: Mapping[str, Module], modules: Sequence[Module]) -> None:
        self.by_name = by_name
        self._modules = modules
        self._ways: dict[str, tuple[str, ...]] = {}
        self._readings: dict[str, dict[str, list[Read]]] = {}
        self._brought: dict[tuple[Module, str], str | None] = {}
        self._stand_ins: dict[Module, Mapping[str, str]] = {}
        for module in modules:
            module.follow(self)

    def stand_ins(self, module: Module) -> Mapping[str, str]:
        """The names that a file gives functions of Apex's by doing the same, and the full names of these."""
        if module not in self._stand_ins:
            self._stand_ins[module] = {}  # what asks on the way is about other names
            self._stand_ins[module] = stand_ins(module, self._modules)
        return self._stand_ins[module]

    def meaning(self, name: str) -> str:
        """What a dotted name stands for: its home in the program, or its full name outside of it."""
        return self.way(name)[-1]

    def way(self, name: str) -> tuple[str, ...]:
        """A dotted name, and what each file on the way to its meaning calls it."""
        if name not in self._ways:
            names = [name]
            self._ways[name] = (name,)  # files that import from each other end here
            while len(names) <= LONGEST and (further := self._next(names[-1])) is not None and further not in names:
                names.append(further)
            self._ways[name] = tuple(names)
        return self._ways[name]

    def _next(self, name: str) -> str | None:
        """What the file that a name leads to imports under it; None where it leads to none, or is defined there."""
        if name.split(".")[0] in OUTSIDE:
            return None
        head, _, tail = name.rpartition(".")
        while head:
            module = self.by_name.get(head)
            if module is not None:
                first, _, more = tail.partition(".")
                target = module.root.imports.get(first) or self.stand_ins(module).get(first)
                if target is None and first not in module.root.bindings and f"{head}.{first}" not in self.by_name:
                    target = module.qualify_name(first, module.root) or self.brought(module, first)
                return f"{target}.{more}" if target is not None and more else target
            head, _, last = head.rpartition(".")
            tail = f"{last}.{tail}"
        return None

    def starred(self, module: Module, name: str) -> str | None:
        """What a name that nothing in a file binds is by `from x import *` of another file, where that leads out of the
        program or to one of its files."""
        brought = self.brought(module, name)
        if brought is None:
            return None
        meaning = self.meaning(brought)
        return brought if meaning in self.by_name or self._home(meaning) is None else None

    def brought(self, module: Module, name: str) -> str | None:
        """What a name that nothing in a file binds is by `from x import *` of another file."""
        if (module, name) not in self._brought and not self._bring(module, name, {module}):
            self._brought[module, name] = None
        return self._brought[module, name]

    def _bring(self, module: Module, name: str, seen: set[Module]) -> bool:
        """Find the way by star imports to a file that has a name. Each file on it is known to lead there then: files that
        import from each other lead nowhere else."""
        for base in reversed(module.star_imports):
            home = self.by_name.get(base)
            if home is None or home in seen or not _lists(home, name):
                continue
            seen.add(home)
            has = name in home.root.bindings or any(name in STAR_EXPORTS.get(b, ()) for b in home.star_imports)
            if has or self._brought.get((home, name)) is not None or self._bring(home, name, seen):
                self._brought[module, name] = f"{base}.{name}"
                return True
        return False

    def _home(self, name: str) -> Module | None:
        """The file of the program that defines what a name means."""
        return self.by_name.get(name.rpartition(".")[0]) if name.split(".")[0] not in OUTSIDE else None

    @cached_property
    def from_apex(self) -> frozenset[Module]:
        """The modules that may have something of Apex's, their own imports and those of other files taken together."""
        found: dict[str, Module] = {}
        grown = True
        while grown:
            new = {n: m for n, m in self.by_name.items() if n not in found and self._has_apex(m, found)}
            found |= new
            grown = bool(new)
        return frozenset({*found.values(), *(m for m in self._modules if self._has_apex(m, found))})

    def _has_apex(self, module: Module, found: Mapping[str, Module]) -> bool:
        targets = {*(target for _, target in module.imported), *module.star_imports}
        folders = {name.partition(".")[0] for name in found if "." in name}
        return any(target in found or target in folders or within_apex(self.meaning(target)) for target in targets)

    def readers(self, module: Module, name: str) -> Iterator[tuple[Module, ast.expr]]:
        """Where other files read a name of a module, by whatever imports it comes there."""
        dotted = f"{module.name}.{name}"
        for word in {name, *(bound for _, bound in self.importing(module, name))}:
            yield from ((m, node) for m, node in self._reading(word).get(dotted, ()) if m is not module)

    def importing(self, module: Module, name: str) -> Iterator[tuple[Module, str]]:
        """The other files that import a name of a module, by whatever ways, and what they call it."""
        return ((m, bound) for m, bound in self._bound.get(f"{module.name}.{name}", ()) if m is not module)

    @cached_property
    def _bound(self) -> Mapping[str, list[tuple[Module, str]]]:
        """The files that import something, and what they call it, by each dotted name on the way to its meaning."""
        found: dict[str, list[tuple[Module, str]]] = {}
        for module in self._modules:
            for bound, target in module.imported:
                for name in self.way(target):
                    found.setdefault(name, []).append((module, bound))
        return found

    def _reading(self, word: str) -> Mapping[str, list[Read]]:
        """Where a word is read, as a name or as an attribute, by each dotted name on the way to what it means there."""
        if word not in self._readings:
            found = self._readings[word] = {}
            for module in self._modules:
                for node in (*module.loads.get(word, ()), *module.named.get(word, ())):
                    taken = module.taken(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
                    for name in self.way(taken) if taken is not None else ():
                        found.setdefault(name, []).append((module, node))
        return self._readings[word]


def _lists(module: Module, name: str) -> bool:
    """Whether `from module import *` is about a name, if the file has it."""
    return name in module.listed if module.listed is not None else name[0] != "_"
