"""One answer to the question what an expression may be, whoever asks it.

What is said includes all that the program in sight says: a name is what it is given by any binding that the place may
read, an attribute what any object that may be meant is given, a parameter what the calls in sight pass. In which order
functions run, and under which condition, is not asked.
"""

from __future__ import annotations

import ast
from functools import partial

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.constants import Constants, Found
from amp_migrate.reading.values.expressions import Expressions
from amp_migrate.reading.values.table import SETTING, Answer, Path, Question, Table, Value


class Values:
    """What the expressions of one program may be; see `Project.once`."""

    def __init__(self, project: Project, casts: bool = False) -> None:
        """`casts`: whether what a cast gives (`x.float()`) is another value than what it is a method of, as of tensors."""
        self._rules = Expressions(project, casts)
        first = project.modules[0]
        unknown = Value("unknown", first, first.tree, "it hangs on too much of the program")
        self._table = Table(self._rules.includes, self._rules.keeps, unknown)
        self._constants = Constants(self.may_be)

    def may_be(self, module: Module, node: ast.expr, path: Path = ()) -> Answer:
        """Everything that an expression, or the item of it at a path of keys and places, may be."""
        return self._table.answer(self._rules.value(module, node, path))

    def constants(self, module: Module, node: ast.expr) -> Found | None:
        """The constants that an expression may come to; None where it may be anything else."""
        return self._constants.of(module, node)

    def truth(self, module: Module, node: ast.expr) -> bool | None:
        """Whether an expression is true; None where it may be either, or anything else than constants."""
        return self._constants.truth(module, node)

    def fixed(self, module: Module, node: ast.expr) -> Found | None:
        """`constants`; None too where one of them is a setting for people to change: what is written follows it then."""
        return None if any(v.name == SETTING for v in self.may_be(module, node)) else self.constants(module, node)

    def given(self, function: Function, module: Module, call: ast.Call, name: str) -> Found | None:
        """The constants that one call may give a parameter, by its default too; None where it may be anything else."""
        return self._constants.among(self._given(function, module, call, name))

    def _given(self, function: Function, module: Module, call: ast.Call, name: str) -> Answer:
        parts = self._rules.passed.given(function, module, call, name, ())
        return frozenset().union(*map(self._table.answer, parts))

    def told(self, function: Function, module: Module, call: ast.Call, test: ast.expr) -> bool | None:
        """What a test of a function comes to where one call runs it; None where the constants that are given leave it open."""
        scope = function.scope

        def may_be(where: Module, node: ast.expr) -> Answer:
            """A parameter, where nothing else binds it, is what this call gives."""
            own = (
                isinstance(node, ast.Name) and node.id in scope.params and where.scope_of(node).lookup(node.id) is scope
            )
            if not own or not isinstance(node, ast.Name) or len(scope.bindings[node.id]) > 1:
                return self.may_be(where, node)
            return self._given(function, module, call, node.id)

        constants = Constants(may_be)
        return truth(test, partial(constants.truth, function.module))

    def returned(self, function: Function, path: Path = ()) -> Answer:
        """What a function returns, or an item of that, but for what it only hands back."""
        return self._table.answer(Question("returned", (function, path)))

    def passed(self, function: Function, name: str, path: Path = ()) -> Answer:
        """What the calls in sight give a parameter: `parameter` and `unknown` values say where calls are not."""
        a = function.node.args
        found = (arg for arg in (*function.parameters, a.vararg, a.kwarg) if arg and arg.arg == name)
        return frozenset().union(*(self._table.answer(Question("parameter", (function, arg, path))) for arg in found))


def of_tensors(project: Project) -> Values:
    """What expressions may be where a cast makes another value; see `Project.once`."""
    return Values(project, casts=True)
