"""Functions that give another all that they are given, by `*args` and `**kwargs` of their own: whoever runs one owes what the
other has taken since. A constructor is also run by whoever has its class as a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review

# Who is handed a class and makes nothing of it.
ASKING = frozenset("isinstance issubclass super signature print getattr setattr hasattr cast TypeVar id repr".split())


def owing(review: Review, function: Function) -> Iterator[tuple[Module, ast.AST, Function]]:
    """The places that run a function that hands all on to another, as they did before, and which that is."""
    program = review.after
    for module, call in program.callers(function):
        around = module.function_around(call)
        if (
            around is None
            or around is function
            or not _hands_all_on(around, call)
            or not _is_as_before(review, module, call)
        ):
            continue
        for where, made in program.callers(around):
            if not any(k.arg is None for k in made.keywords) and _is_as_before(review, where, made):
                yield where, made, around
        for where, node in [*program.mentions(around), *_classes(program, around)]:
            if _is_as_before(review, where, node):
                yield where, node, around


def _hands_all_on(function: Function, call: ast.Call) -> bool:
    a = function.node.args
    rows = [x.value.id for x in call.args if isinstance(x, ast.Starred) and isinstance(x.value, ast.Name)]
    named = [k.value.id for k in call.keywords if k.arg is None and isinstance(k.value, ast.Name)]
    return bool(a.kwarg and a.kwarg.arg in named and (a.vararg is None or a.vararg.arg in rows))


def _classes(program: Program, function: Function) -> Iterator[tuple[Module, ast.AST]]:
    """Where a class is a value whose objects a constructor makes: `for kind in (Fit, Longer)`, or a decorator takes it."""
    if function.owner is None or function.name != "__init__":
        return
    classes = [function.owner, *program.below(function.owner)]
    for cls in (c for c in classes if function in program.constructors(c)):
        yield from ((cls.module, d) for d in cls.node.decorator_list)
        for module in program.having(cls.name):
            for node in module.loads.get(cls.name, ()):
                if _is_value(module, node) and cls in program.definitions(module.scope_of(node), node, guess=False):
                    yield module, node


def _is_value(module: Module, node: ast.AST) -> bool:
    """Whether a name stands where something may make an object of it."""
    parent = module.parents.get(node)
    while isinstance(parent, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.IfExp, ast.keyword)):
        node, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.Call):
        return parent.func is not node and syntax.last(parent.func) not in ASKING
    return isinstance(parent, (ast.Assign, ast.Return, ast.For, ast.comprehension, ast.Attribute, ast.Subscript)) and (
        not isinstance(parent, ast.Attribute) or parent.attr in ("values", "items", "get")
    )


def _is_as_before(review: Review, module: Module, node: ast.AST) -> bool:
    change = review.changes.get(module.path)
    return change is None or not change.changed(node)
