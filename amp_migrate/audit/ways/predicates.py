"""Conditions as formulas over what a run is started with, so that two switches can be compared.

An atom is a flag by its last name (`args.fp16`, `self.args.fp16` and `opt.fp16` are one): flags are told apart less than
they could be, so that two switches are rather taken for one than for two.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.torch_version import by_version
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chain, Chains, Step
from amp_migrate.audit.ways.choices import chosen_to_be, given_at_all, said_outright
from amp_migrate.audit.ways.devices import of_type
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, negation
from amp_migrate.audit.ways.given_later import at_first, last_given, of_its_class
from amp_migrate.audit.ways.installed import beside_import, import_or_none, of_apex, on_or_off, tells
from amp_migrate.audit.ways.off_instead import GRAD_SCALER, given_or_off
from amp_migrate.audit.ways.options import taken_back
from amp_migrate.audit.ways.processes import may_come_before
from amp_migrate.audit.ways.texts import in_format
from amp_migrate.audit.ways.trails import DEPTH, Place, Trails
from amp_migrate.audit.ways.within import Tests, raises_else, turns


class Predicates:
    """Formulas for one state of a program."""

    def __init__(self, program: Program, values: Values, chains: Chains) -> None:
        self.program = program
        self.values = values
        self.chains = chains
        self.trails = Trails(values, chains, self._on_the_way)
        self._making: frozenset[ast.expr] = frozenset()  # scalers of which it is being asked how they came to be
        self._made_on: dict[tuple[ast.expr, ast.expr, int, Chain | None, frozenset[ast.expr]], Formula] = {}
        self._given: dict[tuple[Chain, bool, bool, frozenset[ast.expr]], Formula] = {}
        self._taken_back: dict[str, list[Formula]] = {}  # by option
        self._unfinished = 0  # options of which that is being found out

    @kept
    def places(self, chain: Chain) -> list[Place]:
        """The scopes along a way, each with its parameters as the call before it filled them."""
        found = list[Place]()
        before: tuple[Step, Place] | None = None
        for step in chain.steps:
            scope = step.module.scope_of(step.node)
            filled: dict[str, tuple[ast.expr, Place]] = {}
            if before is not None and step.called is not None and isinstance(before[0].node, ast.Call):
                arguments = self.program.arguments(step.called, before[0].node)
                if arguments is not None:
                    outside = self.trails.anywhere(step.called.scope.parent or scope)
                    filled = {name: (default, outside) for name, default in step.called.defaults.items()}
                    filled |= {name: (expr, before[1]) for name, expr in arguments.items()}
            place = Place(scope, filled, chain)
            found.append(place)
            before = (step, place)
        return found

    def given(self, chain: Chain, loops: bool = True, stops: bool = True) -> Formula:
        """The condition under which a way is gone; without `loops`: sooner or later, in whichever turn of a loop; without
        `stops`: by a run that is not stopped."""
        key = (chain, loops, stops, self._making)
        if key in self._given:
            return self._given[key]
        parts: list[Formula] = []
        called = [step.function for step in chain.steps[1:]]
        for step, function, on, place in zip(
            chain.steps, [*called, None], self.chains.called_on(chain), self.places(chain), strict=True
        ):
            counted = turns(step.module, step.node) if not loops else set()
            tests = [*self.chains.tests(step.module, step.node), *self.chains.held(step.module, step.node, on)]
            if function is not None and step.function is not None and function.scope.parent is step.function.scope:
                tests += self.chains.tests(step.module, function.node)  # a closure that is defined under a test
            parts += [
                self.under([(test, came)], place)
                for test, came in tests
                if (stops or not raises_else(step.module, test, came))
                and counted.isdisjoint(n.id for n in syntax.every(test, ast.Name))
            ]
        return self._given.setdefault(key, conjunction(parts))

    def made(self, chain: Chain) -> list[Formula]:
        """What must have come out how for the objects to be there by whose methods a way comes: where they are made, and in it."""
        functions = [f for step in chain.steps if (f := step.function) is not None and f.name != "__init__"]
        owners = dict.fromkeys(f.owner for f in functions if f.owner is not None)
        raising = [
            negation(self.of(stmt.test, self.trails.anywhere(makers[0].scope)))
            for owner in owners
            if len(makers := self.program.constructors(owner)) == 1
            for stmt in makers[0].node.body
            if isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Raise) and not stmt.orelse
        ]
        made = filter(None, (self.chains.making(chain, owner) for owner in owners))
        under = ((self.chains.tests(m, call), self._on_the_way(m.scope_of(call), chain)) for _, m, call in made)
        return [*raising, *itertools.starmap(self.under, under)]

    def under(self, tests: Tests, place: Place, depth: int = 0) -> Formula:
        """That tests came out as they say."""
        found = ((self.of(test, place, depth), came) for test, came in tests)
        return conjunction(formula if came else negation(formula) for formula, came in found)

    def of(self, expr: ast.expr, place: Place, depth: int = 0) -> Formula:
        if isinstance(expr, ast.Constant):
            return bool(expr.value)
        if self._unfinished:  # what is found while something else is being found out may lack that
            return self._of(expr, place, depth)
        key = (expr, depth, self._making)
        if key not in place.formulas:
            place.formulas[key] = self._of(expr, place, depth)
        return place.formulas[key]

    def _of(self, expr: ast.expr, place: Place, depth: int) -> Formula:
        told = by_version(place.scope.module, expr)
        if told is not None:
            return told
        if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Not):
            return negation(self.of(expr.operand, place, depth))
        if isinstance(expr, ast.BoolOp):
            parts = [self.of(v, place, depth) for v in expr.values]
            return conjunction(parts) if isinstance(expr.op, ast.And) else disjunction(parts)
        if isinstance(expr, ast.IfExp):
            test = self.of(expr.test, place, depth)
            yes, no = self.of(expr.body, place, depth), self.of(expr.orelse, place, depth)
            return disjunction([conjunction([test, yes]), conjunction([negation(test), no])])
        if isinstance(expr, ast.NamedExpr):
            return self.of(expr.value, place, depth)
        if isinstance(expr, ast.Compare) and len(expr.ops) == 1:
            return self._compare(expr, place, depth)
        if isinstance(expr, ast.Call):
            return self._call(expr, place, depth)
        if isinstance(expr, (ast.Name, ast.Attribute)) and depth < DEPTH:
            imported = self._imported(expr, place, depth)
            if imported is not None:
                return imported
            if self.trails.says_installed(place.scope, expr):
                return True
            found = self.trails.value(expr, place)
            if found is not None:
                return self.of(found[0], found[1], depth + 1)
            branches = self._branches(expr, place, depth) if isinstance(expr, ast.Name) else None
            if isinstance(expr, ast.Attribute):
                branches = self._field_branches(expr, place, depth)
                branches = self._off_at_first(expr, place, depth) if branches is None else branches
            if branches is not None:
                return branches
            if isinstance(expr, ast.Attribute):
                return conjunction([self.trails.text(expr, place), *self._kept_on(expr)])
        return self.trails.text(expr, place)

    def _kept_on(self, option: ast.Attribute) -> list[Formula]:
        """What must hold for an option to be on where it is read: no test under which the program takes it back."""
        key = syntax.text(option)
        if key not in self._taken_back:
            self._taken_back[key] = []  # while it is being found out
            self._unfinished += 1
            self._taken_back[key] = [
                negation(conjunction([self.of(t, self.trails.anywhere(module.scope_of(t)), 1) for t in tests]))
                for module, tests in taken_back(self.program, self.values, self.chains, option)
            ]
            self._unfinished -= 1
        return self._taken_back[key]

    def _compare(self, expr: ast.Compare, place: Place, depth: int) -> Formula:
        op, left, right = expr.ops[0], expr.left, expr.comparators[0]
        if isinstance(left, ast.Constant) and isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            left, right = right, left
        chosen = self.trails.chosen(left, place)
        if chosen is not None and depth < DEPTH:  # ("O2" if amp else "O0") != "O0"
            choice, there = chosen
            test = self.of(choice.test, there, depth + 1)
            yes, no = (
                self._compare(ast.Compare(left=v, ops=expr.ops, comparators=[right]), there, depth + 1)
                for v in (choice.body, choice.orelse)
            )
            return disjunction([conjunction([test, yes]), conjunction([negation(test), no])])
        level = in_format(left, right)
        if level is not None and depth < DEPTH:  # f"O{level}" != "O0"
            inner, number = level
            return self._compare(ast.Compare(left=inner, ops=expr.ops, comparators=[number]), place, depth + 1)
        each = syntax.one_by_one(expr)
        if each is not expr and depth < DEPTH:
            return self.of(each, place, depth + 1)
        if depth < DEPTH and isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            known_by = (of_type, chosen_to_be, *(said_outright, given_at_all) * isinstance(op, (ast.Eq, ast.NotEq)))
            asked = next((f for k in known_by if (f := k(self, left, right, place, depth)) is not None), None)
            if asked is not None:
                return asked if isinstance(op, (ast.Eq, ast.Is)) else negation(asked)
        text, other = self.trails.text(left, place), self.trails.text(right, place)
        if "__name__" in (text, other):
            return True
        value = self.trails.constant(left, place)
        if value is not None and isinstance(right, ast.Constant) and isinstance(op, (ast.Eq, ast.NotEq)):
            return (value.value == right.value) is isinstance(op, ast.Eq)
        if value is not None and isinstance(right, ast.Constant) and isinstance(op, (ast.Is, ast.IsNot)):
            return (value.value is right.value) is isinstance(op, ast.Is)
        known = self.trails.constants(left, place)
        if known and isinstance(right, ast.Constant) and isinstance(op, (ast.Eq, ast.NotEq)):
            if right.value not in known or known == {right.value}:
                return (right.value in known) is isinstance(op, ast.Eq)
        if (
            isinstance(right, ast.Constant)
            and right.value is None
            and isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq))
        ):
            imported = self._imported(left, place, depth) if depth < DEPTH else None
            if imported is not None:
                return imported if isinstance(op, (ast.IsNot, ast.NotEq)) else negation(imported)
            if isinstance(left, (ast.Name, ast.Attribute)) and self.trails.says_installed(place.scope, left):
                return isinstance(op, (ast.IsNot, ast.NotEq))
            kept = self._kept_later(left, place, depth) if isinstance(left, ast.Attribute) and depth < DEPTH else None
            if kept is not None:
                return kept if isinstance(op, (ast.IsNot, ast.NotEq)) else negation(kept)
            return f"{text} is None" if isinstance(op, (ast.Is, ast.Eq)) else ("not", f"{text} is None")
        for negative, sign in ((ast.NotEq, "=="), (ast.IsNot, "is"), (ast.NotIn, "in")):
            if isinstance(op, negative):
                return ("not", f"{text} {sign} {other}")
        signs = {ast.Eq: "==", ast.Is: "is", ast.In: "in", ast.Gt: ">", ast.Lt: "<", ast.GtE: ">=", ast.LtE: "<="}
        return f"{text} {signs[type(op)]} {other}"

    def _call(self, expr: ast.Call, place: Place, depth: int) -> Formula:
        name = syntax.text(expr.func)
        if name == "bool" and len(expr.args) == 1:
            return self.of(expr.args[0], place, depth)
        if name == "getattr" and len(expr.args) >= 2 and isinstance(expr.args[1], ast.Constant):
            return f".{expr.args[1].value!s}"
        if isinstance(expr.func, ast.Attribute) and expr.func.attr == "is_enabled" and depth < DEPTH:
            return self.scaler_on(expr.func.value, place, depth)
        if name.endswith("cuda.is_available") or of_apex(name) or self.trails.says_installed(place.scope, expr):
            return True
        return self.trails.text(expr, place)

    def scaler_on(self, scaler: ast.expr, place: Place, depth: int = 0) -> Formula:
        """Whether a loss scaler is enabled: as it was made; of several, by which of the ways one of them was made before."""
        chain, (scaler, place) = place.chain, self.trails.end(scaler, place)
        if (given := given_or_off(self.program, scaler, place)) is not None:
            return self.scaler_on(*given, depth)
        if isinstance(scaler, ast.Constant):
            return False
        unknown = f"{syntax.text(scaler).split('.')[-1]}.is_enabled()"
        origins = [
            o for o in in_order(self.values.origins(place.scope, scaler)) if not isinstance(o.node, ast.Constant)
        ]
        parts: list[Formula] = []
        for origin in origins:
            maker = self.values.maker(origin)
            if maker not in GRAD_SCALER or not isinstance(origin.node, ast.Call):
                return unknown
            enabled = argument(origin.node, "enabled", GRAD_SCALER[maker]) or ast.Constant(True)
            if len(origins) == 1:
                parts.append(self.of(enabled, self._on_the_way(origin.module.scope_of(origin.node), chain), depth + 1))
            elif not isinstance(enabled, ast.Constant) or enabled.value:
                parts.append(self._made(origin.module, origin.node, enabled, depth, chain))
        return disjunction(parts) if origins else unknown

    def _on_the_way(self, scope: Scope, chain: Chain | None) -> Place:
        """A scope as a way comes by it, with what the call before filled its parameters with, or as a constructor was run for
        the object by whose methods the way comes; else on whatever way."""
        if chain is None:
            return self.trails.anywhere(scope)
        came_by = next((place for place in self.places(chain) if place.scope is scope), None)
        return came_by or self._constructing(scope, chain) or self.trails.anywhere(scope)

    @kept
    def _constructing(self, scope: Scope, chain: Chain) -> Place | None:
        """The constructor whose scope it is, with what the one call that makes the object of a way fills its parameters with."""
        if not isinstance(scope.node, ast.FunctionDef) or scope.node.name != "__init__":
            return None
        function = self.program.function_of(scope.module, scope.node)
        making = self.chains.making(chain, function.owner) if function.owner is not None else None
        if making is None:
            return None
        at, module, call = making
        if not any(made is call for _, made in self.program.callers(function)):
            return None  # no way to the constructor comes by it, either: a class out of a table
        arguments = self.program.arguments(function, call)
        if arguments is None:
            return None
        step, outside = chain.steps[at], self.trails.anywhere(scope.parent or scope)
        here = module is step.module and module.function_around(call) is step.function
        caller = self.places(chain)[at] if here else self.trails.anywhere(module.scope_of(call))
        filled = {name: (default, outside) for name, default in function.defaults.items()}
        return Place(scope, filled | {name: (expr, caller) for name, expr in arguments.items()}, chain)

    def _made(self, module: Module, call: ast.expr, enabled: ast.expr, depth: int, chain: Chain | None) -> Formula:
        """Whether a way was gone before another, on which a scaler is made that is on, or a field given something true."""
        if call in self._making:
            return False  # no run comes there for the first time through itself
        key = (call, enabled, depth, chain, self._making)
        if key in self._made_on:
            return self._made_on[key]
        self._making |= {call}
        ways = self.chains.to(module, call) or (Chain((Step(module, module.function_around(call), call),)),)
        made = [
            conjunction([self.given(way), self.of(enabled, self.places(way)[-1], depth + 1)])
            for way in ways
            if chain is None or may_come_before(self.chains, way, chain)
        ]
        self._making -= {call}
        return self._made_on.setdefault(key, disjunction(made))

    def _off_at_first(self, expr: ast.Attribute, place: Place, depth: int) -> Formula | None:
        """`self.mixed = False` of a constructor, `self.mixed = x` of other methods: on once one of them ran with it."""
        first, later = at_first(self.trails, expr, place)
        if first is None or first.value is not False or any(v is None for _, v in later):
            return None
        if len(later) > 1 and (last := last_given(self.program, expr, place)) is not None:
            return self.of(last[1], self._on_the_way(last[0], place.chain), depth + 1)
        own = [g for g in later if of_its_class(self.program, self.chains, g, place.chain)]
        return disjunction([self._made(m, v, v, depth, place.chain) for m, v in own if v is not None])

    def _kept_later(self, expr: ast.Attribute, place: Place, depth: int) -> Formula | None:
        """`self.amp = None` of a constructor, `self.amp = amp` of another method: Apex once that ran."""
        first, later = at_first(self.trails, expr, place)
        module, value = later[0] if len(later) == 1 else (None, None)
        if first is None or first.value is not None or module is None or value is None:
            given = self.trails.fields(expr, place)
            whole = given and all(v is not None and on_or_off(self.program, m, v) is not None for m, v in given)
            bools = any(isinstance(v, ast.Constant) and v.value is not None for _, v in given)
            return self._field_branches(expr, place, depth) if whole and not bools else None
        apex = (self.program.dotted(module.scope_of(value), value) or "").startswith("apex")
        return self._made(module, value, ast.Constant(True), depth, place.chain) if apex else None

    def _branches(self, expr: ast.Name, place: Place, depth: int) -> Formula | None:
        """`fp16 = False` first, `if x: fp16 = True` later: the conditions under which it is on."""
        scope = place.scope.binder(expr.id) if depth <= 3 else None
        if scope is None or len(scope.bindings[expr.id]) > 4:
            return None
        beside = [n for n in scope.bindings[expr.id] if beside_import(scope.module, n)]
        bindings = [n for n in scope.bindings[expr.id] if n not in beside or not tells(beside)]
        given = [(n, n.value) for n in bindings if isinstance(n, ast.Assign) and syntax.gives_whole(n)]
        if len(given) < len(bindings):
            return None
        inside = place if scope is place.scope else self.trails.anywhere(scope)
        return self._switched(scope.module, given, inside, depth)

    def _imported(self, expr: ast.expr, place: Place, depth: int) -> Formula | None:
        """`if fp16: from apex import amp`, else `amp = None`: the conditions under which a name is the module, also under that
        of a parameter which is given it."""
        for _ in range(DEPTH):
            if not isinstance(expr, ast.Name) or expr.id not in place.filled:
                break
            if len(place.scope.bindings.get(expr.id, ())) != 1:
                return None
            expr, place = place.filled[expr.id]
        scope = place.scope.binder(expr.id) if isinstance(expr, ast.Name) else None
        if scope is None or not isinstance(expr, ast.Name):
            return None
        node = import_or_none(scope, expr.id)
        if node is None:
            return None
        inside = place if scope is place.scope else self.trails.anywhere(scope)
        return self.under(self.chains.tests(scope.module, node), inside, depth + 1)

    def _field_branches(self, expr: ast.Attribute, place: Place, depth: int) -> Formula | None:
        """The same of a field of the object, where one method gives it all of its values."""
        found = self.trails.fields(expr, place) if depth <= 3 else []
        given = [(m, m.statement(v), v) for m, v in found if v is not None]
        scopes = [m.scope_of(v) for m, _, v in given]
        if not 1 < len(given) == len(found) <= 4 or any(s is not scopes[0] for s in scopes):
            return None
        given.sort(key=lambda g: getattr(g[1], "lineno", 0))
        return self._switched(given[0][0], [g[1:] for g in given], self.trails.anywhere(scopes[0]), depth)

    def _switched(
        self, module: Module, given: Sequence[tuple[ast.AST, ast.expr]], place: Place, depth: int
    ) -> Formula | None:
        on: list[Formula] = []
        first: Formula = False
        for i, (node, value) in enumerate(given):
            holds = on_or_off(self.program, module, value)
            if holds is None:
                return None
            tests = [(t, c) for t, c in self.chains.tests(module, node) if not raises_else(module, t, c)]
            under = self.under(tests, place, depth + 1)  # who reads it later was not stopped
            if i == 0 and under is True:
                first = holds
            elif holds:
                on.append(under)
            else:
                first = conjunction([disjunction([first, *on]), negation(under)])
                on = []
        return disjunction([first, *on])
