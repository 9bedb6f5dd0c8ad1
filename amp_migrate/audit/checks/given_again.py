"""A region that asks a flag for itself asks for the value that `amp.initialize` has seen.

Apex stays on, or off, as it was set up. A flag that is given another value in between, `cfg.fp16 = False` below the set-up,
switches regions that read it anew, and Apex not. Followed: variables, fields and entries (`cfg["fp16"]`, `setattr`, `update`,
`pop`, `vars`), where a way comes by the set-up, then by what gives the value, then by the region, and by no set-up in between
that asks the flag again.

Cannot prove that two expressions are one object, where they are written in different functions and it is not seen where that
is made; nor which keys a mapping writes that is not written out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt, with_lines
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.side import Side
from amp_migrate.audit.sites.regions import AUTOCAST
from amp_migrate.audit.sites.setups import Identity, argument, identities
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import atoms
from amp_migrate.audit.ways.within import may_follow
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP532: see `switch.py`

Flag = tuple[ast.expr | None, str]  # the object and its key; a variable alone
Place = tuple[Module, ast.AST]

INSTEAD = "the scaler (is_enabled()), or a variable that is set where Apex was"


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed:
        return
    for change in review.changes.values():
        told: dict[tuple[str, Place], list[Doubt]] = {}
        for call, enabled in _regions(review, change):
            for text, place in _given_again(both, both.after, change.after, call, enabled):
                message = f"{_given(both, text, place)}, and this region asks anew. Ask {INSTEAD}"
                doubt = review.doubt(change.after, call, "AMP532", "enabled=", message, "review")
                told.setdefault((text, place), []).append(doubt)
        yield from map(with_lines, told.values())
        for call, test in _joined(change):
            for text, place in _given_again(both, both.before, change.before, call, test):
                message = (
                    f"{_given(both, text, place)}, and the test here asked anew: where it came out otherwise, the loss was not "
                    "scaled, and is now"
                )
                yield Doubt(change.before.path, test.lineno, "AMP532", "backward", message, "review")
                break


def _given(both: Mixed, text: str, place: Place) -> str:
    module, node = place
    line = both.review.line(module, node) if module in both.after.modules else getattr(node, "lineno", 1)
    return f"{text} is given a value at {module.path}:{line} once amp.initialize has asked for it: Apex stayed as it was set up"


def _regions(review: Review, change: Change) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The regions that the migration wrote, or rewrote, with a switch."""
    for call, name in calls_in(review.after, change.after, AUTOCAST):
        enabled = argument(call, "enabled", AUTOCAST[name])
        if enabled is not None and not isinstance(enabled, ast.Constant) and change.changed(call):
            yield call, enabled


def _joined(change: Change) -> Iterator[tuple[ast.Call, ast.expr]]:
    """What scaled a loss on one side of a test that has a plain backward on its other, and is gone."""
    module = change.before
    for call in module.calls() if "scale_loss" in module.words else ():
        if syntax.text(call.func).rpartition(".")[2] == "scale_loss":
            for around in module.ancestors(call):
                if isinstance(around, ast.If) and around not in change.back and around.orelse:
                    yield call, around.test


def _given_again(
    both: Mixed, side: Side, module: Module, place: ast.Call, asked: ast.expr
) -> Iterator[tuple[str, Place]]:
    """What is read at a place that is given a value between the set-up and there, and where."""
    near = both.near_setups(module if side is both.before else both.review.changes[module.path].before)
    ways = [(s, way) for s in near for way in both.before.chains.to(s.module, s.call)]
    for text, flag in _read(asked):
        # Of a set-up that asks for it: what is only given its first value below says what was decided by then.
        asks = re.compile(rf"\b{re.escape(flag[1])}\b")
        setups = [way for s, way in ways if any(asks.search(atom) for atom in atoms(both.on(s, way)))]
        for other, node in _stores(side, module, place, flag) if setups else ():
            old = (other, node) if side is both.before else _before(both, other, node)
            if old is None or not any(_below(way, setup) for way in both.before.chains.to(*old) for setup in setups):
                continue
            if all(_same_value(both, setup, *old) for setup in setups):
                continue
            ways_to = side.chains.to(module, place)
            if any(_follows(way, first) for way in ways_to for first in side.chains.to(other, node)):
                olds = [_as_it_went(both, side, way) for way in ways_to]
                anew = _Anew(both, setups, asks)
                if None in olds or any(
                    _follows(way, first) and not anew.asked(way, first)
                    for way in olds
                    for first in both.before.chains.to(*old)
                    if way is not None
                ):
                    yield text, (other, node)


