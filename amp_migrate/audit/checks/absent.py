"""A parameter that a call leaves None is not read as an object: `scaler.is_enabled()` where `scaler` may be None.

Proved, for each parameter of which a changed function newly reads an attribute: no call in sight that gives None for it,
or leaves it to a default of None, comes to such a read on a path that the function's tests allow; nor does a function that
hands its own None on.

Not claimed: functions that nothing in sight calls, attributes that hold None, arguments in `*args` and `**kwargs`, and calls
with which the function failed before the migration in the same way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.paths.facts import Facts, constant, learned, outcome
from amp_migrate.audit.paths.flow import Graph, Node, TooManyPaths, walk
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.syntax import own
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.passing import Passing, constants_given, fits
from amp_migrate.audit.unset.places import Body
from amp_migrate.audit.values.values import Values
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = (
    Code(
        code="AMP136",
        title="None where the migration reads an object",
        construct="a parameter",
        apex="A function that is given no `amp`, or None for it, asks `if amp is not None`.",
        native="A scaler that may be left out has to be asked for in the same way before it is asked anything else.",
        why="The call that leaves it out would stop with an AttributeError of NoneType.",
    ),
)

DEPTH = 4  # functions that hand a None on to each other


def check(review: Review) -> Iterable[Doubt]:
    after, before = _Nones(review.values_after), review.once(_Nones, lambda: _Nones(review.values_before))
    for change in review.changes.values():
        for function in change.after.functions:
            old = change.function_before(function)
            for name in _newly_read(change, function, old):
                for call in after.fatal_calls(function, name):
                    if old is not None and any(before.fatal_calls(old, p.arg, call) for p in old.parameters):
                        continue  # it stopped there before, too
                    message = (
                        f"{syntax.text(call.read)} is read here, and {call.module.path}:{review.line(call.module, call.node)} calls "
                        f"{function.name}() {'with None for' if call.given else 'without'} {name}"
                    )
                    yield review.doubt(call.where, call.read, "AMP136", name, message)
                    break


def _newly_read(change: Change, function: Function, old: Function | None) -> Iterator[str]:
    """New parameters, and those of which an attribute is read in statements that the migration wrote or changed."""
    names = {p.arg for p in function.parameters}
    kept = {p.arg for p in old.parameters} if old is not None else set()
    found = names - kept if old is not None else set[str]()
    for node in own(function.node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id in names - found:
            if change.same.get(change.after.statement(node)) is None:
                found.add(node.value.id)
    yield from sorted(found)


@dataclass(frozen=True)
class _Fatal:
    """A call that leads to a read of None in the module `where`; `given`: it says None itself."""

    module: Module
    node: ast.Call
    where: Module
    read: ast.Attribute
    given: bool


class _Nones:
    """Which calls of one state of a program make a function read an attribute of None."""

    def __init__(self, values: Values) -> None:
        self.program: Program = values.program
        self.passing = Passing(values)

    def fatal_calls(self, function: Function, name: str, like: _Fatal | None = None) -> list[_Fatal]:
        """Calls that leave a parameter None and so end in a read of it; only those on the line of another, if given."""
        found: list[_Fatal] = []
        for module, call in self.program.callers(function):
            if like is not None and (module.path != like.module.path or not _same_callee(call, like.node)):
                continue
            body = Body(module, module.function_around(call))
            if function not in self.passing.callees(body, call):
                continue
            bound = self.passing.fills_self(body, call, function)
            filled = self.program.arguments(function, call, bound=bound)
            if filled is None or not fits(function, call, bound):
                continue
            value = filled.get(name) or function.defaults.get(name)
            if isinstance(value, ast.Constant) and value.value is None:
                read = self._read(function, name, self._facts(function, filled), 0)
                if read is not None:
                    found.append(_Fatal(module, call, *read, name in filled))
        return found

    def _facts(self, function: Function, filled: dict[str, ast.expr]) -> Facts:
        """What the constants among the arguments of a call, and the defaults of others, tell."""
        return frozenset(f for name, value in constants_given(function, filled) for f in constant(name, value))

    def _read(self, function: Function, name: str, facts: Facts, depth: int) -> tuple[Module, ast.Attribute] | None:
        """The first read of an attribute of a parameter that is None, here or where it is handed on."""
        reads: list[ast.Attribute] = []
        handed: list[tuple[ast.Call, Facts]] = []

        def seeing(node: Node, state: bool, known: Facts) -> Iterable[bool]:
            if (f"{name} is None", True) not in known or node.stmt is None:
                return [state]
            for head in _heads(node):
                for met, there in _evaluated(head, known):
                    if isinstance(met, ast.Attribute) and isinstance(met.value, ast.Name) and met.value.id == name:
                        reads.append(met)
                        return []
                    if isinstance(met, ast.Call):
                        handed.append((met, there))
            return [state]

        try:
            met = walk(Graph(function.node.body), [(facts, True)], lambda node, state: [state], seeing=seeing)
        except TooManyPaths:
            return None
        if met.blunt:
            return None
        if not reads:
            return self._further(function, name, handed, depth)
        return function.module, min(reads, key=lambda n: (n.lineno, n.col_offset))

    def _further(
        self, function: Function, name: str, handed: list[tuple[ast.Call, Facts]], depth: int
    ) -> tuple[Module, ast.Attribute] | None:
        if depth >= DEPTH:
            return None
        body = Body(function.module, function)
        for call, known in handed:
            if not any(isinstance(a, ast.Name) and a.id == name for a in syntax.given(call)):
                continue
            for callee in self.passing.callees(body, call):
                bound = self.passing.fills_self(body, call, callee)
                filled = self.program.arguments(callee, call, bound=bound)
                if filled is None or not fits(callee, call, bound):
                    continue
                constants = {p: _constant(v, known) for p, v in filled.items()}
                inner = [p for p, v in filled.items() if isinstance(v, ast.Name) and v.id == name]
                facts = self._facts(callee, {p: c for p, v in filled.items() if (c := constants[p] or v) is not None})
                for parameter in inner:
                    read = self._read(callee, parameter, facts, depth + 1)
                    if read is not None:
                        return read
        return None


def _constant(value: ast.expr, known: Facts) -> ast.Constant | None:
    """None, for a name that is known to be it."""
    if isinstance(value, ast.Name) and (f"{value.id} is None", True) in known:
        return ast.Constant(None)
    return None


def _same_callee(call: ast.Call, other: ast.Call) -> bool:
    return syntax.text(call.func) == syntax.text(other.func) and abs(call.lineno - other.lineno) < 40


def _heads(node: Node) -> list[ast.AST]:
    """The expressions that a step of a body evaluates."""
    stmt = node.stmt
    if node.kind == "leave" or stmt is None:
        return []
    if isinstance(stmt, (ast.If, ast.While)):
        return [stmt.test]
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        return [stmt.iter]
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return [i.context_expr for i in stmt.items]
    if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.Match)):
        return []
    return [stmt]


def _evaluated(node: ast.AST, known: Facts) -> Iterator[tuple[ast.AST, Facts]]:
    """What an expression evaluates, given how tests come out: `x and x.a` reads nothing of an `x` that is None."""
    if isinstance(node, ast.BoolOp):
        wanted = isinstance(node.op, ast.And)
        for value in node.values:
            yield from _evaluated(value, known)
            if outcome(value, known) is (not wanted):
                return
            known = learned(value, wanted, known) or known
        return
    if isinstance(node, ast.IfExp):
        yield from _evaluated(node.test, known)
        came_out = outcome(node.test, known)
        for branch, holds in ((node.body, True), (node.orelse, False)):
            if came_out is None or came_out is holds:
                yield from _evaluated(branch, learned(node.test, holds, known) or known)
        return
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return  # may not run, or run with other names
    for child in syntax.children(node):
        yield from _evaluated(child, known)
    yield node, known
