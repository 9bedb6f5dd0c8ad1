"""Where the trail of a name or a field ends: what it was given on a way, if that is just one thing, and how it is called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.accessors import is_getter
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import Path
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chain, Chains
from amp_migrate.audit.ways.formulas import Formula
from amp_migrate.audit.ways.given_above import constant_above
from amp_migrate.audit.ways.installed import beside_import, caught, of_apex, tells

DEPTH = 8


@dataclass
class Place:
    """Where an expression is read: its scope, and what the parameters there were filled with, if the way tells."""

    scope: Scope
    filled: Mapping[str, tuple[ast.expr, Place]] = field(default_factory=dict)
    chain: Chain | None = None  # the way on which it is read
    formulas: dict[tuple[ast.expr, int, frozenset[ast.expr]], Formula] = field(default_factory=dict, compare=False)


class Trails:
    """Answers for one state of a program."""

    def __init__(self, values: Values, chains: Chains, on_the_way: Callable[[Scope, Chain | None], Place]) -> None:
        self.program = values.program
        self.values = values
        self._chains = chains
        self._on_the_way = on_the_way

    @kept
    def anywhere(self, scope: Scope) -> Place:
        """A scope on whatever way."""
        return Place(scope)

    def value(self, expr: ast.expr, place: Place) -> tuple[ast.expr, Place] | None:
        """What a name or field was given, where there is just one such thing."""
        if isinstance(expr, ast.Name):
            scope = place.scope.binder(expr.id)
            if scope is None or len(scope.bindings[expr.id]) != 1:
                last = constant_above(scope, expr) if scope is place.scope else None
                return (last, place) if last is not None else None
            (node,) = scope.bindings[expr.id]
            if isinstance(node, ast.arg):
                if scope is place.scope and expr.id in place.filled:
                    return place.filled[expr.id]
                return None
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                inside = place if scope is place.scope else self.anywhere(scope)
                return (node.value, inside) if _is_switch(node.value) else None
            return None
        if isinstance(expr, ast.Attribute):
            found = self.fields(expr, place)
            if len(found) == 1 and (value := found[0][1]) is not None:
                return value, self._on_the_way(found[0][0].scope_of(value), place.chain)
            last = None if found else constant_above(place.scope, expr)
            if last is not None:
                return last, place
            return self._of_record(expr, place) if not found else None
        return None

    def _of_record(self, expr: ast.Attribute, place: Place) -> tuple[ast.expr, Place] | None:
        """What the call that makes the object of a way gives a field of it, where a constructor is made from the fields."""
        owner = self.program.is_self(place.scope, expr.value)
        if owner is None or place.chain is None or any(s.owner is None for s in self.values.stored(expr.attr)):
            return None
        made = self._chains.making(place.chain, owner)
        if made is None:
            return None
        _, module, call = made
        value = self.values.records.of_call(module, call, expr.attr)
        if value is None or not _is_switch(value):
            return None
        return value, self._on_the_way(module.scope_of(call), place.chain)

    def fields(self, expr: ast.Attribute, place: Place) -> list[tuple[Module, ast.expr | None]]:
        """What a field of `self` is given, wherever that is, with Apex there; None for what is worth nothing in the place of its
        name."""
        owner = self.program.is_self(place.scope, expr.value)
        if owner is None:
            return []
        family = self.program.family(owner)
        given = [
            (
                s.scope.module,
                s.target,
                one if (one := _one_of(s.value, s.item)) is not None and _is_switch(one) else None,
            )
            for s in self.values.stored(expr.attr)
            if s.target is not None and s.owner in family
        ]
        there = [g for g in given if not (beside_import(*g[:2]) and caught(*g[:2]))]
        return [(module, one) for module, _, one in there or given]

    def _trail(self, expr: ast.expr, place: Place) -> Iterator[tuple[ast.expr, Place]]:
        """An expression, what it was given, what that was given, ..."""
        found: tuple[ast.expr, Place] | None = (expr, place)
        for _ in range(DEPTH + 1):
            if found is None:
                return
            yield found
            found = self.value(*found)

    def end(self, expr: ast.expr, place: Place) -> tuple[ast.expr, Place]:
        """What an expression was given in the end."""
        *_, last = self._trail(expr, place)
        return last

    def unseen(self, expr: ast.expr, place: Place) -> str | None:
        """The variable, if it is one, on whose value the trail of an expression ends."""
        last, _ = self.end(expr, place)
        return last.id if isinstance(last, ast.Name) else None

    def chosen(self, expr: ast.expr, place: Place) -> tuple[ast.IfExp, Place] | None:
        """The choice between two values that an expression is."""
        return next(((e, there) for e, there in self._trail(expr, place) if isinstance(e, ast.IfExp)), None)

    def constant(self, expr: ast.expr, place: Place) -> ast.Constant | None:
        """The constant that an expression is."""
        last, _ = self.end(expr, place)
        return last if isinstance(last, ast.Constant) else None

    def constants(self, expr: ast.expr, place: Place) -> set[object] | None:
        """The constants that an expression may be, where it is nothing else."""
        if isinstance(expr, ast.Name) and expr.id in place.filled:
            return None
        if isinstance(expr, ast.Attribute) and self._option(expr, place):
            return None  # what is assigned to it somewhere is not all that it may be
        if isinstance(expr, ast.Name) and self._given_option(place.scope, expr.id):
            return None
        return self.values.constants(place.scope, expr)

    def _option(self, expr: ast.Attribute, place: Place) -> bool:
        """Whether an attribute is an option, or a field that an object keeps one in, or what it is given of one."""
        return self.program.is_self(place.scope, expr.value) is None or any(
            (isinstance(value, ast.Attribute) and self.program.is_self(module.scope_of(value), value.value) is None)
            or (isinstance(value, ast.Name) and self._given_option(module.scope_of(value), value.id))
            for module, value in self.fields(expr, place)
        )

    def _given_option(self, scope: Scope, name: str) -> bool:
        """Whether a name is a parameter that some call fills with an option."""
        found = scope.binder(name)
        if found is None or not isinstance(found.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if not any(isinstance(node, ast.arg) for node in found.bindings[name]):
            return False
        function = self.program.function_of(found.module, found.node)
        for module, call in self.program.callers(function):
            given = (self.program.arguments(function, call) or {}).get(name)
            if given is None:
                continue
            last, there = self.end(
                given, self.anywhere(module.scope_of(call))
            )  # `mode = args.mode`, and `Solver(mode)`
            if isinstance(last, ast.Attribute) and self.program.is_self(there.scope, last.value) is None:
                return True
        return False

    @kept
    def says_installed(self, scope: Scope, expr: ast.expr) -> bool:
        """Whether an expression only says that Apex is installed (runs are compared where it was), or asks a function for it."""
        asked = _asked(self.program, scope, expr)
        return all(map(self._answers, asked)) if asked else self._read_so(scope, expr)

    def _read_so(self, scope: Scope, expr: ast.expr) -> bool:
        """Whether a name or a field is bound where Apex is imported."""
        name = self.program.dotted(scope, expr)
        if name is not None and (name == "apex" or name.startswith("apex.")):
            return True
        if isinstance(expr, ast.Attribute) and self._says_so(scope, expr):
            return True
        own = scope.binder(expr.id) if isinstance(expr, ast.Name) else None
        places = [(own, expr.id)] if isinstance(expr, ast.Name) and own is not None else []
        for found, bound in (*places, *((home.top, name) for home, name in self.program.way(scope, expr))):
            nodes = found.bindings.get(bound, [])
            guarded = [n for n in nodes if beside_import(found.module, n)]
            others = [n for n in nodes if n not in guarded]
            if (
                guarded
                and tells(guarded)
                and all(isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant) for n in others)
            ):
                return len(others) < 2
        return isinstance(expr, ast.Name) and own is not None and of_apex(expr.id)

    def _answers(self, function: Function) -> bool:
        """Whether a function does nothing but say so: `return amp is not None`."""
        stmts = [s for s in function.node.body if not isinstance(s, ast.Expr) or not isinstance(s.value, ast.Constant)]
        value = stmts[0].value if len(stmts) == 1 and isinstance(stmts[0], ast.Return) else None
        if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.IsNot) and len(value.ops) == 1:
            value = value.left if syntax.text(value.comparators[0]) == "None" else None
        return isinstance(value, (ast.Name, ast.Attribute)) and self._read_so(function.scope, value)

    def _says_so(self, scope: Scope, expr: ast.Attribute) -> bool:
        """Whether a field of `self` is only assigned in a `try` that imports Apex, and is true where that came."""
        given = self.fields(expr, self.anywhere(scope))
        if not given or any(v is None or not beside_import(m, v) for m, v in given):
            return False
        return any(isinstance(v, ast.Constant) and v.value is True and not caught(m, v) for m, v in given)

    def text(self, expr: ast.expr, place: Place, depth: int = 0) -> str:
        """The name of an atom: a flag by its last name, whatever object holds it."""
        if isinstance(expr, ast.Attribute):
            return f".{expr.attr}"
        if isinstance(expr, ast.Name):
            if expr.id in place.filled:
                value, there = place.filled[expr.id]
                if isinstance(value, (ast.Name, ast.Attribute)):
                    return self.text(value, there, depth + 1)
            # A constant only where the parameter keeps it: `if level is None: level = config.level`.
            found = self.value(expr, place) if depth < DEPTH else None  # `level = level`
            if found is not None and isinstance(found[0], (ast.Name, ast.Attribute, ast.Constant)):
                return self.text(found[0], found[1], depth + 1)
            return expr.id if expr.id == "__name__" else f".{expr.id}"
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
            return f".{expr.slice.value!s}"
        return syntax.text(expr)


def _one_of(value: ast.expr | None, item: Path) -> ast.expr | None:
    """What a target is given of several values that are written out side by side: `self.a, self.b = a, b`."""
    while item and isinstance(value, (ast.Tuple, ast.List)) and isinstance(at := item[0], int) and at < len(value.elts):
        if any(isinstance(e, ast.Starred) for e in value.elts):
            return None
        value, item = value.elts[at], item[1:]
    return None if item else value


def _is_switch(value: ast.expr) -> bool:
    """Whether a value is worth being put in the place of its name."""
    return isinstance(
        value, (ast.Constant, ast.Name, ast.Attribute, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp)
    ) or (isinstance(value, ast.Call) and syntax.text(value.func) in ("bool", "getattr"))


def _asked(program: Program, scope: Scope, expr: ast.expr) -> list[Function]:
    """The functions of the program that give what an expression is: called without anything, or read as an attribute."""
    if isinstance(expr, ast.Call):
        return [] if expr.args or expr.keywords else list(program.callees(scope.module, expr))
    named = list(program.methods_named(expr.attr)) if isinstance(expr, ast.Attribute) else []
    return named if all(map(is_getter, named)) else []
