"""Names that a migration took away and that are read all the same, in the file itself or in those that import it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.paths.facts import assigned
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review

KNOWN = frozenset(dir(builtins)).union("__file__ __name__ __doc__ __path__ __class__ __package__ __spec__".split())
SHELL = frozenset({"get_ipython", "display", "In", "Out"})  # what a notebook has


def gone(review: Review) -> Iterator[Doubt]:
    """Names that nothing binds any more, here or in the files that import them."""
    for change in review.changes.values():
        yield from _unbound(review, change)
        lost = change.before.top.bindings.keys() - change.after.top.bindings.keys()
        if lost:
            yield from _imported(review, change, lost)
            yield from _handed_out(review, change, lost)
    for module in review.after.modules.values():
        if module.stars:
            yield from _unstarred(review, module)


def _unbound(review: Review, change: Change) -> Iterator[Doubt]:
    suspects = {name for scope in change.before.scopes for name in scope.bindings}
    suspects |= {n for s in (*change.added, *change.rewritten) for n in _loaded(s)}
    suspects -= KNOWN | SHELL | change.after.top.bindings.keys()
    lost = suspects & change.before.top.bindings.keys()
    as_they_were = set(_as_they_were(change))
    unbound: set[ast.AST] = set()
    for stmt in change.after.tree.body:
        asked = lost if stmt in as_they_were else suspects  # what else it reads is bound or not, as it was
        for node in syntax.every(stmt, ast.Name) if asked else ():
            if node.id in asked and isinstance(node.ctx, ast.Load):
                scope = change.after.scope_of(node)
                if scope.binder(node.id) is None and not (scope.is_class and node.id in scope.bindings):
                    unbound.add(node)
    if not unbound:
        return
    found: dict[str, ast.Name] = {}
    for node in syntax.every(change.after.tree, ast.Name):
        if node in unbound:
            found.setdefault(node.id, node)
    never = _never_bound(change.before)
    for name in sorted(found.keys() - never):
        if change.after.stars and _may_be_starred(review, change, found[name]):
            continue
        message = f"{name} is read here, and nothing defines it any more"
        yield review.doubt(change.after, found[name], "AMP131", name, message)


def _as_they_were(change: Change) -> Iterator[ast.stmt]:
    """The statements at the top of a file that are written as they were: what they bind for themselves they still do."""
    for stmt in change.after.tree.body:
        old = change.same.get(stmt)
        if old is not None and change.before.source(old) == change.after.source(stmt):
            yield stmt


def _never_bound(module: Module) -> set[str]:
    """Names that are read and that nothing binds, or only what reads them itself: `model = prepare(model)`."""
    names: set[str] = set()
    for node in syntax.every(module.tree, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in names:
            scope = module.scope_of(node).binder(node.id)
            bindings = scope.bindings[node.id] if scope is not None else []
            if all(isinstance(b, ast.Assign) and node.id in _loaded(b.value) for b in bindings):
                names.add(node.id)
    return names


def _loaded(stmt: ast.AST) -> set[str]:
    return {n.id for n in syntax.every(stmt, ast.Name)}


def _imported(review: Review, change: Change, lost: set[str]) -> Iterator[Doubt]:
    if change.after.stars:
        return
    last = change.after.name.rpartition(".")[2]
    for module in review.after.modules.values():
        if module is change.after or (not change.path.endswith("__init__.py") and last not in module.text):
            continue
        if lost.isdisjoint(module.words):
            continue
        for node, name in _uses(review, module, change, lost):
            line = min((s.lineno for s in change.removed if name in assigned(s)), default=1)
            message = f"{name} is defined here no more, and {module.path}:{review.line(module, node)} imports it"
            yield Doubt(change.path, line, "AMP131", name, message)


def _uses(review: Review, module: Module, change: Change, lost: set[str]) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    whole = False  # whether the module itself is imported, and names are read from it
    for stmt in statements(module.tree):
        if isinstance(stmt, ast.ImportFrom):
            base = review.after._base(module, stmt)
            if review.after.module_named(base, module) is change.after:
                yield from ((stmt, a.name) for a in stmt.names if a.name in lost)
            whole |= any(review.after.module_named(f"{base}.{a.name}", module) is change.after for a in stmt.names)
        elif isinstance(stmt, ast.Import):
            whole |= any(review.after.module_named(a.name, module) is change.after for a in stmt.names)
    for node in syntax.walk(module.tree) if whole else ():
        if isinstance(node, ast.Attribute) and node.attr in lost and isinstance(node.ctx, ast.Load):
            dotted = review.after.imported(module.scope_of(node), node.value)
            if dotted and review.after.module_named(dotted, module) is change.after:
                yield node, node.attr


def _handed_out(review: Review, change: Change, lost: set[str]) -> Iterator[Doubt]:
    """Names that a package took from one of its files for its users, which that file still defines."""
    went = [*change.removed, *change.rewritten.values()]  # as a whole, or one name of several
    for stmt in went if change.path.endswith("__init__.py") else ():
        if not isinstance(stmt, ast.ImportFrom):
            continue
        home = review.after.module_named(review.before._base(change.before, stmt), change.after)
        if home is None:
            continue
        own = {f.name for f in home.functions if f.scope.parent is home.top}
        own |= {c.name for c in home.classes if c.scope.parent is home.top}
        for alias in stmt.names:
            if alias.name in own and (alias.asname or alias.name) in lost:
                message = f"{alias.name} is handed out of this package no more, though {home.path} defines it still"
                yield Doubt(change.path, stmt.lineno, "AMP131", alias.name, message)


def _unstarred(review: Review, module: Module) -> Iterator[Doubt]:
    """Names that `from x import *` brought to a file, and brings no more."""
    before = review.before.modules.get(module.path)
    homes = review.before.starred_files(before) if before is not None else ()
    changes = [review.changes[m.path] for m in homes if m.path in review.changes]
    for name in sorted(module.loads) if changes else ():
        read = next((n for n in module.loads[name] if isinstance(n, ast.Name)), None)
        if read is None or module.scope_of(read).binder(name) is not None:
            continue
        if _starred(review.before, module.path, name) and not _starred(review.after, module.path, name):
            change = next((c for c in changes if name in c.before.top.bindings), changes[0])
            line = min((s.lineno for s in change.removed if name in assigned(s)), default=1)
            message = (
                f"{name} comes from here no more, and {module.path}:{review.line(module, read)} has it by a star import"
            )
            yield Doubt(change.path, line, "AMP131", name, message)


def _may_be_starred(review: Review, change: Change, read: ast.Name) -> bool:
    """Whether `from x import *` may bind a name that nothing else does: a file of the program has it, or what it brings is
    out of sight, and the program had no such name of its own there."""
    scope = change.after.scope_of(read)
    if _starred(review.after, change.path, read.id):
        return True
    function = change.after.function_around(read)
    own = [f.scope for f in change.before.functions if function is not None and f.name == function.name]
    return review.after.starred_from_afar(scope, read) and not any(
        read.id in s.bindings for s in (change.before.top, *own)
    )


def _starred(program: Program, path: str, name: str) -> bool:
    """Whether a file has a name from `from x import *`."""
    module = program.modules[path]
    return program.imported(module.top, ast.Name(name, ast.Load())) is not None
