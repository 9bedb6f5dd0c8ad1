"""What a loader gives of the items of a data set."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import Function, argument, is_none, unpacks
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.values import arrays as known
from amp_migrate.reading.values.arrays import NOTHING, UNKNOWN, Kinds
from amp_migrate.reading.values.table import Path, Value

if TYPE_CHECKING:
    from amp_migrate.reading.values.doubles import Doubles

OF_DATA = "torch.utils.data."


class DataSets:
    """The rules for loaders and data sets; `doubles` is asked for what these are made of."""

    def __init__(self, doubles: Doubles) -> None:
        self.doubles = doubles
        self.project = doubles.project

    def loaded(self, module: Module, loader: ast.Call, path: Path) -> Kinds:
        """What a turn of a loop over a loader has at a path."""
        data = argument(loader, 0, "dataset")
        named = {k.arg: k.value for k in loader.keywords}
        if data is None or None in named or len(loader.args) > 6:
            return UNKNOWN
        joins = named.get("collate_fn")
        if joins is None or is_none(joins):
            return frozenset(known.collated(k) for k in self._entry(module, data, path[1:]))
        functions = [self.project.functions.get(d) for d in self.project.definitions(module, joins)]
        if isinstance(joins, ast.Attribute) and not functions:
            held = self.project.classes_of(module, joins.value)
            functions = [cls.method(joins.attr) for cls in held]
        if not functions or None in functions:
            return UNKNOWN
        return NOTHING.union(*(self._joined(f, module, data, path[1:]) for f in functions if f is not None))

    def _joined(self, function: Function, module: Module, data: ast.expr, path: Path) -> Kinds:
        """What a function of the program makes of the items of a batch."""

        def batch(at: Path) -> Kinds:
            return self._entry(module, data, at[1:]) if at else UNKNOWN

        first = function.positional[:1]
        return self.doubles.returned(function, path, self.doubles.called(function, dict.fromkeys(first, batch)))

    def _entry(self, module: Module, node: ast.expr, path: Path) -> Kinds:
        """What an item of a data set is, at a path."""
        found = self.doubles.values.may_be(module, node)
        return NOTHING.union(*(self._of_set(v, path) for v in found)) if found else UNKNOWN

    def _of_set(self, value: Value, path: Path) -> Kinds:
        module, node = value.module, value.node
        if not isinstance(node, ast.Call):
            return NOTHING if value.kind == "constant" and value.constant is None else UNKNOWN
        cls = self.project.find_class(module, node.func)
        if cls is not None:
            item, turns = cls.method("__getitem__"), cls.method("__iter__")
            if item is not None:
                return self.doubles.returned(item, path, None)
            return self.doubles.returned(turns, (None, *path), None) if turns is not None else UNKNOWN
        name = module.qualify(node.func) or ""
        last = name.removeprefix(OF_DATA).rpartition(".")[2] if name.startswith(OF_DATA) else ""
        if last in ("Subset", "random_split") and node.args:
            return self._entry(module, node.args[0], path)
        if last == "ConcatDataset" and node.args:
            parts = self.doubles.values.may_be(module, node.args[0], (None,))
            return NOTHING.union(*(self._of_set(v, path) for v in parts)) if parts else UNKNOWN
        if last == "TensorDataset" and path and isinstance(path[0], int) and not unpacks(node):
            rows = [self.doubles.of(module, a) for a in node.args[path[0] :][:1]]
            return rows[0] if rows else UNKNOWN
        return UNKNOWN
