"""What calls give the parameters of a function: by position, by name, through `*args` and `**kwargs`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.accessors import set_by
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.targets import Path
from amp_migrate.audit.values.names import calls_by_name
from amp_migrate.audit.values.on_objects import OnObjects
from amp_migrate.audit.values.origins import Kind, Origin, Sources
from amp_migrate.audit.values.same import itself
from amp_migrate.audit.values.table import Answer, Part, Question, Step

# Items of items of what goes into a function or comes out of it: recursion picks items of items without an end, and of each
# key at each depth another question is asked of all that it comes by.
HANDED = 2
# Places of `*args` that are followed: a function that hands them on behind an argument of its own moves each by one, and in a
# circle of such functions there is no last.
ITEMS = 16
MOST_GIVEN = 24  # what calls of one name give a lambda


class Passed:
    """The rules of the table that concern parameters; `value` asks for an expression."""

    def __init__(self, sources: Sources, value: Callable[[Scope, ast.expr, Path], Part]) -> None:
        self.sources = sources
        self.program = sources.program
        self.value = value
        self.on_objects = OnObjects(sources, value, self.of_call)

    def parameter(self, scope: Scope, node: ast.arg, path: Path) -> Step:
        """What a parameter may be: what the calls in sight give it, its default where one gives nothing."""
        if len(path) > HANDED:
            return Step([Origin(scope.module, node, "unknown", path)])
        itself = Origin(scope.module, node, "parameter", path)
        if isinstance(scope.node, ast.Lambda):
            given = [self.value(module.scope_of(e), e, path) for module, e in self._to_lambda(scope, scope.node, node)]
            return Step(given or [itself], itself)
        if not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Step([itself])
        function = self.program.function_of(scope.module, scope.node)
        a = function.node.args
        if function.bound and function.parameters and function.parameters[0] is node and function.owner is not None:
            cls = function.owner
            kinds = self.program.below(cls) if function.name == "__init_subclass__" else [cls]
            return Step([Origin(c.module, c.node, "class", path) for c in kinds], itself)
        if node in (a.vararg, a.kwarg):
            parts = [
                part for call in self.program.callers(function) for part in self._gathered(function, *call, node, path)
            ]
            if path and self.on_objects.calls(function):
                parts.append(Question("on_objects", (function, node, path, not parts)))
            return Step(parts, itself)
        callers = self.sources.given(function)
        parts = self._assigned(function, path) if node in function.parameters[1:2] else []
        if node in function.parameters[function.bound :][:1]:
            parts += [Origin(o.module, o.node, o.kind, path) for o in self._decorated.get(function, ())]
        hidden: list[Question] = []
        missing = not callers
        for module, call, filled in callers:
            if filled is None:
                hidden.append(Question("handed", (function, module, call, node.arg, path)))
            elif node.arg in filled:
                parts.append(self.value(module.scope_of(call), filled[node.arg], path))
            else:
                missing = True
        alone = not callers and not parts
        if self.on_objects.calls(function):
            parts.append(Question("on_objects", (function, node, path, alone)))
        elif alone:
            parts.append(itself)
        default = function.defaults.get(node.arg)
        if default is None:
            return Step([*parts, *hidden], itself)
        usual = [self.value(scope.parent or scope, default, path)]
        if missing:
            return Step([*parts, *hidden, *usual], itself)
        return Step([*parts, *hidden], itself, hidden, lambda answers: usual if any(map(_nothing, answers)) else [])

    def _assigned(self, function: Function, path: Path) -> list[Part]:
        """What a setter is given: what is assigned to the attribute of objects of its class."""
        name = set_by(function)
        if name is None or function.owner is None:
            return []
        family = self.program.family(function.owner)
        stored = [at for at in self.sources.stored(name) if at.owner in family and at.value is not None]
        return [self.value(at.scope, at.value, (*at.item, *path)) for at in stored if at.value is not None]

    def _to_lambda(self, scope: Scope, held: ast.Lambda, node: ast.arg) -> list[tuple[Module, ast.expr]]:
        """What a parameter of a lambda is given by the calls of a name that it is kept under."""
        found: list[tuple[Module, ast.expr]] = []
        place = held.args.args.index(node) if node in held.args.args else None
        for module, call in calls_by_name(self.program, scope.module, held):
            if self.program.definitions(module.scope_of(call), call.func, guess=False):
                continue
            given = call.args[place : place + 1] if place is not None else []
            given += [k.value for k in call.keywords if k.arg == node.arg]
            found += [(module, e) for e in given if not isinstance(e, ast.Starred)]
        return found[:MOST_GIVEN]

    def given_back(self, function: Function, own: Origin) -> list[Part]:
        """What a function gives back to the call of an origin: a parameter that it returns, as it came or as what behaves as it
        does, is what that call gave it, and not what others do."""
        call, module = own.node, own.module
        back = [self._back(function, value) for value in self.sources.returns(function)]
        names = {name for name, _ in back if name}
        filled = None
        if names and isinstance(call, ast.Call) and len(own.path) <= HANDED:
            filled = self.program.arguments(function, call, bound=self.sources.bound(function, module, call))
        if filled is None or not names <= filled.keys():
            return [Question("returned", (function, own.path))]
        there, scope = function.module, module.scope_of(call)
        given = [self.value(scope, filled[name], own.path) for name, _ in back if name]
        return given + [self.value(there.scope_of(v), v, own.path) for _, others in back for v in others]

    @kept  # by many calls
    def _back(self, function: Function, value: ast.expr) -> tuple[str, list[ast.expr]]:
        """The parameter that a function returns with a value, and what else that may be."""
        returned = itself(self.program, function.scope, value)
        bound = function.scope.bindings.get(returned.id, []) if isinstance(returned, ast.Name) else []
        if not isinstance(returned, ast.Name) or not any(n in function.parameters[function.bound :] for n in bound):
            return "", [value]
        others: list[ast.expr] = []
        for node in bound:
            assigned = node.value if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
            if isinstance(node, ast.arg):
                continue
            if assigned is None:
                return "", [value]
            same = itself(self.program, function.scope, assigned)
            if not isinstance(same, ast.Name) or same.id != returned.id:
                others.append(assigned)
        return returned.id, others

    @cached_property
    def _decorated(self) -> dict[Function, list[Origin]]:
        """What functions are given that are decorators, or come of one: `@register`, `@trainer.on("step")`."""
        found: dict[Function, list[Origin]] = {}
        for module in self.program.modules.values():
            definitions: list[Function | Class] = [*module.functions, *module.classes]
            for definition in definitions:
                kind: Kind = "function" if isinstance(definition, Function) else "class"
                for decorator in definition.node.decorator_list:
                    for taker in self._takers(definition.scope.parent or module.top, decorator):
                        found.setdefault(taker, []).append(Origin(module, definition.node, kind, ()))
        return found

    def _takers(self, scope: Scope, decorator: ast.expr) -> list[Function]:
        """The functions that a decorator hands what it stands over."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        found = [d for d in self.program.definitions(scope, called) if isinstance(d, Function)]
        if called is decorator:
            return found
        return [inner for f in found for inner in f.module.functions if inner.scope.parent is f.scope]

    def handed(self, function: Function, module: Module, call: ast.Call, name: str, path: Path) -> Step:
        """What a call with `*args` or `**kwargs` gives a parameter: what it names, what stands before the star, an entry
        of a dictionary."""
        scope = module.scope_of(call)
        unknown = Origin(module, call, "unknown", path)
        for keyword in call.keywords:
            if keyword.arg == name:
                return Step([self.value(scope, keyword.value, path)])
        names = [p.arg for p in function.parameters][1 if self.sources.bound(function, module, call) else 0 :]
        star = _first_star(call)
        if name in names[:star]:
            return Step([self.value(scope, call.args[names.index(name)], path)])
        entries = [self.value(scope, k.value, (name, *path)) for k in call.keywords if k.arg is None]
        last = call.args[star] if star == len(call.args) - 1 else None
        if isinstance(last, ast.Starred) and name in names:
            item = self.value(scope, last.value, (names.index(name) - star, *path))
            if not entries:
                return Step([item], unknown)
            return Step([], unknown, [item], lambda answers: entries if _nothing(answers[0]) else [item])
        return Step(entries if star == len(call.args) else [], unknown)

    def _gathered(self, function: Function, module: Module, call: ast.Call, node: ast.arg, path: Path) -> list[Part]:
        """What a call of a function puts under a key of its `**kwargs`, or at a place of its `*args`."""
        a = function.node.args
        if not path:
            return []
        scope, first = module.scope_of(call), path[0]
        if node is a.kwarg:
            own = {p.arg for p in function.parameters}
            named = [k.value for k in call.keywords if k.arg == first or (first is None and k.arg and k.arg not in own)]
            whole = [k.value for k in call.keywords if k.arg is None and not (named and first is not None)]
            if first is not None and not isinstance(first, str):
                return []
            return [self.value(scope, v, path[1:]) for v in named] + [self.value(scope, v, path) for v in whole]
        before = len([*a.posonlyargs, *a.args]) - (1 if self.sources.bound(function, module, call) else 0)
        if first is None:  # any of them
            single = [v for v in call.args[before:] if not isinstance(v, ast.Starred)]
            starred = [v.value for v in call.args if isinstance(v, ast.Starred)]
            return [self.value(scope, v, path[1:]) for v in single] + [self.value(scope, v, path) for v in starred]
        star = _first_star(call)
        last = call.args[star] if star == len(call.args) - 1 else None
        if not isinstance(first, int):
            return []
        if before + first < star:
            return [self.value(scope, call.args[before + first], path[1:])]
        if not isinstance(last, ast.Starred):
            return []
        if before + first - star > ITEMS:  # handed round in a circle
            return [Origin(module, last, "unknown", path)]
        return [self.value(scope, last.value, (before + first - star, *path[1:]))]

    def of_call(self, function: Function, module: Module, call: ast.Call, node: ast.arg, path: Path) -> list[Part]:
        """What one call gives a parameter; its default where it gives nothing."""
        if node in (function.node.args.vararg, function.node.args.kwarg):
            return self._gathered(function, module, call, node, path)
        filled = self.program.arguments(function, call, bound=self.sources.bound(function, module, call))
        if filled is None:
            return [Question("handed", (function, module, call, node.arg, path))]
        scope, given = (
            (module.scope_of(call), filled[node.arg])
            if node.arg in filled
            else (function.scope.parent or function.scope, function.defaults.get(node.arg))
        )
        return [self.value(scope, given, path)] if given is not None else []


def _first_star(call: ast.Call) -> int:
    return next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))


def _nothing(answer: Answer | None) -> bool:
    """Whether an answer tells of no value that is given."""
    return all(o.kind in ("unknown", "parameter") for o in answer or ())
