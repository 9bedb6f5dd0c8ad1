"""What is known of tests, in the words of the caller and in those of the function that it calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from amp_migrate.audit.paths.facts import EQUALS, Facts, assigned, constant, learned, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function
from amp_migrate.audit.stepping.bodies import Bodies, Owner
from amp_migrate.audit.stepping.machine import Machine
from amp_migrate.audit.stepping.objects import Ident
from amp_migrate.audit.stepping.statements import JUMPS
from amp_migrate.audit.unset.passing import constants_given

NAME = re.compile(r"[A-Za-z_][\w.]*")


class Handed:
    """One call: `names` are the arguments as the caller writes them, to the parameters that they fill; `filled` are the
    arguments of the parameters."""

    def __init__(
        self, function: Function, names: dict[str, str], asked: set[str], filled: Mapping[str, ast.expr]
    ) -> None:
        self.function = function
        self.names = names
        self.conditions = {p: e for p, e in filled.items() if p in asked and is_condition(function, p, e)}
        self.back_names = {there: here for here, there in names.items()}
        # A parameter that is given what has its own name in the caller means the same in both.
        self.own = set(function.scope.bindings) - {there for here, there in names.items() if here == there}
        self.asked = asked  # the last of the names that the function's tests ask for
        self._there: dict[str, str | None] = {}  # a fact in the function's words; None: it is not told
        self._here: dict[str, str | None] = {}  # the reverse

    def into(self, facts: Facts) -> tuple[Facts, Facts]:
        """What the function is told, in its words, and what it is not."""
        passed: set[tuple[str, bool]] = set()
        kept: set[tuple[str, bool]] = set()
        for here, holds in facts:
            if here not in self._there:
                there = _renamed(here, self.names)
                told = names_of(there) & self.asked and (there != here or not self._local(there))
                self._there[here] = there if told else None
            known = self._there[here]
            if known is not None:
                passed.add((known, holds))
            else:
                kept.add((here, holds))
        for parameter, condition in self.conditions.items():
            if (comes_out := outcome(condition, facts)) is not None:
                passed.add((parameter, comes_out))
        return frozenset(passed), frozenset(kept)

    def constants(self, call: ast.Call, filled: Mapping[str, ast.expr]) -> Facts:
        """What the function is told by constants that a call passes, or leaves at their defaults."""
        if syntax.spreads(call):
            return frozenset()
        given = constants_given(self.function, filled)
        return frozenset(fact for name, value in given if name in self.asked for fact in constant(name, value))

    def back(self, facts: Facts) -> Facts:
        """What is known as the function ends, in the caller's words."""
        found: set[tuple[str, bool]] = set()
        for there, holds in facts:
            if there in self.conditions:
                found |= learned(self.conditions[there], holds, frozenset()) or frozenset()
                continue
            if there not in self._here:
                here = _renamed(there, self.back_names)
                self._here[there] = here if here != there or not self._local(here) else None
            known = self._here[there]
            if known is not None:
                found.add((known, holds))
        return frozenset(found)

    def _local(self, fact: str) -> bool:
        """Whether a fact is about a name that the function binds."""
        return any(w.partition(".")[0] in self.own for w in NAME.findall(fact))


class Asked:
    """What the tests of a body ask."""

    def __init__(self, bodies: Bodies, machine: Machine) -> None:
        self.bodies = bodies
        self.machine = machine
        self._words: dict[Owner, set[str]] = {}
        self._enabled: set[str] = set()
        self._asked_scalers: set[Ident] = set()

    def by(self, owner: Owner) -> set[str]:
        """The last of the names (`fp16` of `args.fp16`) in the tests that decide on actions of a body and of those it calls."""
        if owner not in self._words:
            self._words[owner] = words = set()
            jumps: set[str] = set()
            given: set[str] = set()
            for node in self.bodies.graph(owner).nodes:
                stmt = node.stmt
                if not isinstance(stmt, ast.If):
                    continue
                if any(n in self.bodies.by_node for n in syntax.walk(stmt)):
                    words |= last_names(stmt.test)
                    arms = [any(self.bodies.does(s, "backward") for s in arm) for arm in (stmt.body, stmt.orelse)]
                    inner = [s for s in syntax.walk(stmt) if isinstance(s, ast.stmt)] if arms[0] is not arms[1] else []
                    given |= {n.rpartition(".")[2] for s in inner for n in assigned(s)}
                elif any(isinstance(n, JUMPS) for n in syntax.walk(stmt)):
                    jumps |= last_names(stmt.test)
            # What a test that only jumps asks for matters where it tells which way another test went: `if skip: continue`.
            words |= jumps & given
            for action in self.bodies.calls.get(owner, ()):
                for callee in action.callees:
                    if callee in self.bodies:
                        words |= self.by(callee)
                        words |= self._in_conditions(action.node, callee)
            words |= self._switches()
        return self._words[owner]

    def _in_conditions(self, call: ast.AST, callee: Function) -> set[str]:
        """The last of the names in the conditions that a call hands to a function which asks for them."""
        filled = self.bodies.program.arguments(callee, call) if isinstance(call, ast.Call) else None
        asked = self.by(callee)
        conditions = (e for p, e in (filled or {}).items() if p in asked and is_condition(callee, p, e))
        return {name for condition in conditions for name in last_names(condition)}

    def _switches(self) -> set[str]:
        """The last of the names that decide whether a scaler is on, of all that are known by now."""
        new = self.machine.scalers - self._asked_scalers if len(self.machine.scalers) > len(self._asked_scalers) else ()
        for scaler in new:
            enabled = (e for _, e in self.machine.objects.enabled(scaler) if e is not None)
            self._enabled |= {name for e in enabled for name in last_names(e)}
        self._asked_scalers.update(new)
        return self._enabled

    def matters(self, owner: Owner) -> Callable[[Facts], Facts]:
        """Of what is known of tests, what a test that decides on something may ask again: by name."""
        asked = self.by(owner)
        known: dict[str, bool] = {}

        def matters(facts: Facts) -> Facts:
            for fact, _ in facts:
                if fact not in known:
                    known[fact] = bool(names_of(fact) & asked)
            return facts if all(known[t] for t, _ in facts) else frozenset(f for f in facts if known[f[0]])

        return matters


def is_condition(function: Function, parameter: str, given: ast.expr) -> bool:
    """Whether a parameter is what a condition of the caller gives, wherever the function asks for it."""
    boolean = isinstance(given, (ast.Compare, ast.BoolOp)) or (
        isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.Not)
    )
    return boolean and len(function.scope.bindings.get(parameter, ())) == 1


def last_names(expr: ast.expr) -> set[str]:
    """What an expression asks for: `fp16` of `args.fp16` and of `args["fp16"]`, `loss` of `isnan(loss)`."""
    if isinstance(expr, ast.Name):
        return {expr.id}
    if isinstance(expr, ast.Attribute):
        return {expr.attr}
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        return {str(expr.slice.value)}
    if isinstance(expr, ast.Call):
        inner = [*expr.args, *([expr.func.value] if isinstance(expr.func, ast.Attribute) else [])]
    else:
        inner = [n for n in syntax.children(expr) if isinstance(n, ast.expr)]
    return {name for n in inner for name in last_names(n)}


@lru_cache(maxsize=4096)
def names_of(fact: str) -> frozenset[str]:
    return frozenset(n for side in fact.split(EQUALS) for n in last_names(ast.parse(side, mode="eval").body))


def _renamed(fact: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        if old != new and old in fact:
            fact = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, fact)
    return fact
