"""Branches that do with Apex and without it the same: the native one stays.

`if args.apex: model = ApexDDP(model) else: model = DDP(model, device_ids=[rank])`
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import brings_only_apex, walk, within_apex
from amp_migrate.reading.program.view import Folds
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual, Native
from amp_migrate.writing.edits import Edits

LOGGERS = ("print", "logging", "logger", "_logger", "log", "warnings", "LOGGER", "LOG")


class Branches:
    """The tests of one module that choose between Apex and its native counterpart."""

    def __init__(self, project: Project, module: Module, decided: Mapping[Site, Native | Manual]) -> None:
        self.project = project
        self.module = module
        self.calls = {site.call: decision for site, decision in decided.items() if site.call is not None}
        self.nodes = {site.node for site in decided}

    def fold(self, edits: Edits, folds: Folds) -> set[ast.AST]:
        """Leave the native branches; returned are the tests that went."""
        gone: set[ast.AST] = set()
        for call in self.calls:
            for parent in self.module.ancestors(call):
                if isinstance(parent, ast.stmt) and parent in self.module.scopes:
                    break
                if isinstance(parent, ast.IfExp) and parent not in gone and not edits.gone(parent):
                    kept = self._native_value(parent)
                    if kept is not None:
                        edits.replace(parent, (kept,))
                        gone.add(parent)
                elif isinstance(parent, ast.If) and parent not in edits.statements and not edits.gone(parent):
                    branch = self._native_branch(parent)
                    if branch is not None:
                        edits.splice(parent, branch)
                        folds.splices[parent] = branch
                        self._drop_advice(edits, getattr(parent, branch))
                        gone.add(parent)
        return gone

    def _native_value(self, node: ast.IfExp) -> ast.expr | None:
        for mine, other in ((node.body, node.orelse), (node.orelse, node.body)):
            if isinstance(mine, ast.Call) and isinstance(other, ast.Call) and self._counterpart(mine, other):
                return other
        return None

    def _native_branch(self, node: ast.If) -> Literal["body", "orelse"] | None:
        if not node.orelse:
            return None
        if self._same(node.body, node.orelse):
            return "orelse"
        if self._same(node.orelse, node.body):
            return "body"
        return None

    def _same(self, mine: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> bool:
        apex = [s for s in mine if not is_idle(s)]
        native = [s for s in other if not is_idle(s)]
        if not apex or self._uses_apex(native):
            return False
        matched: set[ast.stmt] = set()
        for stmt in apex:
            found = next((s for s in native if self._pair(stmt, s)), None)
            if found is None:
                return False
            matched.add(found)
        return all(s in matched or isinstance(s, (ast.Assign, ast.Import, ast.ImportFrom)) for s in native)

    def _pair(self, mine: ast.stmt, other: ast.stmt) -> bool:
        if isinstance(mine, ast.If) and isinstance(other, ast.If):
            return (
                ast.dump(mine.test) == ast.dump(other.test)
                and bool(mine.orelse) is bool(other.orelse)
                and self._same(mine.body, other.body)
                and (not mine.orelse or self._same(mine.orelse, other.orelse))
            )
        if isinstance(mine, ast.Assign) and isinstance(other, ast.Assign):
            if [ast.dump(t) for t in mine.targets] != [ast.dump(t) for t in other.targets]:
                return False
        elif not (isinstance(mine, ast.Return) and isinstance(other, ast.Return)):
            return False
        return (
            isinstance(mine.value, ast.Call)
            and isinstance(other.value, ast.Call)
            and self._counterpart(mine.value, other.value)
        )

    def _counterpart(self, mine: ast.Call, other: ast.Call) -> bool:
        """Whether one call is a part of Apex and the other its native counterpart, on the same first argument."""
        decision = self.calls.get(mine)
        if not isinstance(decision, Native) or not mine.args or not other.args:
            return False
        first, second = mine.args[0], other.args[0]
        nested = isinstance(first, ast.Call) and isinstance(second, ast.Call) and self._counterpart(first, second)
        if not nested and ast.dump(first) != ast.dump(second):
            return False
        name = self.module.qualify(other.func) or ast.unparse(other.func)
        last = decision.names[0].rpartition(".")[2]
        if not within_apex(name):
            return name.rpartition(".")[2] == last
        return self._has_native_binding(other) and self.calls.get(other) is not None and _differ(mine, other)

    def _has_native_binding(self, call: ast.Call) -> bool:
        """A name that an Apex import and its native fallback share."""
        if not isinstance(call.func, ast.Name):
            return False
        owner = self.module.scope_of(call).lookup(call.func.id)
        return owner is not None and any(
            not (isinstance(b, ast.ImportFrom) and within_apex(b.module)) for b in owner.bindings[call.func.id]
        )

    def _uses_apex(self, block: Iterable[ast.stmt]) -> bool:
        for stmt in block:
            for node in walk(stmt):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    name = self.project.qualify(self.module, node) or ""
                    parent = self.module.parents.get(node)
                    shared = isinstance(parent, ast.Call) and self._has_native_binding(parent)
                    if name.startswith("apex.") and not shared:
                        return True
        return False

    def _drop_advice(self, edits: Edits, block: Iterable[ast.stmt]) -> None:
        """Messages that send the reader to Apex say nothing any more."""
        for stmt in block:
            texts = [n.value for n in walk(stmt) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            if is_idle(stmt) and any("apex" in text.lower() for text in texts):
                edits.delete(stmt)


def is_idle(stmt: ast.stmt) -> bool:
    """A statement that only tells somebody something, or imports Apex."""
    if isinstance(stmt, ast.Pass):
        return True
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        return brings_only_apex(stmt)
    if isinstance(stmt, ast.If):
        return not stmt.orelse and all(is_idle(s) for s in stmt.body)
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return (dotted(stmt.value.func) or "").partition(".")[0] in LOGGERS
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def _differ(mine: ast.Call, other: ast.Call) -> bool:
    """Whether the second call has arguments that only torch takes."""
    own = {k.arg for k in mine.keywords}
    return any(
        k.arg not in own and k.arg in ("device_ids", "output_device", "find_unused_parameters") for k in other.keywords
    )
