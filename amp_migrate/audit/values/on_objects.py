"""What methods are given that only the object tells apart from others of their name: `metrics.add(x)`, `meters.update(y)`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.program.targets import Path
from amp_migrate.audit.values.origins import Origin, Sources
from amp_migrate.audit.values.table import Answer, Part, Step

MOST_CALLS = 400  # by one name: what so many are given says little
PLAIN = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Constant, ast.JoinedStr)


class OnObjects:
    """The rule of the table; `value` asks for an expression, `of_call` for what one call gives a parameter."""

    def __init__(
        self,
        sources: Sources,
        value: Callable[[Scope, ast.expr, Path], Part],
        of_call: Callable[[Function, Module, ast.Call, ast.arg, Path], list[Part]],
    ) -> None:
        self.sources = sources
        self.program = sources.program
        self.value = value
        self._of_call = of_call

    @kept
    def calls(self, function: Function) -> list[tuple[Module, ast.Call, ast.expr]]:
        """The calls by a method's name of which nothing but the object tells whose method they run, and the object."""
        if not function.bound or function.owner is None or function.name.startswith("__"):
            return []
        found = [
            (module, call, on)
            for module in self.program.having(function.name)
            for call, on in module.method_calls(function.name)
            if _fits(function, call)
            and not _is_plain(module.scope_of(call), on)
            and not self.program.callees(module, call)
            and self.program.imported(module.scope_of(call), on) is None
        ]
        return found if len(found) <= MOST_CALLS else []

    def given(self, function: Function, node: ast.arg, path: Path, alone: bool) -> Step:
        """What a parameter is given by the calls on objects that are seen to be made; `alone`: no other call gives it
        anything, so that who calls is out of sight where some object is not seen."""
        calls = self.calls(function)
        itself = [Origin(function.module, node, "parameter", path)] if alone else []

        def then(answers: list[Answer | None]) -> list[Part]:
            parts: list[Part] = []
            seen = True
            for (module, call, _), answer in zip(calls, answers, strict=True):
                made = [self.sources.classes(origin) for origin in answer or ()]
                seen = seen and bool(made) and all(made)
                if any(function in self.program._method(cls, function.name) for classes in made for cls in classes):
                    parts += self._of_call(function, module, call, node, path)
            return parts if seen and parts else [*parts, *itself]

        return Step([], None, [self.value(module.scope_of(call), on, ()) for module, call, on in calls], then)


def _fits(method: Function, call: ast.Call) -> bool:
    """Whether a method takes as many values as a call gives it by place."""
    a = method.node.args
    starred = any(isinstance(v, ast.Starred) for v in call.args)
    return a.vararg is not None or starred or len(call.args) < len(a.posonlyargs) + len(a.args)


def _is_plain(scope: Scope, on: ast.expr) -> bool:
    """Whether a container of Python's, a number or a text is all that an expression may be."""
    if isinstance(on, ast.Name) and (home := scope.binder(on.id)) is not None:
        nodes = home.bindings[on.id]
        return bool(nodes) and all(isinstance(n, ast.Assign) and isinstance(n.value, PLAIN) for n in nodes)
    return isinstance(on, PLAIN)
