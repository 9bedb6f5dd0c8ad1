"""Options and items that were read under a test alone, and that the migration reads whatever that test says.

What a configuration file, a dict or a namespace out of sight holds differs from run to run: a run that never came to such a
read may have no such entry, and stops at it now.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.options import declared
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.mapped_options import PARSING, holds_option
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways import installed
from amp_migrate.audit.ways.within import raises_else, tests_around

# What people call what a run is told, and what makes one of a file.
_SETTINGS = re.compile(
    r"\b_?(arg|opt|option|cfg|conf|config|hparam|hp|flag|param|setting|configuration)s?\b", re.IGNORECASE
)
_LOADING = frozenset(
    "load loads safe_load full_load fromfile AttrDict EasyDict edict Namespace SimpleNamespace create".split()
)
_COPYING = frozenset("copy deepcopy dict AttrDict EasyDict edict Namespace SimpleNamespace create".split())
_DEVICES = ("device_ids", "output_device")
_ASKING = frozenset({"get", "keys", "hasattr", "getattr"})
_DEEPEST = 3  # calls
_MOST = 50  # ways through one function

Test = tuple[ast.expr, bool]
Read = ast.Attribute | ast.Subscript


def read_untested(review: Review) -> Iterator[Doubt]:
    told: set[tuple[str, str]] = set()
    for change in review.changes.values():
        under: dict[
            tuple[type, str], tuple[list[ast.expr], set[str]] | None
        ] = {}  # what is asked before a thing is read
        for stmt in statements(change.after.tree):
            if stmt in change.same:
                continue  # the program's own, of a branch that is the only one now
            reads = [n for n in syntax.own_line(stmt) if isinstance(n, (ast.Attribute, ast.Subscript))]
            for node in sorted(reads, key=lambda n: len(syntax.text(n))):  # what holds an entry first
                if (name := _read(change.after, node)) is None or (change.path, syntax.text(node)) in told:
                    continue
                if (change.path, syntax.text(node.value)) in told:
                    continue
                key = (type(node), name)
                if key not in under:
                    tests = _only_under(review, change, key)
                    under[key] = (tests, _alike(review, change, tests)) if tests is not None else None
                asked = under[key]
                if asked is None:
                    if _only_with_apex(review, change, key) and not _has(review, change.after, node, name):
                        told.add((change.path, syntax.text(node)))
                        message = (
                            f"{syntax.text(node)} was read only where Apex was installed, and is read in every run now: one "
                            "whose settings have no such entry stops here"
                        )
                        yield review.doubt(change.after, node, "AMP131", syntax.text(node), message, "review")
                    continue
                if _asks(review, change, node, asked[1]) or _has(review, change.after, node, name):
                    continue
                if _about_holder(review, change, node, asked[0]):
                    continue
                told.add((change.path, syntax.text(node)))
                message = (
                    f"{syntax.text(node)} was read only where {syntax.text(asked[0][0])}, and is read in every run now: one "
                    "that has no such entry stops here"
                )
                doubt = review.doubt(change.after, node, "AMP131", syntax.text(node), message)
                yield replace(doubt, aside=not isinstance(stmt, (ast.With, ast.AsyncWith)))


def _read(module: Module, node: ast.AST) -> str | None:
    """The name of the attribute or the key of the item that a node reads, where that is data."""
    if isinstance(node, ast.Attribute):
        name: object = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name = node.slice.value
    else:
        return None
    above = module.parents.get(node)
    called = isinstance(above, ast.Call) and above.func is node
    if any(isinstance(at, ast.keyword) and at.arg in _DEVICES for at in module.ancestors(node)):
        return None  # torch's DistributedDataParallel is told its GPU where Apex's was not
    return name if isinstance(node.ctx, ast.Load) and isinstance(name, str) and not called else None


def _entries(module: Module) -> list[Read]:
    return [*syntax.every(module.tree, ast.Attribute), *syntax.every(module.tree, ast.Subscript)]


@kept
def _reads(module: Module) -> dict[tuple[type, str], list[Read]]:
    found: dict[tuple[type, str], list[Read]] = {}
    for node in _entries(module):
        if (name := _read(module, node)) is not None:
            found.setdefault((type(node), name), []).append(node)
    return found


@kept
def _stores(module: Module) -> dict[str, list[Read]]:
    found: dict[str, list[Read]] = {}
    for node in _entries(module):
        if isinstance(node.ctx, ast.Store):
            around = module.statement(node)
            if any(syntax.text(n) == syntax.text(node) for n in syntax.own_line(around) if _read(module, n)):
                continue  # it is made of what it holds
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
            if isinstance(name, str):
                found.setdefault(name, []).append(node)
    return found


def _tests(review: Review, module: Module, node: ast.AST) -> list[Test]:
    """What a node of a function stands under, innermost first, but for whether Apex is there, whether the file runs as a script,
    and what only lets a run go on."""
    flags = mixed(review).before.installed.flags(module) if review.before.modules.get(module.path) is module else {}
    asked = [test for test in tests_around(module, node) if "__name__" not in syntax.text(test[0])]
    return [test for test in asked if installed.asks(test[0], flags) is None and not raises_else(module, *test)]


_OPPOSITES: dict[type[ast.cmpop], ast.cmpop] = {ast.NotEq: ast.Eq(), ast.IsNot: ast.Is(), ast.NotIn: ast.In()}


def _literal(test: ast.expr, came_out: bool) -> tuple[str, bool]:
    """How a test came out, in the words in which its opposite says the same."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _literal(test.operand, not came_out)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and (same := _OPPOSITES.get(type(test.ops[0]))):
        return syntax.text(ast.Compare(test.left, [same], test.comparators)), not came_out
    return syntax.text(test), came_out


