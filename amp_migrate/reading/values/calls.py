"""What calls give: what functions return, what is handed on as it came, what a mapping or a wrapper holds."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Sequence

from amp_migrate.reading.program.definitions import Function, argument, dotted, unpacked_list
from amp_migrate.reading.program.handed_back import SAME_OBJECT_METHODS, WRAPPERS
from amp_migrate.reading.program.handed_on import OUTSIDE
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.passed import Passed
from amp_migrate.reading.values.sources import key_of
from amp_migrate.reading.values.table import Asked, Part, Path, Question, Value, setting, typed

NONE = ast.Constant(None)
COPIES = frozenset(("copy.copy", "copy.deepcopy", "omegaconf.OmegaConf.create"))


class Calls:
    """The rules of the table that concern calls; `value` asks for an expression."""

    def __init__(self, project: Project, value: Asked, passed: Passed, casts: bool) -> None:
        self.project = project
        self.casts = casts  # whether what a cast gives is another value
        self.value = value
        self.passed = passed

    def values(self, module: Module, nodes: Iterable[ast.expr], path: Path) -> list[Part]:
        """What several expressions may be, or an item of each."""
        return [self.value(module, node, path) for node in nodes]

    def call(self, module: Module, node: ast.Call, path: Path) -> Sequence[Part]:
        func, own = node.func, Value("item" if path else "call", module, node, path=path)
        name = module.qualify(func)
        if name in COPIES and node.args:
            return [self.value(module, node.args[0], path)]
        if name in ("dataclasses.field", "attr.ib", "attrs.field") and not path:
            return [setting(self.value(module, k.value, path)) for k in node.keywords if k.arg == "default"] or [own]
        functions = self.project.resolved.get(node, []) or self.project.callees(module, node)
        if functions:
            back = [f for f in functions if f.name != "__init__"]
            return [p for f in back for p in self._given_back(f, module, node, path)] or [own]
        if isinstance(func, ast.Name) and module.scope_of(func).lookup(func.id) is None:
            return self._of_python(module, node, func.id, path) or [own]
        outside = name is not None and (name.partition(".")[0] in OUTSIDE or _of_python(name))
        if isinstance(func, ast.Attribute) and not outside:
            return self._of_mapping(module, node, func, path) or self._wrapped(module, node, name, path) or [own]
        return self._wrapped(module, node, name, path) or [own]

    def _wrapped(self, module: Module, node: ast.Call, name: str | None, path: Path) -> Sequence[Part]:
        """What a call hands back, itself or in a wrapper that behaves as it does."""
        func, args = node.func, {k.arg: k.value for k in node.keywords}
        if name == "apex.amp.initialize" and (unpacked := unpacked_list(module, node)) is not None:
            return [self.value(module, unpacked, path)]
        if name == "apex.amp.initialize":
            given = [argument(node, 0, "models"), argument(node, 1, "optimizers")]
            place = 0 if given[1] is None else path[0] if path else None
            chosen = given[place] if place in (0, 1) else None
            return [self.value(module, chosen, path if given[1] is None else path[1:])] if chosen is not None else []
        last = (name or dotted(func) or "").rpartition(".")[2]
        if last in WRAPPERS and not _of_python(name or ""):
            model = next((args[key] for key in ("module", "model", "network", "init_optimizer") if key in args), None)
            return self.values(module, node.args[:1] or ([model] if model is not None else []), path)
        if isinstance(func, ast.Attribute) and func.attr in SAME_OBJECT_METHODS and name is None and not self.casts:
            part, own = self.value(module, func.value, path), Value("call", module, node)
            return [part if path else Question("instead", (part, ("unknown", "parameter"), own))]
        return []

    def _of_python(self, module: Module, node: ast.Call, name: str, path: Path) -> Sequence[Part]:
        """Functions of Python that hand on what they are given."""
        args = node.args
        if name == "getattr" and len(args) >= 2 and isinstance(args[1], ast.Constant):
            attribute = self.value(module, self._attribute_of(module, node, args[1].value), path)
            return self._or_default(module, attribute, args[2:3], path)
        if path and name == "dict":
            named = [k.value for k in node.keywords if k.arg is not None and path[0] in (None, k.arg)]
            rest = [*args, *(k.value for k in node.keywords if k.arg is None)]
            return [*(setting(self.value(module, v, path[1:])) for v in named), *self.values(module, rest, path)]
        if path and name == "vars" and args and isinstance(path[0], str):
            return [self.value(module, self._attribute_of(module, node, path[0]), path[1:])]
        if path and name in ("list", "tuple", "sorted", "set", "reversed", "iter") and args:
            return [self.value(module, args[0], (None, *path[1:]))]
        if name == "next" and args:
            return [self.value(module, args[0], (None, *path))]
        if name in ("max", "min") and args:
            return [self.value(module, args[0], (None, *path))] if len(args) == 1 else self.values(module, args, path)
        if len(path) > 1 and name == "enumerate" and args and path[1] == 1:
            return [self.value(module, args[0], (None, *path[2:]))]
        if len(path) > 1 and name == "zip" and isinstance(path[1], int) and path[1] < len(args):
            return [self.value(module, args[path[1]], (None, *path[2:]))]
        return []

    def _attribute_of(self, module: Module, call: ast.Call, name: object) -> ast.expr:
        """The attribute that a call reads by a name that is written out."""
        return module.imagine(f"{module.source(call.args[0])}.{name}", call)

    def _of_mapping(self, module: Module, node: ast.Call, func: ast.Attribute, path: Path) -> Sequence[Part]:
        """Methods that give what a mapping holds."""
        method, args = func.attr, node.args
        if method in ("get", "pop", "setdefault") and args and (key := key_of(args[0])) is not None:
            default = args[1:2] or [k.value for k in node.keywords if k.arg == "default"]
            default = default or ([NONE] if method == "get" and not path else [])
            return self._or_default(module, self.value(module, func.value, (key, *path)), default, path)
        if method == "copy" and not args:
            return [self.value(module, func.value, path)]
        if path and method == "values":
            return [self.value(module, func.value, (None, *path[1:]))]
        if len(path) > 1 and method == "items" and path[1] == 1:
            return [self.value(module, func.value, (None, *path[2:]))]
        return []

    def _or_default(self, module: Module, part: Part, default: Sequence[ast.expr], path: Path) -> Sequence[Part]:
        """What is looked up, or stands for it where it is missing, which tells a bool where nothing else is seen."""
        return [
            *typed(module, default[0] if default and not path else None, [part]),
            *self.values(module, default, path),
        ]

    def _given_back(self, function: Function, module: Module, call: ast.Call, path: Path) -> list[Part]:
        """What a call of a function gives: what is handed back as it came, comes back to this call alone."""
        parts: list[Part] = [Question("returned", (function, path))]
        for name in sorted(self._handed_back(function)):
            parts += self.passed.given(function, module, call, name, path)
        return parts

    def _handed_back(self, function: Function) -> Collection[str]:
        return () if self.casts else self.project.handed_back(function)

    def returned(self, function: Function, path: Path) -> Sequence[Part]:
        """What a function returns, but what it only hands back."""
        module, back = function.module, self._handed_back(function)
        nodes = list(own_nodes(function.node.body))
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes):
            return [Value("unknown", module, function.node, "it yields")]
        values = [n.value for n in nodes if isinstance(n, ast.Return)]
        parts = [
            self.value(module, v, path)
            for v in values
            if v is not None and not (isinstance(v, ast.Name) and v.id in back)
        ]
        if path:
            return parts
        if all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in function.node.body):
            parts.append(Value("unknown", module, function.node, "it is only declared"))
        elif None in values or _falls_off(function.node.body):
            parts.append(Value("constant", module, NONE))
        return typed(module, function.node.returns, parts)


def _of_python(name: str) -> bool:
    """Whether a dotted name is of the standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


def _falls_off(body: Sequence[ast.stmt]) -> bool:
    """Whether a body may end without a `return`."""
    last = body[-1] if body else None
    if isinstance(last, (ast.Return, ast.Raise)):
        return False
    if isinstance(last, ast.If):
        return _falls_off(last.body) or _falls_off(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _falls_off(last.body)
    if isinstance(last, ast.Try):
        ends = [last.orelse or last.body, *(h.body for h in last.handlers)]
        return _falls_off(last.finalbody) and any(_falls_off(block) for block in ends)
    return not (isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and bool(last.test.value))