def _same_value(both: Mixed, setup: Chain, module: Module, node: ast.AST) -> bool:
    """Whether what a flag is given is the parameter that the set-up asks in the same function: `self.fp16 = fp16`."""
    stmt, place = module.statement(node), setup.place
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(value, ast.Name) or module.function_around(node) is not place.function or place.function is None:
        return False
    bound = module.scope_of(value).bindings.get(value.id, ())
    if len(bound) != 1 or not isinstance(bound[0], ast.arg):
        return False
    asked = (place.node, *(test for test, _ in both.before.chains.tests(module, place.node)))
    return any(n.id == value.id for a in asked for n in syntax.every(a, ast.Name))


def _as_it_went(both: Mixed, side: Side, way: Chain) -> Chain | None:
    """A way to a region, as it went to what that holds before."""
    if side is both.before:
        return way
    holder = next(
        (a for a in way.place.module.ancestors(way.place.node) if isinstance(a, (ast.With, ast.AsyncWith))), None
    )
    held = (n for stmt in holder.body for n in syntax.every(stmt, ast.Call)) if holder is not None else ()
    return next((old for call in held if (old := both.chain_before(way.ending(call))) is not None), None)


class _Anew:
    """Whether a set-up asks for a flag again on the way from where that is given a value."""

    def __init__(self, both: Mixed, setups: list[Chain], asks: re.Pattern[str]) -> None:
        self.given, self.setups, self.asks = both.before.predicates.given, setups, asks

    def asked(self, way: Chain, first: Chain) -> bool:
        """A program that is started anew, `run(cfg)` once more, sets up by the flag as it is then."""
        parted = next(
            (
                i
                for i, (one, other) in enumerate(zip(first.steps, way.steps, strict=False))
                if one.node is not other.node
            ),
            None,
        )
        return parted is not None and any(self._between(first, setup, way, parted) for setup in self.setups)

    def _between(self, first: Chain, setup: Chain, way: Chain, parted: int) -> bool:
        if len(setup.steps) <= parted or any(
            one.node is not other.node for one, other in zip(setup.steps[:parted], way.steps[:parted], strict=True)
        ):
            return False
        one, other, last = (chain.steps[parted] for chain in (first, setup, way))
        start, call, end = (step.node for step in (one, other, last))
        if other.function is not last.function or not may_follow(one.module, one.node, other.node):
            return False
        if other.node is last.node:  # both below one call, which is made once the value is given
            between = _below(way.part(parted), setup.part(parted))
        else:
            between = _first(call, end) and (_first(start, call) or _first(end, start))  # or in the next turn of a loop
        if not between:
            return False
        rest = atoms(self.given(setup)) - atoms(self.given(way))
        return all(self.asks.search(atom) for atom in rest)


def _read(switch: ast.expr) -> Iterator[tuple[str, Flag]]:
    """The flags that a switch reads, but for what a scaler is asked."""
    node = switch
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name == "is_enabled":
            return
        key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name == "get" and isinstance(node.func, ast.Attribute) and isinstance(key, str):
            yield syntax.text(node), (_whole(node.func.value), key)
    elif isinstance(node, ast.Name):
        yield node.id, (None, node.id)
    elif isinstance(node, ast.Attribute):
        yield syntax.text(node), (node.value, node.attr)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        yield syntax.text(node), (_whole(node.value), node.slice.value)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _read(child)