class Way(NamedTuple):
    """One way to a node: the tests that it stands under, innermost first, and the function, or file, that asks them."""

    place: Function | Module
    tests: list[Test]


def _ways(review: Review, program: Program, module: Module, node: ast.AST, depth: int = 0) -> list[Way]:
    """The tests that a node stands under, or each call of its function; none where it is reached whatever they say."""
    function = module.function_around(node)
    if tests := _tests(review, module, node):
        return [Way(function or module, tests)]
    if function is None or depth >= _DEEPEST:
        return []
    found: list[Way] = []
    for caller, call in program.callers(function):
        outer = _ways(review, program, caller, call, depth + 1)
        if not outer:
            return []
        found += outer
    return found


def _only_under(review: Review, change: Change, key: tuple[type, str]) -> list[ast.expr] | None:
    """The tests under which the program read a thing, if it did so under tests alone."""
    files = [change.before] if _reads(change.before).get(key) else review.before.having(key[1])
    found: list[ast.expr] = []
    by_place: dict[Function | Module, set[frozenset[tuple[str, bool]]]] = {}
    for module in files:
        for read in _reads(module).get(key, ()):
            ways = _ways(review, review.before, module, read)
            if not ways:
                return None
            for way in ways:
                found += [test for test, _ in way.tests]
                by_place.setdefault(way.place, set()).add(frozenset(_literal(*t) for t in way.tests))
    return None if any(_in_any_case(ways) for ways in by_place.values()) else found or None


def _only_with_apex(review: Review, change: Change, key: tuple[type, str]) -> bool:
    """Whether each read of a thing stood under what is true only where Apex is there: `has_apex and config["fp16"]`."""
    reads = _reads(change.before).get(key, ())
    flags = mixed(review).before.installed.flags(change.before)
    asked = (tests_around(change.before, read) for read in reads)
    return bool(reads) and all(any(installed.asks(t, flags) is came_out for t, came_out in tests) for tests in asked)


def _in_any_case(ways: set[frozenset[tuple[str, bool]]]) -> bool:
    """Whether some of the ways that are gone under tests are gone however these come out: in both branches of one."""
    known = set(ways)
    new = known
    while new and len(known) < _MOST:
        joined = {a - {way} for a in known for way in a for b in known if b == (a - {way}) | {(way[0], not way[1])}}
        new = joined - known
        known |= new
    return frozenset() in known


def _about_holder(review: Review, change: Change, node: Read, tests: list[ast.expr]) -> bool:
    """Whether all that was asked is whether what holds an entry is there, which was read in every run besides."""
    held = node.value if isinstance(node.value, (ast.Attribute, ast.Subscript)) else None
    name = _read(change.after, held) if held is not None else None
    if held is None or name is None or _only_under(review, change, (type(held), name)) is not None:
        return False
    return all(_words(test) <= _words(node.value) | _ASKING for test in tests)


def _asks(review: Review, change: Change, node: Read, known: set[str]) -> bool:
    """Whether a read stands under a test that asks for the same as one before, or for what the migration put in its place."""
    return any(word in known for test in _on_the_way(review, change.after, node) for word in _words(test))


def _on_the_way(review: Review, module: Module, node: ast.AST, depth: int = 0) -> Iterator[ast.expr]:
    """The tests that a node stands under now, and those that the calls of its function do."""
    yield from (test for test, _ in _tests(review, module, node))
    function = module.function_around(node)
    for caller, call in review.after.callers(function) if function is not None and depth < _DEEPEST else ():
        yield from _on_the_way(review, caller, call, depth + 1)


def _alike(review: Review, change: Change, tests: list[ast.expr]) -> set[str]:
    """The words of tests that ask for the same as those before, or for what the migration put in their place."""
    known = {word for test in tests for word in _words(test)} | {"is_enabled"}
    given = _given(change.before)
    for _ in range(2):  # a flag, and what it is computed from, also where a function is handed it
        known |= {word for name in known for value in given.get(name, ()) for word in _words(value)}
        known |= {word for test in tests for value in _handed(review.before, test, known) for word in _words(value)}
    return known | {name for s in change.added if isinstance(s, ast.Assign) for t in s.targets for name in _words(t)}


