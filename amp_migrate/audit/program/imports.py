"""The files of a program in one state, and what imports say that a name is."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope


class Imports:
    """All files of a project in one state, and what names mean that imports brought. A file is parsed when asked of."""

    def __init__(
        self,
        texts: Mapping[str, str],
        known: Mapping[str, Module] | None = None,
        trees: Mapping[str, ast.Module] | None = None,
    ) -> None:
        self.modules: dict[str, Module] = {}
        names = _names(texts)
        for path, text in texts.items():
            module = (known or {}).get(path)
            if module is None or module.text != text:
                module = Module(path, names[path], text)
                if trees and path in trees:
                    module.__dict__["tree"] = trees[path]
            self.modules[path] = module
        self._homes: dict[tuple[str, Module], Module | None] = {}
        self._full_names: dict[tuple[Scope, str], str | None] = {}
        self.by_name: dict[str, list[Module]] = {}
        for module in self.modules.values():
            parts = module.name.split(".")
            for i in range(len(parts)):  # a script's folder is on its path: `import utils` may mean pkg/utils.py
                self.by_name.setdefault(".".join(parts[i:]), []).append(module)

    @cached_property
    def _with_word(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self.modules.values():
            for word in module.words:
                found.setdefault(word, []).append(module)
        return found

    def having(self, name: str) -> Sequence[Module]:
        """The files in which a name is written, in the program's order."""
        return self._with_word.get(name, ())

    def module_named(self, dotted: str, seen_from: Module) -> Module | None:
        """The file that an absolute import means: the one nearest to the file that imports."""
        key = (dotted, seen_from)
        if key not in self._homes:
            self._homes[key] = None  # what it is while it is being found out
            self._homes[key] = self._home(dotted, seen_from) or self._renamed(dotted, seen_from)
        return self._homes[key]

    def _renamed(self, dotted: str, seen_from: Module) -> Module | None:
        """A file that a package gives another name: `from package import pipeline_v2 as pipeline` in its `__init__`."""
        parent, _, last = dotted.rpartition(".")
        package = self.module_named(parent, seen_from) if parent else None
        if package is None or not package.path.endswith("__init__.py") or last not in package.words:
            return None
        for node in package.top.bindings.get(last, ()):
            if isinstance(node, ast.ImportFrom):
                further = self._imported(package, last, node)
                if further is not None and further != dotted:
                    return self.module_named(further, package)
        return None

    def _home(self, dotted: str, seen_from: Module) -> Module | None:
        if dotted.partition(".")[0] in ("apex", "torch"):
            return None  # an adapter of the program's own is often called so (`engines/apex.py`)
        found = [m for m in self.by_name.get(dotted, []) if m is not seen_from]
        if len(found) <= 1:
            return found[0] if found else None
        exact = [m for m in found if m.name == dotted]
        folder = seen_from.name.rpartition(".")[0]
        beside = [m for m in found if m.name == (f"{folder}.{dotted}" if folder else dotted)]
        if not beside and not exact:  # a tree of its own is run from within: the copy in the nearest folder above
            above = (folder.rsplit(".", n)[0] for n in range(1, folder.count(".") + 1))
            beside = [m for name in above for m in found if m.name == f"{name}.{dotted}"]
        return (beside or exact or sorted(found, key=lambda m: (len(m.name), m.path)))[0]

    def dotted(self, scope: Scope, expr: ast.expr) -> str | None:
        """The full external name of an expression (`torch.nn.functional.softmax`), as imports give it; else None."""
        if isinstance(expr, ast.Attribute):
            base = self.dotted(scope, expr.value)
            return f"{base}.{expr.attr}" if base is not None else None
        if not isinstance(expr, ast.Name):
            return None
        found = scope.binder(expr.id)
        if found is None:
            return None
        key = (found, expr.id)
        if key not in self._full_names:
            self._full_names[key] = self._full_name(found, expr.id)
        return self._full_names[key]

    def _full_name(self, found: Scope, bound: str) -> str | None:
        for node in found.bindings[bound]:
            name = self._imported(found.module, bound, node)
            if name is not None:
                return name
        values = [n.value for n in found.bindings[bound] if isinstance(n, ast.Assign)]
        if len(values) == len(found.bindings[bound]) and all(isinstance(v, ast.Attribute) for v in values):
            for value in values:  # F = torch.nn.functional, perhaps one of several
                if not any(isinstance(n, ast.Name) and n.id == bound for n in syntax.walk(value)):
                    return self.dotted(found, value)
        return None

    def _imported(self, module: Module, name: str, node: ast.AST) -> str | None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == name:
                    return alias.name
                if alias.asname is None and alias.name.split(".")[0] == name:
                    return name
        if isinstance(node, ast.ImportFrom):
            base = self._base(module, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{base}.{alias.name}" if base else alias.name
        return None

    def _base(self, module: Module, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.name.split(".")
        package = parts if PurePosixPath(module.path).name == "__init__.py" else parts[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


def _names(texts: Mapping[str, str]) -> dict[str, str]:
    names = {}
    for path in texts:
        parts = list(PurePosixPath(path.replace("\\", "/")).with_suffix("").parts)
        parts = [p for p in parts if p not in ("/", "..", ".")]
        if parts and parts[-1] == "__init__":
            parts = parts[:-1]
        names[path] = ".".join(parts)
    return names
