"""Whether an optimizer of a model was made before a place that puts other parameters into the model."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from amp_migrate.reading.conditions.chains import exclusive
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

OPTIMIZER = re.compile(
    r"optim(?:izer)?s?(?:_(?!\w*(?:sched|period|state|param|group|config|cfg|name|type|arg|step))\w+)?$", re.IGNORECASE
)


@dataclass(frozen=True)
class Before:
    """An optimizer made before a place: where, or that who comes there may have one (`stmt` None); `sure`: it is one of that
    model, and made, not only held, there, or where one of `others` makes it in its stead."""

    module: Module
    stmt: ast.stmt | None = None
    sure: bool = False
    others: tuple[ast.stmt, ...] = ()

    @property
    def lines(self) -> str:
        """The lines that may make it."""
        *first, last = sorted(s.lineno for s in (self.stmt, *self.others) if s is not None)
        return f"{', '.join(map(str, first))} or {last}" if first else str(last)


def made_before(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Before | None:
    """What is known of an optimizer of `model` by the time that `node` runs; None: it is made after, or there is none.

    Followed to whoever calls the function, as long as the model is handed in or belongs to an object that is.
    """
    if not isinstance(model, (ast.Name, ast.Attribute)):
        return None
    return _before(project, module, node, ast.unparse(model), set())


def _before(
    project: Project, module: Module, node: ast.AST, text: str, seen: set[tuple[Function, str]]
) -> Before | None:
    scope, stmt = module.scope_of(node), module.statement(node)
    earlier = [s for s in _own(module, scope) if s.lineno < stmt.lineno and not exclusive(module, s, stmt)]
    for assign in reversed(earlier):
        if _makes(assign, _of_model(earlier, text)):
            others = (s for s in earlier if s is not assign and exclusive(module, s, assign))
            return Before(module, assign, True, tuple(s for s in others if _makes(s, _of_model(earlier, text))))
    text = _came_from(earlier, text)
    function = project.functions.get(scope.node)
    root, _, rest = text.partition(".")
    if not text or function is None or (function, text) in seen:
        return None
    seen.add((function, text))
    is_parameter = root in scope.params
    if not is_parameter and scope.lookup(root) is scope:
        return None
    if is_parameter and function.name == "__init__" and root == _receiver(function):
        return None
    if is_parameter and root == _receiver(function) and (held := _held(function)) is not None:
        return held
    calls = project.calls.get(function, [])
    if not calls:
        handed = is_parameter and root != _receiver(function)
        return Before(module) if handed and (rest or any(_names_optimizer(p) for p in scope.params)) else None
    for caller, call in calls:
        given = _given(project, function, call, root) if is_parameter else root
        if given and (found := _before(project, caller, call, f"{given}.{rest}" if rest else given, seen)) is not None:
            return found
    return None


def _own(module: Module, scope: Scope) -> list[ast.Assign]:
    """The assignments that a scope runs itself, in the order of the file."""
    found = [n for n in walk(scope.node) if isinstance(n, ast.Assign) and module.scope_of(n) is scope]
    return sorted(found, key=lambda stmt: stmt.lineno)


def _targets(assign: ast.Assign) -> list[str]:
    return [ast.unparse(t) for target in assign.targets for t in getattr(target, "elts", [target])]


def _of_model(assigns: list[ast.Assign], text: str) -> set[str]:
    """How the model and what is made of it (groups of its parameters) are written."""
    names = {text}
    for assign in assigns:
        if names & _read(assign.value):
            names.update(t for t in _targets(assign) if t.isidentifier() and not _names_optimizer(t))
    return names


def _makes(assign: ast.Assign, of_model: set[str]) -> bool:
    """Whether a statement makes an optimizer of what is written so: for it, or together with it. One that is given the
    optimizer wraps it: `model, optimizer = amp.initialize(model, optimizer)`."""
    if not isinstance(assign.value, ast.Call):
        return False
    targets = _targets(assign)
    given = {text for a in (*assign.value.args, *(k.value for k in assign.value.keywords)) for text in _read(a)}
    return any(_names_optimizer(t) and t not in given for t in targets) and bool(of_model & {*targets, *given})


def _names_optimizer(text: str) -> bool:
    return OPTIMIZER.search(text.rpartition(".")[2]) is not None


def _read(node: ast.AST) -> set[str]:
    return {ast.unparse(n) for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _came_from(assigns: list[ast.Assign], text: str) -> str:
    """How the model is written that a name stands for at the top of a function; empty where it is made here."""
    for assign in reversed(assigns):
        if text not in _targets(assign):
            continue
        if isinstance(assign.value, (ast.Name, ast.Attribute)):
            text = ast.unparse(assign.value)
        elif text not in _read(assign.value):
            return ""
    return text


def _receiver(function: Function) -> str:
    """The first parameter of a method; empty for a function."""
    return function.by_place[0].arg if function.cls is not None and function.by_place else ""


def _held(function: Function) -> Before | None:
    """The optimizer that an object has had since it was made, whose method this is."""
    assert function.cls is not None
    constructor = function.cls.methods.get("__init__")
    if constructor is None:
        return None
    for assign in _own(constructor.module, constructor.scope):
        fields = [t for t in _targets(assign) if t.startswith(f"{_receiver(constructor)}.") and _names_optimizer(t)]
        if fields and isinstance(assign.value, (ast.Name, ast.Attribute, ast.Call, ast.Tuple)):
            return Before(constructor.module, assign)
    return None


def _given(project: Project, function: Function, call: ast.Call, parameter: str) -> str:
    """How a caller writes what a parameter gets; empty where it is made there and then."""
    if parameter == _receiver(function) and isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value)
    value = next((v for name, v in project.arguments(function, call) if name == parameter), None)
    return ast.unparse(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""
