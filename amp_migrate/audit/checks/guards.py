"""What was read only where a test had found it is read nowhere else now.

Proved, for `config["apex"]` under `if "apex" in config:`, for `args.apex.level` under `if args.apex is not None:` and for an
attribute under `if hasattr(...)`: the migration left each read of it under such a test; so too for a name that a file defines
only under a flag (`if HAS_FAST:`, or in the `try` that sets one) and was read under it. A test may be that of a flag which
was given it, here or in another method (`self.mixed = fast and "apex" in config`, later `if self.mixed:`). Not asked where the
program before read the same in that function without a test, and of tests in the callers. What was read under tests that ask
something else is `unset/untested.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.paths.facts import assigned
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.untested import read_untested
from amp_migrate.audit.ways.meant import Meant, Said, off
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP131: see `assigned.py`

Read = ast.Subscript | ast.Attribute


def check(review: Review) -> Iterable[Doubt]:
    found = list(_found_by_tests(review))
    yield from found
    told = {(doubt.path, doubt.line) for doubt in found}
    yield from (doubt for doubt in read_untested(review) if (doubt.path, doubt.line) not in told)


def _found_by_tests(review: Review) -> Iterator[Doubt]:
    both = mixed(review)
    before, after = Meant(both.before.chains), Meant(both.after.chains)
    for change in review.changes.values():
        given = {text for stmt in [*change.added, *change.rewritten] for text in assigned(stmt)}
        asked = [
            node
            for stmt in [*change.added, *change.rewritten]
            if isinstance(stmt, (ast.Assign, ast.Expr, ast.AnnAssign, ast.With, ast.AsyncWith, ast.Return))
            for node in _reads(stmt)
            if _key(node) in change.before.words
        ]
        known = _known(before, change.before, {_key(node) for node in asked}) if asked else {}
        for node in asked:
            guarded = known.get((change.after.name_around(node), syntax.text(node)))
            if not guarded or not all(guarded) or syntax.text(node.value) in given:
                continue
            if not _guarded(after, change.after, node):
                text = syntax.text(node)
                message = f"{text} is read here in every run, and was only where a test had found that it is there"
                yield review.doubt(change.after, node, "AMP131", text, message)
        yield from _defined(review, before, after, change)


def _defined(review: Review, before: Meant, after: Meant, change: Change) -> Iterator[Doubt]:
    """Reads of a name that the file defines only where a test came out so, from under which the migration took them."""
    module = change.after
    for name, nodes in module.top.bindings.items():
        if len(nodes) > 3 or any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in nodes):
            continue
        needed = [_needs(after, module, n) for n in nodes]
        common = set.intersection(*needed) if needed else set()
        for node in module.loads.get(name, ()) if common else ():
            stmt = module.statement(node)
            if not isinstance(node, ast.Name) or module.scope_of(node).binder(name) is not module.top:
                continue
            old = change.was(stmt)
            if old is None or not change.moved(stmt) or common & _texts(after, module, node):
                continue
            then = _texts(before, change.before, old)
            if not common & then or not any(isinstance(n, ast.Name) and n.id == name for n in syntax.own_line(old)):
                continue
            (text, came), *_ = sorted(common & then)
            message = (
                f"{name} is read here in every run, and was only where {'' if came else 'not '}{text}, without which nothing "
                "defines it"
            )
            yield review.doubt(module, node, "AMP131", name, message)


def _needs(meant: Meant, module: Module, node: ast.AST) -> set[tuple[str, bool]]:
    """The tests that came out so wherever a statement of a file ran: those around it, and the flags that a `try` sets which
    may not come to its end."""
    found = _texts(meant, module, node)
    for at in module.ancestors(node):
        if isinstance(at, ast.Try) and any(node is n for s in at.body for n in syntax.walk(s)):
            for stmt in (*at.body, *at.orelse):
                value = stmt.value if isinstance(stmt, ast.Assign) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, bool) and isinstance(stmt, ast.Assign):
                    found |= {(syntax.text(t), value.value) for t in stmt.targets}
    return found


def _texts(meant: Meant, module: Module, node: ast.AST) -> set[tuple[str, bool]]:
    return {(syntax.text(said.test), said.came) for said in meant.around(module, node) if said.module is module}


def _reads(stmt: ast.stmt) -> Iterator[Read]:
    """What a statement's own line reads by key or attribute; the innermost first."""
    line = syntax.own_line(stmt)
    if not any(type(n) is ast.Lambda for n in line):
        yield from [
            n for n in line if isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Load) and _key(n)
        ]
        return
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load) and _key(node):
            yield node
        if not isinstance(node, ast.Lambda):
            stack += [c for c in syntax.children(node) if not isinstance(c, (ast.stmt, ast.ExceptHandler))]


def _known(meant: Meant, module: Module, keys: set[str]) -> dict[tuple[str, str], list[bool]]:
    """The reads of these in the file before, by function and text: whether each stood under a test for it."""
    found: dict[tuple[str, str], list[bool]] = {}
    reads: list[Read] = [*syntax.every(module.tree, ast.Attribute), *syntax.every(module.tree, ast.Subscript)]
    for node in reads:
        if _key(node) in keys and isinstance(node.ctx, ast.Load):
            if not _asks(module, node):
                guarded = _guarded(meant, module, node)
                found.setdefault((module.name_around(node), syntax.text(node)), []).append(guarded)
    return found


def _key(node: Read) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""


def _asks(module: Module, node: ast.AST) -> bool:
    """Whether a read is part of a test itself."""
    child = node
    for at in module.ancestors(node):
        if isinstance(at, (ast.If, ast.While, ast.IfExp)):
            return child is at.test
        if isinstance(at, ast.stmt):
            return False
        child = at
    return False


def _guarded(meant: Meant, module: Module, node: Read) -> bool:
    around = list(meant.around(module, node))
    holder = meant.held(module.scope_of(node), node.value) if around else ()
    return any(_finds(meant, said, holder, _key(node)) for said in around)


def _finds(meant: Meant, said: Said, holder: tuple[object, ...], key: str) -> bool:
    """Whether a test that came out so says that `holder` is there, or has the key or attribute."""
    test, came, scope = said.test, said.came, said.module.scope_of(said.test)

    def same(expr: ast.expr) -> bool:
        return meant.held(scope, expr) == holder

    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op, left, right = test.ops[0], test.left, test.comparators[0]
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(left, ast.Constant) and str(left.value) == key:
            asked: ast.expr = right
            if isinstance(right, ast.Call) and isinstance(right.func, ast.Attribute) and right.func.attr == "keys":
                asked = right.func.value
            return came is isinstance(op, ast.In) and same(asked)
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and isinstance(right, ast.Constant):
            if right.value is not None or came is not isinstance(op, (ast.IsNot, ast.NotEq)):
                return False
            return same(left) or any(
                _finds(meant, further, holder, key)
                for further in meant.said(said.module, [(left, True)])
                if isinstance(further.test, ast.Call)
            )
        return False
    if isinstance(test, ast.Call) and came:
        called, given = syntax.text(test.func), test.args
        named = called == "hasattr" or (called == "getattr" and all(off(value) for value in given[2:]))
        if named and len(given) > 1 and isinstance(given[1], ast.Constant):
            return given[1].value == key and same(given[0])
        asked_for = given[0].value if given and isinstance(given[0], ast.Constant) else None
        return (
            isinstance(test.func, ast.Attribute)
            and test.func.attr == "get"
            and asked_for == key
            and same(test.func.value)
        )
    return False