@kept
def _given(module: Module) -> dict[str, list[ast.expr]]:
    """What assignments of a file give the names and attributes of each name."""
    found: dict[str, list[ast.expr]] = {}
    for stmt in syntax.every(module.tree, ast.Assign):
        for target in stmt.targets:
            found.setdefault(syntax.last(target), []).append(stmt.value)
    return found


def _handed(program: Program, test: ast.expr, known: set[str]) -> Iterator[ast.expr]:
    """What calls of the function that asks a test give the parameters that have one of the names that are known."""
    for module in program.modules.values():
        function = module.function_around(test) if test in module.parents else None
        own = known & {p.arg for p in function.parameters} if function is not None else set[str]()
        if function is not None and own:
            for _, call in program.callers(function):
                given = program.arguments(function, call) or {}
                yield from (given[name] for name in own if name in given)


def _words(expr: ast.expr) -> set[str]:
    found = {n.id for n in syntax.every(expr, ast.Name)} | {n.attr for n in syntax.every(expr, ast.Attribute)}
    found |= {n.value for n in syntax.every(expr, ast.Constant) if isinstance(n.value, str)}
    holders = {n.value.id for n in syntax.every(expr, ast.Attribute) if isinstance(n.value, ast.Name)}
    return found - holders


def _has(review: Review, module: Module, node: Read, name: str) -> bool:
    """Whether what a thing is read of is seen to have it in every run."""
    scope, values, program = module.scope_of(node), review.values_after, review.after
    if program.is_self(scope, node.value) is not None or program.dotted(scope, node.value) is not None:
        return True
    origins = values.origins(scope, node.value)
    if not _SETTINGS.search(syntax.text(node.value)) and not any(_is_loaded(origin) for origin in origins):
        return True  # an object that is more than what somebody wrote down
    for other in program.having(name):
        stores = (s for s in _stores(other).get(name, ()) if program.is_self(other.scope_of(s), s.value) is None)
        if any(not _tests(review, other, store) for store in stores):
            return True
    return _all_have(review, values, module, node.value, node, name)


def _all_have(
    review: Review,
    values: Values,
    module: Module,
    held: ast.expr,
    node: Read,
    name: str,
    asked: frozenset[ast.AST] = frozenset(),
) -> bool:
    origins = values.origins(module.scope_of(held), held)
    return bool(origins) and all(_one_has(review, values, origin, node, name, asked) for origin in origins)


def _copied(made: ast.AST) -> Iterator[ast.expr]:
    """What a call makes a copy of, with all that it holds: `copy(args)`, `edict(vars(args))`, `Namespace(**vars(args))`."""
    if isinstance(made, ast.Call) and syntax.last(made.func) in _COPYING:
        given = [*made.args[:1], *(k.value for k in made.keywords if k.arg is None)]
        for at in given:
            inner = isinstance(at, ast.Call) and syntax.last(at.func) == "vars" and at.args
            held = at.args[0] if isinstance(at, ast.Call) and inner else at
            yield held.value if isinstance(held, ast.Attribute) and held.attr == "__dict__" else held


def _is_loaded(origin: Origin) -> bool:
    return isinstance(origin.node, ast.Call) and syntax.last(origin.node.func) in _LOADING


def _one_has(review: Review, values: Values, origin: Origin, node: Read, name: str, asked: frozenset[ast.AST]) -> bool:
    made = origin.node
    if made in asked:
        return True  # what is copied onto its own name has what it had
    if any(_all_have(review, values, origin.module, of, node, name, asked | {made}) for of in _copied(made)):
        return True
    if isinstance(node, ast.Subscript):
        written = isinstance(made, ast.Dict) and any(isinstance(k, ast.Constant) and k.value == name for k in made.keys)
        return written or holds_option(review.after, values, origin, node, name)
    if origin.kind in ("class", "function", "constant"):
        return True
    given = [review.after.is_self(m.scope_of(at), at.value) for m, at, _, _ in values.fields(name)]
    for cls in values.made(origin):
        family = review.after.family(cls)
        return any(name in c.scope.bindings or name in c.methods or c in given for c in family)
    if origin.kind == "parameter" and any(given):
        return True
    if any(isinstance(n, ast.Call) and _made_with(n, name) for n in (made, *_namespaces(review.after))):
        return True
    if isinstance(made, ast.Call) and syntax.last(made.func) in PARSING:
        return True  # a command line has its options in every run; whether it declares this one is asked elsewhere
    return origin.kind == "parameter" and (name in declared(review.after) or _is_field(review.after, name))


def _made_with(call: ast.Call, name: str) -> bool:
    return any(k.arg == name for k in call.keywords)


@kept
def _namespaces(program: Program) -> list[ast.Call]:
    """The calls that make a namespace of what they are given."""
    names = ("Namespace", "SimpleNamespace")
    return [call for name in names for m in program.having(name) for call in m.calls_named.get(name, ())]


@kept
def _fields(module: Module) -> set[str]:
    """The names that classes of a file give a value, or a type, in their bodies."""
    return {name for cls in module.classes for name in cls.scope.bindings}


def _is_field(program: Program, name: str) -> bool:
    return any(name in _fields(module) for module in program.having(name))
