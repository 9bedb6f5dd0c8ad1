"""What calls give the parameters of a function: by position, by name, through `*args` and `**kwargs`, by default."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from amp_migrate.reading.program.definitions import Function, called_name, written_out
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources
from amp_migrate.reading.values.table import BESIDE, Part, Path, Value, setting, typed


class Passed:
    """The rules of the table that concern parameters; `value` asks for an expression."""

    def __init__(self, project: Project, value: Callable[[Module, ast.expr, Path], Part]) -> None:
        self.project = project
        self.sources = project.once(Sources)
        self.value = value

    def parameter(self, function: Function, node: ast.arg, path: Path) -> Sequence[Part]:
        """What a parameter may be: what the calls in sight give it, its default where one gives nothing or none is."""
        module, a = function.module, function.node.args
        itself = Value("parameter", module, node, "nothing in sight calls it")
        if function.cls is not None and not function.is_static and node is next(iter(function.by_place), None):
            kind = "class" if function.is_unbound else "instance"
            return [Value(kind, module, function.cls.node)]  # type: ignore[arg-type]
        calls = self.project.calls.get(function, [])
        if node in (a.vararg, a.kwarg):
            return self._gathered(function, node, path) if path and calls else [itself]
        if (flag := _flag_of_click(function, node.arg)) is not None and not path:
            return [Value("bool", module, flag)]
        parts = [p for caller, call in calls for p in self.given(function, caller, call, node.arg, path)]
        for caller, bound in self._kept(function):
            given = dict(self.project.arguments(function, ast.Call(bound.func, bound.args[1:], bound.keywords)))
            parts.append(self.value(caller, given[node.arg], path) if node.arg in given else itself)
        default = self._default(function, node.arg, path) if not calls else []
        parts += [*([] if parts else [itself._replace(name=BESIDE) if default else itself]), *default]
        if self.sources.handed_on(function):
            parts.append(Value("unknown", module, node, BESIDE if default or calls else "it is called out of sight"))
        return typed(module, node.annotation, parts) if not path else parts

    def _kept(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Calls of `partial` whose result is kept for others to call."""
        called = set(self.project.through.values())
        return [(module, call) for module, call in self.project.bound.get(function, []) if call not in called]

    def given(self, function: Function, module: Module, call: ast.Call, name: str, path: Path) -> list[Part]:
        """What one call gives a parameter."""
        given = dict(self.project.arguments(function, call))
        if name in given:
            return [setting(self.value(module, given[name], path))]
        default = self._default(function, name, path)
        if call in self.project.through:
            return default
        spread = [k.value for k in call.keywords if k.arg is None]
        parts = [self.value(module, value, (name, *path)) for value in spread]
        args = list(written_out(call.args[1:] if self.project.passes_self(function, call) else call.args))
        star = next((i for i, arg in enumerate(args) if isinstance(arg, ast.Starred)), len(args))
        if star < len(args) and name in function.positional[star:]:
            place = function.positional.index(name) - star if star == len(args) - 1 else None
            parts.append(self.value(module, args[star], (place, *path)))
        return parts + default

    def _default(self, function: Function, name: str, path: Path) -> list[Part]:
        default = function.defaults.get(name)
        return [setting(self.value(function.module, default, path))] if default is not None else []

    def _gathered(self, function: Function, node: ast.arg, path: Path) -> Sequence[Part]:
        """What the calls of a function put under a key of its `**kwargs`, or at a place of its `*args`."""
        parts: list[Part] = []
        for module, call in self.project.calls.get(function, []):
            first, rest = path[0], path[1:]
            spread = [k.value for k in call.keywords if k.arg is None]
            args = list(written_out(call.args[1:] if self.project.passes_self(function, call) else call.args))
            if call in self.project.through:
                parts.append(Value("unknown", module, call, "its arguments are bound elsewhere"))
            elif node is function.node.args.kwarg:
                named = [k.value for k in call.keywords if k.arg is not None and first in (None, k.arg)]
                parts += [self.value(module, value, rest) for value in named]
                parts += [self.value(module, value, path) for value in spread]
            else:
                own = len(function.positional)
                star = next((i for i, arg in enumerate(args) if isinstance(arg, ast.Starred)), len(args))
                more = (
                    args[own:star] if first is None else args[own + first : star][:1] if isinstance(first, int) else []
                )
                parts += [self.value(module, value, rest) for value in more]
                parts += [self.value(module, value, (None, *rest)) for value in args[star:]]
        return parts


def _flag_of_click(function: Function, name: str) -> ast.Call | None:
    """What declares a parameter to be a flag of click: `@click.option("--fp16", is_flag=True)`."""
    for decorator in function.node.decorator_list:
        if isinstance(decorator, ast.Call) and called_name(decorator) == "option":
            texts = [a.value for a in decorator.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            flags = [k for k in decorator.keywords if k.arg == "is_flag" and ast.unparse(k.value) == "True"]
            if flags and any(t.partition("/")[0].lstrip("-").replace("-", "_") == name for t in texts):
                return decorator
    return None
