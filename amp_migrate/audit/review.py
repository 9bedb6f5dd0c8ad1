"""What the checks share: the program before, the program after, what changed between them, and where they are asked."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, cast

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values

T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What the user asked for: as the options of the command line."""

    dtype: Literal["float16", "bfloat16"] = "float16"
    eval: Literal["autocast", "fp32"] = "autocast"
    partial: bool = False


class Was:
    """The program before, read on first use; once for all migrations of it that are reviewed."""

    def __init__(
        self, texts: Mapping[str, str], trees: Mapping[str, ast.Module] | None = None, above: Sequence[str] = ()
    ) -> None:
        """`above`: the names of the folders that the project lies in."""
        self.texts = texts
        self.above = above
        self._trees = trees
        self.kept: dict[object, object] = {}  # what checks found out about it
        self.changes: dict[str, Change] = {}  # the changes of the last migration that was reviewed
        self._last: tuple[object, Review] | None = None

    def review(self, after: Mapping[str, str], wish: Wish, trees: Mapping[str, ast.Module] | None = None) -> Review:
        """The review of a migration; the last one, where that is asked about again."""
        if self._last is None or self._last[0] != (after, wish):
            self._last = (dict(after), wish), Review(self, after, wish, trees)
        return self._last[1]

    @cached_property
    def program(self) -> Program:
        return Program(self.texts, trees=self._trees, above=self.above)

    @cached_property
    def values(self) -> Values:
        return Values(self.program)


class Review:
    """One migration under review. Programs are read on first use; a module that did not change, or not since the last
    migration that was reviewed, is read once."""

    def __init__(
        self, was: Was, after: Mapping[str, str], wish: Wish, trees: Mapping[str, ast.Module] | None = None
    ) -> None:
        self.wish = wish
        self._was = was
        self._after = {**was.texts, **after}
        self._trees = trees

    @property
    def before(self) -> Program:
        return self._was.program

    def once(self, key: object, find: Callable[[], T]) -> T:
        """What was found out about the program before; kept for other migrations of it that are reviewed."""
        if key not in self._was.kept:
            self._was.kept[key] = find()
        return cast(T, self._was.kept[key])

    @cached_property
    def after(self) -> Program:
        last = {path: change.after for path, change in self._was.changes.items()}
        same = {path: module for path, module in last.items() if module.text == self._after.get(path)}
        return Program(self._after, {**self.before.modules, **same}, self._trees, self._was.above)

    @property
    def values_before(self) -> Values:
        return self._was.values

    @cached_property
    def values_after(self) -> Values:
        return Values(self.after)

    @cached_property
    def changes(self) -> dict[str, Change]:
        """The files that change, by path."""
        before, last = self.before.modules, self._was.changes
        changed = [m for p, m in self.after.modules.items() if p in before and m.text != before[p].text]
        self._was.changes = {
            m.path: last[m.path] if m.path in last and last[m.path].after is m else Change(before[m.path], m)
            for m in changed
        }
        return self._was.changes

    def statement_now(self, module: Module, node: ast.AST) -> tuple[Module, ast.stmt] | None:
        """Where the statement around a place of the program before stands now; None where it went."""
        change, stmt = self.changes.get(module.path), module.statement(node)
        if change is None:
            return module, stmt
        now = change.back.get(stmt)
        return (change.after, now) if now is not None else None

    def statement_before(self, module: Module, node: ast.AST) -> tuple[Module, ast.stmt] | None:
        """Where the statement around a place of the program after stood before, or that which it took the place of."""
        change, stmt = self.changes.get(module.path), module.statement(node)
        if change is None:
            return module, stmt
        was = change.was(stmt)
        return (change.before, was) if was is not None else None

    def line(self, module: Module, node: ast.AST) -> int:
        """The line before the migration that a place after it belongs to."""
        change = self.changes.get(module.path)
        return change.line(node) if change is not None else getattr(node, "lineno", 1)

    def doubt(
        self,
        module: Module,
        node: ast.AST,
        code: str,
        construct: str,
        message: str,
        verdict: Verdict = "refuse",
        told_by: tuple[str, ...] = (),
    ) -> Doubt:
        """A doubt about a place in the program after; `told_by`: see `Doubt`, anywhere in the function around it."""
        near = None
        if told_by:
            function = module.function_around(node)
            outside = function.node if function is not None else module.tree
            ends = [self.line(module, s) for s in syntax.walk(outside) if isinstance(s, ast.stmt)]
            near = (min(ends, default=1), max(ends, default=1))
        return Doubt(module.path, self.line(module, node), code, construct, message, verdict, told_by, near)

    def calls_after(self, *names: str) -> Iterator[tuple[Module, ast.Call, str]]:
        """Calls in the program after whose callee has one of these full names."""
        yield from calls_of(self.after, *names)
        yield from handed_calls(self.after, self.values_after, *names)

    def calls_before(self, *names: str) -> Iterator[tuple[Module, ast.Call, str]]:
        yield from calls_of(self.before, *names)
        yield from handed_calls(self.before, self.values_before, *names)


