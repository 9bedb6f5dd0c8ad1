"""Does a collection hold one thing at most? What is put into it tells: `optimizers = {}`, `optimizers["model"] = Adam(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers

Labels = frozenset[object]  # what tells the things in a collection apart: a key, the place where it is put in

_ALIKE = frozenset("list tuple sorted reversed set iter".split())  # as many as they are given
_READING = _ALIKE | frozenset("enumerate zip len print str repr any all isinstance initialize scale_loss".split())
_PARTS = frozenset("values keys items".split())
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_EACH = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def holds_one(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether all that is put into a collection is in sight, and is one thing."""
    found = _Collections(project).labels(module, node)
    return found is not None and len(found) <= 1


class _Collections:
    """Answers for one question; what it is made anew of itself adds nothing."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._open: set[tuple[object, str]] = set()
        self._known: dict[tuple[object, str], Labels | None] = {}

    def labels(self, module: Module, node: ast.expr) -> Labels | None:
        """What an expression holds; None where that is not all in sight."""
        if isinstance(node, _DISPLAYS):
            return None if any(isinstance(e, ast.Starred) for e in node.elts) else frozenset(node.elts)
        if isinstance(node, ast.Dict):
            return None if None in node.keys else frozenset(_key(k) for k in node.keys if k is not None)
        if isinstance(node, _EACH):
            return self.labels(module, node.generators[0].iter) if len(node.generators) == 1 else None
        if isinstance(node, ast.Call):
            return self._made(module, node)
        if isinstance(node, ast.Name):
            return self._of_name(module, node)
        return self._of_attribute(node.attr) if isinstance(node, ast.Attribute) else None

    def _made(self, module: Module, call: ast.Call) -> Labels | None:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _PARTS and not call.args:
            return self.labels(module, call.func.value)
        name = called_name(call)
        if isinstance(call.func, ast.Name) and name in _ALIKE | {"dict", "OrderedDict"} and not call.keywords:
            return self.labels(module, call.args[0]) if call.args else frozenset()
        if isinstance(call.func, ast.Name) and name == "zip":  # as many as the shortest of them
            found = [labels for a in call.args if (labels := self.labels(module, a)) is not None]
            return min(found, key=len, default=None)
        return None

    def _of_name(self, module: Module, name: ast.Name) -> Labels | None:
        scope = module.scope_of(name).lookup(name.id)
        if scope is None or name.id in scope.params or (scope, name.id) in self._open:
            return frozenset() if (scope, name.id) in self._open else None
        stmts = [module.statement(b) for b in scope.bindings.get(name.id, ())]
        values = [s.value for s in stmts if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)]
        if not values or len(values) < len(stmts):
            return None
        uses = ((module, n) for n in module.loads.get(name.id, ()) if module.scope_of(n).lookup(name.id) is scope)
        return self._together((scope, name.id), [(module, v) for v in values], uses)

    def _of_attribute(self, name: str) -> Labels | None:
        """What attributes of a name hold, on whatever object."""
        if (None, name) in self._open:
            return frozenset()
        values: list[tuple[Module, ast.expr]] = []
        uses: list[tuple[Module, ast.expr]] = []
        for module in self.project.modules:
            for node in module.of(ast.Attribute) if name in module.text else ():
                if node.attr != name:
                    continue
                parent = module.parents[node]
                if isinstance(node.ctx, ast.Load):
                    uses.append((module, node))
                elif isinstance(parent, (ast.Assign, ast.AnnAssign)) and parent.value is not None:
                    values.append((module, parent.value))
                else:
                    return None
        return self._together((None, name), values, uses) if values else None

    def _together(
        self,
        held: tuple[object, str],
        values: Iterable[tuple[Module, ast.expr]],
        uses: Iterable[tuple[Module, ast.expr]],
    ) -> Labels | None:
        if held not in self._known:
            self._open.add(held)
            parts = [*(self.labels(*v) for v in values), *(_put(*use) for use in uses)]
            self._open.discard(held)
            seen = [labels for labels in parts if labels is not None]
            self._known[held] = frozenset[object]().union(*seen) if len(seen) == len(parts) else None
        return self._known[held]


def _put(module: Module, use: ast.expr) -> Labels | None:
    """What one use puts into a collection; None where that is not seen."""
    parent = module.parents[use]
    if isinstance(parent, ast.Subscript) and parent.value is use:
        if isinstance(parent.ctx, ast.Load):
            return frozenset()
        constant = isinstance(parent.ctx, ast.Store) and isinstance(parent.slice, ast.Constant)
        return frozenset((_key(parent.slice),)) if constant else None
    if isinstance(parent, ast.Attribute):
        if parent.attr in _PARTS | {"get"}:
            return frozenset()
        once = parent.attr == "append" and not any(isinstance(a, LOOP_NODES) for a in module.ancestors(use))
        call = module.parents[parent]
        if once and isinstance(call, ast.Call):  # of what a function is given, as often as that is called
            scope = module.scope_of(use)
            made_once = getattr(scope.node, "name", "") == "__init__"
            once = made_once or not identifiers(*call.args) & {*scope.params} - {scope.self_name}
        return frozenset((use,)) if once else None
    if isinstance(parent, (ast.Call, ast.keyword)):
        call = module.parents[parent] if isinstance(parent, ast.keyword) else parent
        return frozenset() if isinstance(call, ast.Call) and called_name(call) in _READING else None
    looked = (ast.For, ast.comprehension, ast.Compare, ast.If, ast.FormattedValue, ast.BoolOp)
    return frozenset() if isinstance(parent, looked) else None


def _key(node: ast.expr) -> object:
    return ("key", node.value) if isinstance(node, ast.Constant) else node
