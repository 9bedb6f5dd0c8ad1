"""Methods that are run by their name: `callbacks.call("after_backward")`, `getattr(callback, event)(...)`.

Nothing in sight calls such a method; what says its name does, wherever objects are asked for attributes by a variable.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

# Calls that are given names and run nothing by them.
_NO_EVENTS = frozenset(
    "hasattr setattr delattr print info debug warning warn error log get pop setdefault add_argument isinstance append "
    "add startswith endswith format join split replace write add_scalar register_buffer".split()
)


class NamedMethods:
    """Answers for the calls of one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._running: dict[tuple[Function, str], bool] = {}
        self._constants: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, list[Function]] = defaultdict(list)
        if not any(_asks(m) for m in project.modules):
            return
        for function in project.functions.values():
            if function.cls is not None and not function.name.startswith("__") and not project.calls.get(function):
                self._methods[function.name].append(function)
        for module in project.modules:
            for node in module.of(ast.Assign) if self._methods else ():
                if _text(node.value) in self._methods:
                    for target in node.targets:
                        if isinstance(target, (ast.Name, ast.Attribute)):
                            self._constants[_last(target)].add(_text(node.value))

    def run(self, call: ast.Call) -> list[Function]:
        """The methods that a call may run by a name that it is given."""
        if not self._methods or called_name(call) in _NO_EVENTS:
            return []
        return [f for g in self._given(call) for name in self._named(g) for f in self._methods[name]]

    def _given(self, call: ast.Call) -> list[ast.expr]:
        """What a call gives to who may run methods by it."""
        functions = self.project.resolved.get(call, ())
        if not functions:
            return [*call.args, *(k.value for k in call.keywords)]
        passed = [(f, name, value) for f in functions for name, value in self.project.arguments(f, call)]
        named = [x for x in passed if self._named(x[2])]
        return list(dict.fromkeys(value for f, name, value in named if self._runs(f, name)))

    def _runs(self, function: Function, parameter: str) -> bool:
        """Whether a function may run a method by the name that it is given; one that only looks it up
        (`self.loaders[split]`), asks which it is, or makes another name of it (`folder + split`), runs none."""
        key = (function, parameter)
        if key not in self._running:
            self._running[key] = False  # recursion
            inside = {n for n in function.inside if isinstance(n, ast.Name)}
            used = (n for n in function.module.loads.get(parameter, ()) if n in inside)
            self._running[key] = any(self._may_run(function.module, n) for n in used)
        return self._running[key]

    def _may_run(self, module: Module, name: ast.Name) -> bool:
        parent = module.parents[name]
        if isinstance(parent, ast.keyword):
            parent = module.parents[parent]
        if isinstance(parent, ast.Call) and name is not parent.func:
            if called_name(parent) in _NO_EVENTS:
                return False
            functions = self.project.resolved.get(parent, ())
            handed = [(f, p) for f in functions for p, v in self.project.arguments(f, parent) if v is name]
            return not handed or any(self._runs(f, p) for f, p in handed)
        if isinstance(parent, ast.Subscript):
            return name is not parent.slice
        return not isinstance(parent, (ast.Compare, ast.FormattedValue, ast.BinOp))

    def _named(self, value: ast.expr) -> list[str]:
        if isinstance(value, ast.Constant):
            return [_text(value)] if _text(value) in self._methods else []
        if isinstance(value, ast.Attribute) and value.attr == "value":  # of an enumeration
            value = value.value
        return sorted(self._constants.get(_last(value), ())) if isinstance(value, (ast.Name, ast.Attribute)) else []


def _asks(module: Module) -> bool:
    """Whether a module asks some object for an attribute whose name is a variable."""
    return "getattr" in module.text and any(
        isinstance(n.func, ast.Name)
        and n.func.id == "getattr"
        and len(n.args) > 1
        and not isinstance(n.args[1], ast.Constant)
        for n in module.of(ast.Call)
    )


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id