def _stores(side: Side, module: Module, place: ast.Call, flag: Flag) -> Iterator[Place]:
    """Where a flag is given a value, or taken away."""
    holder, key = flag
    scope = module.scope_of(place)
    if holder is None:
        owner = scope.binder(key)
        bound = owner.bindings.get(key, []) if owner is not None else []
        stmts = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)
        yield from ((module, b) for b in bound if isinstance(b, stmts) and owner is not None and owner.module is module)
        return
    mine = _objects(side, scope, holder)
    for other in side.modules:
        for node, theirs in _written(other, key):
            there = other.scope_of(node)
            alike = syntax.text(theirs) == syntax.text(holder) and _one_name(scope, there, theirs)
            if alike or not mine.isdisjoint(_objects(side, there, theirs)):
                yield other, node


def _objects(side: Side, scope: Scope, expr: ast.expr) -> frozenset[Identity]:
    """Which objects an expression may be: of a mapping that is written out, this, and none of those that it holds."""
    found = side.values.origins(scope, expr)
    if not any(o.kind == "literal" for o in found):
        return identities(side.values, scope, expr)
    return frozenset((o.node, o.path, o.module) for o in found if o.kind not in ("constant", "unknown"))


def _one_name(scope: object, there: object, holder: ast.expr) -> bool:
    """Whether a name is the same variable in two scopes: of one function, or `self` of one class."""
    root = holder
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    one, two = (s.binder(root.id) for s in (scope, there))  # type: ignore[attr-defined]
    if one is None or one is two:
        return one is two
    owners = [s.function.owner if s.function is not None else None for s in (one, two) if s is not None]
    return root.id == "self" and len(owners) == 2 and owners[0] is not None and owners[0] is owners[1]


@kept
def _written(module: Module, key: str) -> list[tuple[ast.expr, ast.expr]]:
    """Where a file writes a field or an entry of a name, with whose."""
    return list(_writes(module, key)) if key in module.words else []


def _writes(module: Module, key: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in syntax.walk(module.tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            named = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
            if named == key:
                yield node, _whole(node.value)
        elif isinstance(node, ast.Call):
            constants = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and key in constants:
                yield node, node.args[0]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in (
                "update",
                "pop",
                "setdefault",
                "__setattr__",
            ):
                entries = [
                    k.value for a in node.args if isinstance(a, ast.Dict) for k in a.keys if isinstance(k, ast.Constant)
                ]
                if key in [*constants[:1], *entries, *(k.arg for k in node.keywords)]:
                    yield node, _whole(node.func.value)


def _whole(expr: ast.expr) -> ast.expr:
    """`args` of `vars(args)` and of `args.__dict__`."""
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "vars" and expr.args:
        return expr.args[0]
    return expr.value if isinstance(expr, ast.Attribute) and expr.attr == "__dict__" else expr


def _before(both: Mixed, module: Module, node: ast.AST) -> Place | None:
    """A place of the program after as it stood before; None for one that is new."""
    change = both.review.changes.get(module.path)
    if change is None:
        return module, node
    stmt = change.was(module.statement(node))
    return (change.before, stmt) if stmt is not None else None


def _below(chain: Chain, setup: Chain) -> bool:
    """Whether a way comes to its end below the set-up, and not only in the next turn of a loop around both, which sets up
    again."""
    return any(may and _first(one, other) for may, one, other in _parting(setup, chain))


def _first(one: ast.AST, other: ast.AST) -> bool:
    """Whether a place stands above another, or in one expression is evaluated first: `Trainer(cfg)` of `Trainer(cfg).fit()`."""
    (start, end), (later, last) = ((n.lineno, (n.end_lineno, n.end_col_offset)) for n in (one, other))  # type: ignore[attr-defined]
    return bool(start < later or end < last)


def _follows(chain: Chain, first: Chain) -> bool:
    return any(may for may, _, _ in _parting(first, chain))


def _parting(first: Chain, second: Chain) -> Iterator[tuple[bool, ast.AST, ast.AST]]:
    """Where two ways part, in one function: whether the second may go on once the first has come back."""
    for one, other in zip(first.steps, second.steps, strict=False):
        if one.function is not other.function or one.module is not other.module:
            return
        if one.node is not other.node:
            yield may_follow(one.module, one.node, other.node), one.node, other.node
            return
