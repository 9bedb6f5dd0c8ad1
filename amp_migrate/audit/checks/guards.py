"""What was read only where a test had found it is read nowhere else now.

Proved, for `config["apex"]` under `if "apex" in config:`, for `args.apex.level` under `if args.apex is not None:` and for an
attribute under `if hasattr(...)`: the migration left each read of it under such a test; so too for a name that a file defines
only under a flag (`if HAS_FAST:`, or in the `try` that sets one) and was read under it. Not asked where the program before
read the same in that function without a test, and of tests in the callers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.paths.facts import assigned
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.chains import Chains, Tests
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP131: see `assigned.py`

Read = ast.Subscript | ast.Attribute


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        given = {text for stmt in [*change.added, *change.rewritten] for text in assigned(stmt)}
        asked = [
            node
            for stmt in [*change.added, *change.rewritten]
            if isinstance(stmt, (ast.Assign, ast.Expr, ast.AnnAssign, ast.With, ast.AsyncWith, ast.Return))
            for node in _reads(stmt)
            if _key(node) in change.before.words
        ]
        known = _known(both.before.chains, change.before, {_key(node) for node in asked}) if asked else {}
        for node in asked:
            guarded = known.get((_function(change.after, node), syntax.text(node)))
            if not guarded or not all(guarded) or syntax.text(node.value) in given:
                continue
            if not _guarded(both.after.chains, change.after, node):
                text = syntax.text(node)
                message = f"{text} is read here in every run, and was only where a test had found that it is there"
                yield review.doubt(change.after, node, "AMP131", text, message)
        yield from _defined(both, change)


def _defined(both: Mixed, change: Change) -> Iterator[Doubt]:
    """Reads of a name that the file defines only where a test came out so, from under which the migration took them."""
    module, chains = change.after, both.after.chains
    for name, nodes in module.top.bindings.items():
        if len(nodes) > 3 or any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in nodes):
            continue
        needed = [_needs(chains, module, n) for n in nodes]
        common = set.intersection(*needed) if needed else set()
        for node in module.loads.get(name, ()) if common else ():
            stmt = module.statement(node)
            if not isinstance(node, ast.Name) or module.scope_of(node).binder(name) is not module.top:
                continue
            old = change.was(stmt)
            if old is None or not change.moved(stmt) or common & set(_said(chains.tests(module, node))):
                continue
            then = set(_said(both.before.chains.tests(change.before, old)))
            if not common & then or not any(isinstance(n, ast.Name) and n.id == name for n in syntax.own_line(old)):
                continue
            (text, came), *_ = sorted(common & then)
            message = (
                f"{name} is read here in every run, and was only where {'' if came else 'not '}{text}, without which nothing "
                "defines it"
            )
            yield both.review.doubt(module, node, "AMP131", name, message)


def _needs(chains: Chains, module: Module, node: ast.AST) -> set[tuple[str, bool]]:
    """The tests that came out so wherever a statement of a file ran: those around it, and the flags that a `try` sets which
    may not come to its end."""
    found = set(_said(chains.tests(module, node)))
    for at in module.ancestors(node):
        if isinstance(at, ast.Try) and any(node is n for s in at.body for n in syntax.walk(s)):
            for stmt in (*at.body, *at.orelse):
                value = stmt.value if isinstance(stmt, ast.Assign) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, bool) and isinstance(stmt, ast.Assign):
                    found |= {(syntax.text(t), value.value) for t in stmt.targets}
    return found


def _said(tests: Tests) -> Iterator[tuple[str, bool]]:
    yield from ((syntax.text(test), came) for test, came in _parts(tests))


def _reads(stmt: ast.stmt) -> Iterator[Read]:
    """What a statement's own line reads by key or attribute; the innermost first."""
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load) and _key(node):
            yield node
        if not isinstance(node, ast.Lambda):
            stack += [c for c in syntax.children(node) if not isinstance(c, (ast.stmt, ast.ExceptHandler))]


def _function(module: Module, node: ast.AST) -> str:
    function = module.function_around(node)
    return function.qualname if function is not None else ""


def _known(chains: Chains, module: Module, keys: set[str]) -> dict[tuple[str, str], list[bool]]:
    """The reads of these in the file before, by function and text: whether each stood under a test for it."""
    found: dict[tuple[str, str], list[bool]] = {}
    for node in syntax.walk(module.tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load) and _key(node) in keys:
            if not _asks(module, node):
                guarded = _guarded(chains, module, node)
                found.setdefault((_function(module, node), syntax.text(node)), []).append(guarded)
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


def _guarded(chains: Chains, module: Module, node: Read) -> bool:
    holder = syntax.text(node.value)
    key = _key(node)
    return any(_finds(part, came, holder, key) for part, came in _parts(chains.tests(module, node)))


def _parts(tests: Tests) -> Iterator[tuple[ast.expr, bool]]:
    """The single tests that are known to have come out so."""
    for test, came in tests:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is came:
            yield from _parts([(value, came) for value in test.values])
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield from _parts([(test.operand, not came)])
        elif isinstance(test, ast.Call) and syntax.text(test.func) == "bool" and len(test.args) == 1:
            yield from _parts([(test.args[0], came)])
        else:
            yield test, came


def _finds(test: ast.expr, came: bool, holder: str, key: str) -> bool:
    """Whether a test that came out so says that `holder` is there, or has the key or attribute."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op, left, right = test.ops[0], test.left, test.comparators[0]
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(left, ast.Constant) and str(left.value) == key:
            return syntax.text(right) in (holder, f"{holder}.keys()") and came is isinstance(op, ast.In)
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and isinstance(right, ast.Constant):
            return (
                right.value is None and syntax.text(left) == holder and came is isinstance(op, (ast.IsNot, ast.NotEq))
            )
        return False
    if isinstance(test, ast.Call) and came:
        called, given = syntax.text(test.func), test.args
        if called == "hasattr" and len(given) == 2 and isinstance(given[1], ast.Constant):
            return syntax.text(given[0]) == holder and given[1].value == key
        return (
            called == f"{holder}.get" and bool(given) and isinstance(given[0], ast.Constant) and given[0].value == key
        )
    return False
