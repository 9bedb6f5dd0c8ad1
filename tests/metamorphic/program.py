"""A program of fixtures/ as a small project: its files, what of it is run, and how it is read for a transformation."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ENTRY = "train.py"
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)

N = TypeVar("N", bound=ast.AST)


@dataclass(frozen=True)
class Project:
    """Files by path. `also` are run besides train.py and print something of their own; `twins` train as train.py does."""

    files: dict[str, str]
    also: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()


@dataclass
class Fixture:
    """One folder of fixtures/."""

    name: str

    @cached_property
    def notes(self) -> dict[str, Any]:
        return tomllib.loads((FIXTURES / self.name / "notes.toml").read_text(encoding="utf-8"))

    @property
    def args(self) -> list[str]:
        return [str(arg) for arg in self.notes.get("args", [])]

    @cached_property
    def before(self) -> str:
        return (FIXTURES / self.name / "before.py").read_text(encoding="utf-8")

    @cached_property
    def after(self) -> str:
        return (FIXTURES / self.name / "after.py").read_text(encoding="utf-8")

    def read(self) -> Reading:
        """A tree of its own, which the caller may change."""
        return Reading(ast.parse(self.before), self)


def names() -> list[str]:
    return sorted(path.parent.name for path in FIXTURES.glob("*/before.py"))


@dataclass
class Reading:
    """A syntax tree with what transformations ask of it; the tree is changed in place."""

    tree: ast.Module
    fixture: Fixture
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def text(self) -> str:
        return ast.unparse(ast.fix_missing_locations(self.tree)) + "\n"

    def project(self) -> Project:
        return Project({ENTRY: self.text()})

    def all(self, kind: type[N]) -> list[N]:
        return [node for node in ast.walk(self.tree) if isinstance(node, kind)]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        return next(n for n in self.above(node) if isinstance(n, (*FUNCTION, ast.ClassDef, ast.Module)))

    def statement(self, node: ast.AST) -> ast.stmt:
        return next(n for n in (node, *self.above(node)) if isinstance(n, ast.stmt))

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list a statement stands in."""
        parent = self.parents[statement]
        bodies = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
        return next(body for body in bodies if isinstance(body, list) and statement in body)

    def insert(self, before: ast.stmt, *new: ast.stmt) -> None:
        body = self.block(before)
        at = body.index(before)
        body[at:at] = new
        self._adopt(self.parents[before], new)

    def replace(self, old: ast.stmt, *new: ast.stmt) -> None:
        body = self.block(old)
        at = body.index(old)
        body[at : at + 1] = new
        self._adopt(self.parents[old], new)

    def swap(self, old: ast.expr, new: ast.expr) -> None:
        """Put an expression in the place of another."""
        parent = self.parents[old]
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new
        self._adopt(parent, [new])

    def _adopt(self, parent: ast.AST, new: Any) -> None:
        for node in new:
            self.parents[node] = parent
            self.parents.update({c: n for n in ast.walk(node) for c in ast.iter_child_nodes(n)})

    def define(self, *new: ast.stmt) -> None:
        """Definitions at module level, below the imports and before what uses them."""
        at = 0
        for place, statement in enumerate(self.tree.body):
            guarded = isinstance(statement, ast.Try) and any(isinstance(s, ast.ImportFrom) for s in statement.body)
            if isinstance(statement, (ast.Import, ast.ImportFrom)) or guarded:
                at = place + 1
        self.tree.body[at:at] = new
        self._adopt(self.tree, new)

    def use(self, line: str) -> None:
        """An import line on top."""
        self.tree.body[_after_head(self.tree) : _after_head(self.tree)] = statements(line)

    @cached_property
    def taken(self) -> set[str]:
        named = {n.id for n in self.all(ast.Name)} | {n.arg for n in self.all(ast.arg)}
        return named | {n.name for n in self.all(ast.FunctionDef)} | {n.name for n in self.all(ast.ClassDef)}

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    # What a transformation is about.

    @property
    def scaled(self) -> list[ast.With]:
        """The statements `with amp.scale_loss(...) as ...:`."""
        return [n for n in self.all(ast.With) if _last(n.items[0].context_expr) == "scale_loss"]

    @property
    def steps(self) -> list[ast.Expr]:
        """The statements `optimizer.step()`."""
        return [n for n in self.all(ast.Expr) if self._is_step(n.value)]

    @staticmethod
    def _is_step(node: ast.expr) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"):
            return False
        return not node.args and not node.keywords and is_optimizer(node.func.value)

    @property
    def initialized(self) -> list[ast.Call]:
        """The calls `amp.initialize(...)`."""
        return [n for n in self.all(ast.Call) if _last(n) == "initialize" and len(n.args) + len(n.keywords) > 1]

    def start(self, node: ast.AST) -> ast.stmt:
        """The outermost loop of its function around a node, else its own statement."""
        found = self.statement(node)
        for above in self.above(found):
            if isinstance(above, (*FUNCTION, ast.ClassDef, ast.Module)):
                break
            if isinstance(above, (ast.For, ast.While)):
                found = above
        return found

    @property
    def trained(self) -> list[ast.FunctionDef]:
        """Functions of the module and methods in which the loss is scaled, a step made or Apex set up."""
        marks = [*self.scaled, *self.steps, *self.initialized]
        inside = {above for mark in marks for above in self.above(mark)}
        return [
            n
            for n in self.all(ast.FunctionDef)
            if n in inside and isinstance(self.scope(n), (ast.Module, ast.ClassDef)) and not n.decorator_list
        ]

    def is_method(self, function: ast.AST) -> bool:
        return isinstance(self.parents[function], ast.ClassDef)

    def calls(self) -> list[tuple[ast.Call, ast.FunctionDef]]:
        """The calls of these functions and methods by their names, outside themselves."""
        by_name = {function.name: function for function in self.trained if not function.name.startswith("__")}
        defined = [n.name for n in self.all(ast.FunctionDef)]
        found = []
        for call in self.all(ast.Call):
            name = _last(call)
            if name not in by_name or defined.count(name) > 1 or by_name[name] in self.above(call):
                continue
            if self.is_method(by_name[name]) == isinstance(call.func, ast.Attribute):
                found.append((call, by_name[name]))
        return found

    def only_called(self, function: ast.FunctionDef) -> bool:
        """Whether its name is nowhere used as a value or bound again."""
        name = function.name
        called = [c.func for c, f in self.calls() if f is function]
        uses: list[ast.AST] = [n for n in self.all(ast.Name) if n.id == name]
        uses += [n for n in self.all(ast.Attribute) if n.attr == name and self.is_method(function)]
        return bool(called) and all(use in called for use in uses)

    def plain(self, call: ast.Call) -> bool:
        """Whether a statement may be put before the one of a call without changing what is evaluated when."""
        statement = self.statement(call)
        if isinstance(statement, (ast.While, ast.ClassDef, ast.FunctionDef)):
            return False
        for above in self.above(call):
            if above is statement:
                return True
            if isinstance(above, (*COMPREHENSION, ast.IfExp, ast.BoolOp)):
                return False
        return True


def is_optimizer(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lower().startswith(("optim", "opt_", "inner_opt")) or name == "opt"


def statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _last(node: ast.AST) -> str:
    """The last name of what is called."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _after_head(tree: ast.Module) -> int:
    """The place below docstring and `from __future__`."""
    at = 0
    for statement in tree.body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            break
        at += 1
    return at
