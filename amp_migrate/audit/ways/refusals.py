"""Which combinations of its options a program takes itself: `if args.amp and args.apex_amp: raise SystemExit(...)`,
`assert not (a and b)`, `check(not (a and b), "...")` where that raises, options of one `add_mutually_exclusive_group()`.

Asked of what must have run before a way comes to its end: statements above it in the bodies that it comes by, and functions
called there. A check whose options the program sets elsewhere proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.flow import never_returns
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.side import Side
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, negation
from amp_migrate.audit.ways.trails import Place

DEPTH = 4  # functions that a check is handed on through


class Refusals:
    """Answers for one state of a program."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.predicates = side.predicates
        self.program = side.program

    @kept
    def passed(self, chain: Chain) -> Formula:
        """What holds in each run that comes to the end of a way, by the checks that it has passed."""
        parts: list[Formula] = [*self._exclusive()]
        for step, place in zip(chain.steps, self.predicates.places(chain), strict=True):
            for stmt in step.module.above(step.node):
                parts += self._told(step.module, stmt, place, DEPTH)
        return conjunction(parts)

    def _told(self, module: Module, stmt: ast.stmt, place: Place, depth: int) -> Iterator[Formula]:
        if isinstance(stmt, ast.If) and stmt.body and _ends(stmt.body) and self._stays(stmt.test):
            yield negation(self.predicates.of(stmt.test, place))
        elif isinstance(stmt, ast.Assert) and self._stays(stmt.test):
            yield self.predicates.of(stmt.test, place)
        value = stmt.value if isinstance(stmt, (ast.Expr, ast.Assign)) else None
        if isinstance(value, ast.Call) and depth:
            called = self.program.callees(module, value)
            if len(called) == 1 and (inside := self._within(called[0], value, place)) is not None:
                for inner in _first(called[0]):
                    yield from self._told(called[0].module, inner, inside, depth - 1)

    def _within(self, function: Function, call: ast.Call, place: Place) -> Place | None:
        """The scope of a function as a call fills its parameters."""
        given = self.program.arguments(function, call)
        if given is None or not isinstance(function.node, ast.FunctionDef) or not all(map(self._stays, given.values())):
            return None
        outside = self.predicates.trails.anywhere(function.scope.parent or function.scope)
        filled = {name: (default, outside) for name, default in function.defaults.items()}
        return Place(function.scope, filled | {name: (expr, place) for name, expr in given.items()}, place.chain)

    def _stays(self, test: ast.expr) -> bool:
        """Whether nothing in sight sets the options that a test asks for."""
        asked = (n for n in syntax.every(test, ast.Attribute) if isinstance(n.value, ast.Name))
        return not any(
            syntax.text(target.value) == syntax.text(n.value)
            for n in asked
            for _, target, _, _ in self.side.values.fields(n.attr)
        )

    @kept
    def _exclusive(self) -> tuple[Formula, ...]:
        """What the command line takes no two of."""
        found: list[Formula] = []
        for module in self.side.modules:
            for stmt in syntax.every(module.tree, ast.Assign):
                target = stmt.targets[0]
                if isinstance(target, ast.Name) and syntax.text(stmt.value).partition("(")[0].endswith(
                    ".add_mutually_exclusive_group"
                ):
                    calls = [c for c, _ in module.method_calls("add_argument")]
                    own = [c for c in calls if syntax.text(c.func) == f"{target.id}.add_argument"]
                    same = [c for c in own if module.function_around(c) is module.function_around(stmt)]
                    flags = [f for c in same if (f := _flag(c)) is not None]
                    found += [negation(conjunction([one, other])) for i, one in enumerate(flags) for other in flags[:i]]
        return tuple(found)


@kept
def refusals(side: Side) -> Refusals:
    """The answers for one state: all who ask share them."""
    return Refusals(side)


def _flag(call: ast.Call) -> Formula | None:
    """A flag that is off unless it is given."""
    named = {k.arg: k.value for k in call.keywords}
    action = named.get("action")
    options = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((o for o in options if o.startswith("--")), None)
    if not isinstance(action, ast.Constant) or action.value != "store_true" or long is None or "dest" in named:
        return None
    return f".{long.removeprefix('--').replace('-', '_')}"


def _first(function: Function) -> Iterator[ast.stmt]:
    """The statements of a function that run in each call of it."""
    for stmt in function.node.body if isinstance(function.node, ast.FunctionDef) else ():
        yield stmt
        if any(isinstance(n, ast.Return) for n in syntax.walk(stmt)):
            return


def _ends(body: list[ast.stmt]) -> bool:
    """Whether a branch ends the run: `raise`, `sys.exit(1)`."""
    return isinstance(body[-1], ast.Raise) or never_returns(body[-1])


def both(parts: list[Formula]) -> Formula:
    """That two of some conditions hold."""
    return disjunction(conjunction([one, other]) for i, one in enumerate(parts) for other in parts[:i])