def calls_of(program: Program, *names: str) -> Iterator[tuple[Module, ast.Call, str]]:
    """Calls whose callee has one of these full names, through whatever imports and aliases."""
    for module in program.using(names):
        for call, name in calls_in(program, module, names):
            yield module, call, name


def calls_in(program: Program, module: Module, names: Iterable[str]) -> list[tuple[ast.Call, str]]:
    """Those of one file, in source order."""
    index = _by_full_name(program, module)
    calls = [(call, name) for name in dict.fromkeys(names) for call in index.get(name, ())]
    return sorted(calls, key=lambda c: module.call_order[c[0]]) if len(calls) > 1 else calls


def names_called(program: Program, module: Module, node: ast.AST) -> set[str]:
    """The full names of what is called in a node."""
    names = (program.dotted(module.scope_of(call), call.func) for call in syntax.every(node, ast.Call))
    return {name for name in names if name is not None}


def mentions(program: Program, module: Module, start: str) -> list[tuple[ast.expr, str]]:
    """Where a file names something of Apex's (`apex.`) or of torch's (`torch.`) outside of its imports, by its full name."""
    return _mentions(program, module).get(start, [])


@kept
def _mentions(program: Program, module: Module) -> dict[str, list[tuple[ast.expr, str]]]:
    found: dict[str, list[tuple[ast.expr, str]]] = {}
    roots = [*syntax.every(module.tree, ast.Name), *module.calls()]
    named = {_whole(module, node) for node in roots if _brought(program, module, node)}
    for node in syntax.walk(module.tree) if named else ():
        if node in named and isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            name = program.dotted(module.scope_of(node), node)
            if name is not None:
                found.setdefault(name[: name.find(".") + 1], []).append((node, name))
    return found


def _brought(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether an import brought what a name is, or is called."""
    return program.imported(module.scope_of(node), node) is not None


def _whole(module: Module, node: ast.expr) -> ast.AST:
    """The longest dotted name that begins with an expression."""
    at: ast.AST = node
    while isinstance(further := module.parents.get(at), ast.Attribute):
        at = further
    return at


@kept
def _by_full_name(program: Program, module: Module) -> dict[str, list[ast.Call]]:
    """The calls of a file by the full name of what is called."""
    found: dict[str, list[ast.Call]] = {}
    for call in module.calls():
        name = program.dotted(module.scope_of(call), call.func)
        if name is not None:
            found.setdefault(name, []).append(call)
    return found


AMP = "apex.amp"
COMMON = frozenset("state_dict load_state_dict init".split())  # which objects of every kind have


def handed_calls(program: Program, values: Values, *names: str) -> Iterator[tuple[Module, ast.Call, str]]:
    """`def prepare(model, amp=None): amp.initialize(model)`: calls on Apex's module where it is a variable."""
    wanted = {n.rpartition(".")[2] for n in names if n.rpartition(".")[0] == AMP}
    if not wanted or not any("apex" in m.text for m in program.modules.values()):
        return
    for module in program.modules.values():
        for attr in wanted if not wanted.isdisjoint(module.words) else ():
            for call in module.calls_named.get(attr, ()):
                func = call.func
                if not isinstance(func, ast.Attribute) or (
                    attr in COMMON and "amp" not in syntax.text(func.value).rpartition(".")[2].split("_")
                ):
                    continue
                scope = module.scope_of(call)
                if program.dotted(scope, func) is None:
                    if any(_is_amp(program, o) for o in values.origins(scope, func.value)):
                        yield module, call, f"{AMP}.{attr}"


def _is_amp(program: Program, origin: Origin) -> bool:
    node = origin.node
    if isinstance(node, ast.ImportFrom):
        return not node.level and node.module == "apex" and any(a.name == "amp" for a in node.names)
    if isinstance(node, ast.Import):
        return any(a.name == AMP and a.asname for a in node.names)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        return program.dotted(origin.module.scope_of(node), node) == AMP
    return False
