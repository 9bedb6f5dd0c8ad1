"""What the command line must say for a statement to be reached: the tests around it, and around the calls of its function.

Only tests that ask for an option count. That a loop runs, that a loss is finite, is for the run to show.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amp_migrate.verify.commandline.files import Project, is_main
from amp_migrate.verify.commandline.options import UNKNOWN, Option, Options
from amp_migrate.verify.coverage.statements import Statement, statements

MOST = 6  # alternatives that are followed
DEEP = 5  # calls that are followed upwards
CALLS = 12  # of a function with more callers than that nothing is known
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Need:
    """What a test asks of an option: to be true (`on`), `off`, to be (`is`) or not to be (`not`) a value, `over`, `under`."""

    option: str
    kind: str
    value: Any = None
    test: str = field(default="", compare=False)  # as it is written

    def met_by(self, values: dict[str, Any]) -> bool:
        """Whether a command line with these values meets it; a value that is not known may."""
        value = values.get(self.option, UNKNOWN)
        if value is UNKNOWN:
            return True
        if self.kind in ("on", "off"):
            return bool(value) == (self.kind == "on")
        if self.kind in ("is", "not"):
            return (str(value) == str(self.value)) == (self.kind == "is")
        try:
            return bool(value > self.value if self.kind == "over" else value < self.value)
        except TypeError:
            return False

    def clashes(self, other: Need) -> bool:
        """Whether no command line can meet both."""
        if self.option != other.option or self == other:
            return False
        kinds = {self.kind, other.kind}
        if kinds in ({"on", "off"}, {"over", "under"}) or self.kind == other.kind == "is":
            return True
        return kinds == {"is", "not"} and self.value == other.value


Needs = frozenset[Need]  # all of them together


class Reader:
    """The files behind one script."""

    def __init__(self, project: Project, script: str, options: Options) -> None:
        self.script, self.options = script, options
        self.trees = {path: tree for path in project.behind(script) if (tree := project.tree(path)) is not None}
        self._statements = {path: list(statements(tree)) for path, tree in self.trees.items()}
        self._calls = self._find_calls()
        self._of_function: dict[str, list[Needs]] = {}

    def at(self, path: str, line: int) -> list[Needs]:
        """The ways to reach the statement that begins in `line`, each a set of needs; the easiest first. None where it
        runs only when an import fails."""
        found = [s for s in self._statements.get(path, ()) if s.lines[0] <= line <= s.lines[1]]
        if found and any(_without_import(outer.node) for outer in found[-1].chain()):
            return []
        return self._ways(path, found[-1], 0) if found else [frozenset()]

    def _ways(self, path: str, statement: Statement, deep: int) -> list[Needs]:
        ways = [frozenset[Need]()]
        for inner in statement.chain():
            if isinstance(inner.node, _FUNCTIONS) and inner is not statement:
                ways = self._callers(inner.node.name, deep)
                continue
            owner = inner.parent.node if inner.parent is not None else None
            if isinstance(owner, (ast.If, ast.While)) and not is_main(owner):
                ways = _both(ways, self._asked(owner.test, inner.block == "body", path))
            for test in _exits(inner):
                ways = _both(ways, self._asked(test, False, path))
        return ways

    def _callers(self, name: str, deep: int) -> list[Needs]:
        """The ways to have a function called; no needs where they are not known."""
        calls = self._calls.get(name, [])
        if name.startswith("__") or not 0 < len(calls) <= CALLS or deep >= DEEP:
            return [frozenset()]
        if name not in self._of_function:
            self._of_function[name] = [frozenset()]  # a function that calls itself
            self._of_function[name] = _easiest(way for path, call in calls for way in self._ways(path, call, deep + 1))
        return self._of_function[name]

    def _find_calls(self) -> dict[str, list[tuple[str, Statement]]]:
        found: dict[str, list[tuple[str, Statement]]] = {}
        for path, inside in self._statements.items():
            for statement in inside:
                if path != self.script and any(is_main(outer.node) for outer in statement.chain()):
                    continue  # another program
                for name in set(_called(statement)):
                    found.setdefault(name, []).append((path, statement))
        return found

    def _asked(self, test: ast.expr, wanted: bool, path: str, deep: int = 0) -> list[Needs]:
        """The ways to make `test` come out as `wanted`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._asked(test.operand, not wanted, path, deep)
        if isinstance(test, ast.BoolOp):
            parts = [self._asked(value, wanted, path, deep) for value in test.values]
            if isinstance(test.op, ast.And) == wanted:
                ways = [frozenset[Need]()]
                for part in parts:
                    ways = _both(ways, part)
                return ways
            return _easiest(way for part in parts for way in part)
        text = " ".join(ast.unparse(test).split())
        if (option := self._named(test)) is not None:
            return [frozenset({Need(option.name, "on" if wanted else "off", test=text)})]
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compared(test, wanted, text)
        if isinstance(test, ast.Call) and getattr(test.func, "id", "") in ("bool", "int") and len(test.args) == 1:
            return self._asked(test.args[0], wanted, path, deep)
        if (
            isinstance(test, (ast.Name, ast.Attribute))
            and deep < 3
            and (value := self._assigned(test, path)) is not None
        ):
            return self._asked(value, wanted, path, deep + 1)
        return [frozenset()]

    def _compared(self, test: ast.Compare, wanted: bool, text: str) -> list[Needs]:
        left, right, operator = test.left, test.comparators[0], test.ops[0]
        option, other, turned = self._named(left), right, False
        if option is None:
            option, other, turned = self._named(right), left, True
        if option is None:
            return [frozenset()]
        try:
            value = ast.literal_eval(other)
        except (ValueError, TypeError, SyntaxError):
            return [frozenset()]
        positive = wanted != isinstance(operator, (ast.NotEq, ast.IsNot, ast.NotIn))
        if isinstance(operator, (ast.In, ast.NotIn)):
            if not isinstance(value, (tuple, list, set)) or turned:
                return [frozenset()]
            if positive:
                return [frozenset({Need(option.name, "is", item, text)}) for item in sorted(value, key=str)]
            return [frozenset(Need(option.name, "not", item, text) for item in value)]
        if isinstance(operator, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            if value is None or isinstance(value, bool):
                return [frozenset({Need(option.name, "on" if bool(value) == positive else "off", test=text)})]
            return [frozenset({Need(option.name, "is" if positive else "not", value, text)})]
        if not isinstance(value, (int, float)):
            return [frozenset()]
        upward = isinstance(operator, (ast.Gt, ast.GtE)) != turned
        slack = 0 if isinstance(operator, (ast.Gt, ast.Lt)) == wanted else 1  # >= 2, or not < 2: over 1
        over = upward == wanted
        return [
            frozenset({Need(option.name, "over" if over else "under", value - slack if over else value + slack, text)})
        ]

    def _named(self, node: ast.expr) -> Option | None:
        """The option a value is: `args.x`, `self.x`, `args["x"]`, `getattr(args, "x")`, or a plain `x`."""
        if isinstance(node, ast.Attribute):
            return self.options.get(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self.options.get(str(node.slice.value))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1:
            name = node.args[1]
            return self.options.get(str(name.value)) if isinstance(name, ast.Constant) else None
        return self.options.get(node.id) if isinstance(node, ast.Name) else None

    def _assigned(self, node: ast.Name | ast.Attribute, path: str) -> ast.expr | None:
        """The one value that a name or attribute is given in the file."""
        wanted = ast.unparse(node)
        values = [
            statement.value for statement in ast.walk(self.trees[path])
            if isinstance(statement, ast.Assign) and any(ast.unparse(t) == wanted for t in statement.targets)
        ]  # fmt: skip
        return values[0] if len(values) == 1 else None


def _both(one: list[Needs], other: list[Needs]) -> list[Needs]:
    """The ways in which both are met; all of `one` where none is."""
    joined = [a | b for a in one for b in other if not any(x.clashes(y) for x in a for y in b)]
    return _easiest(joined) if joined else one


def _easiest(ways: Iterable[Needs]) -> list[Needs]:
    return sorted(dict.fromkeys(ways), key=len)[:MOST] or [frozenset()]


def _exits(statement: Statement) -> Iterator[ast.expr]:
    """Tests before a statement of its block under which the program ends there, or the function is left."""
    for sibling in statement.siblings:
        if sibling is statement.node:
            return
        if isinstance(sibling, ast.If) and not sibling.orelse and _leaves(sibling.body[-1]):
            yield sibling.test


def _without_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and node.type is not None and "Import" in ast.unparse(node.type)


def _leaves(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("sys.exit", "exit", "quit", "os._exit", "parser.error")
    return isinstance(node, (ast.Return, ast.Raise))


def _called(statement: Statement) -> Iterator[str]:
    for child in ast.iter_child_nodes(statement.node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            continue
        for part in ast.walk(child):
            if isinstance(part, ast.Call):
                name = getattr(part.func, "attr", None) or getattr(part.func, "id", None)
                if name:
                    yield name
