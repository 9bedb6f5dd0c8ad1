"""The namespaces of a file, its functions and its classes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax

if TYPE_CHECKING:
    from amp_migrate.audit.program.module import Module

Def = ast.FunctionDef | ast.AsyncFunctionDef
Scoped = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class Scope:
    """One namespace: a module, a function, a class body. Comprehensions count to the scope they stand in.

    `bindings` maps each name bound here to the nodes that bind it, in source order: statements, `ast.arg`, aliases,
    handlers, comprehension targets.
    """

    def __init__(self, module: Module, node: Scoped, parent: Scope | None) -> None:
        self.module = module
        self.node = node
        self.parent = parent
        self.is_class = isinstance(node, ast.ClassDef)
        own = getattr(node, "name", "<lambda>" if isinstance(node, ast.Lambda) else "")
        self.qualname: str = f"{parent.qualname}.{own}" if parent is not None and parent.qualname else own
        self.bindings: dict[str, list[ast.AST]] = {}
        self.outer: set[str] = set()  # names declared global or nonlocal
        self.function: Function | None = None
        self.cls: Class | None = None

    def binder(self, name: str) -> Scope | None:
        """The scope whose binding a read of `name` here sees; None for a builtin or an undefined name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and name not in scope.outer and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None

    def __repr__(self) -> str:
        return f"<Scope {self.module.path}:{self.qualname or 'module'}>"


class Function:
    """A function or method of the program. `owner` is the class it is a method of."""

    def __init__(self, scope: Scope, owner: Class | None) -> None:
        assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        self.node: Def = scope.node
        self.scope = scope
        self.module = scope.module
        self.name = scope.node.name
        self.qualname = scope.qualname
        self.owner = owner
        scope.function = self

    @cached_property
    def parameters(self) -> Sequence[ast.arg]:
        """Named parameters in order, keyword-only ones last; without `*args` and `**kwargs`."""
        a = self.node.args
        return [*a.posonlyargs, *a.args, *a.kwonlyargs]

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        """The defaults of those parameters that have one."""
        a = self.node.args
        positional = zip(reversed([*a.posonlyargs, *a.args]), reversed(a.defaults), strict=False)
        named = zip(a.kwonlyargs, a.kw_defaults, strict=True)
        return {arg.arg: value for arg, value in (*positional, *named) if value is not None}

    @cached_property
    def bound(self) -> bool:
        """Whether a call through an instance fills the first parameter: that of a static method is filled by none, nor is one
        by another name than `self` where its file calls the function by its class alone, `Trainer.loss(x, y)`."""
        if self.owner is None or any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list
        ):
            return False
        if not self.parameters or self.parameters[0].arg in ("self", "cls"):
            return True
        called = [c.func for c in self.module.calls_named.get(self.name, ())]
        by_class = [f for f in called if isinstance(f, ast.Attribute) and syntax.last(f.value) == self.owner.name]
        return not called or len(by_class) < len(called)

    @property
    def class_method(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in self.node.decorator_list)

    @cached_property
    def abstract(self) -> bool:
        """Whether it is a method for others to be written in place of: declared so, or it only raises."""
        said = any(syntax.last(d) == "abstractmethod" for d in self.node.decorator_list if not isinstance(d, ast.Call))
        body = [s for s in self.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        return self.owner is not None and (said or (len(body) == 1 and isinstance(body[0], ast.Raise)))

    @property
    def setter(self) -> bool:
        """Whether it runs where a property is assigned."""
        return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in self.node.decorator_list)

    def __repr__(self) -> str:
        return f"<Function {self.module.path}:{self.qualname}>"


class Class:
    """A class of the program."""

    def __init__(self, scope: Scope) -> None:
        assert isinstance(scope.node, ast.ClassDef)
        self.node = scope.node
        self.scope = scope
        self.module = scope.module
        self.name = scope.node.name
        self.qualname = scope.qualname
        self.filed: dict[str, list[Function]] = {}
        scope.cls = self

    @property
    def methods(self) -> dict[str, list[Function]]:
        """Its own methods by name: several where a name is defined more than once."""
        self.module.functions  # noqa: B018  (methods are filed while functions are built)
        return self.filed

    def __repr__(self) -> str:
        return f"<Class {self.module.path}:{self.qualname}>"
