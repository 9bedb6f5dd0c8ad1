"""What the origins of a value include: through names, fields, containers, parameters and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.common import COMMON
from amp_migrate.audit.program.module import COMPREHENSIONS, Function, Module, Scope
from amp_migrate.audit.program.named_again import is_made_again, made_by_then
from amp_migrate.audit.program.targets import Path, given_to, key_of, put_later
from amp_migrate.audit.values.asked import Asked
from amp_migrate.audit.values.fields import Fields
from amp_migrate.audit.values.origins import Origin, Sources, in_order
from amp_migrate.audit.values.passed import HANDED, Passed
from amp_migrate.audit.values.same import gathered, initialized, is_mapping, joined_items, mapped, passed_on, picked
from amp_migrate.audit.values.table import Answer, Part, Question, Step

LONGEST = 4  # items of items
FUNCTIONS = 40  # that one expression may be; of more, nothing is said

DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TAKING = frozenset({"get", "setdefault", "pop"})
HOLDING = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential"})  # and give back, by item


class Search:
    """The rules of the table: what each question includes."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.program = sources.program
        passed = self.passed = Passed(sources, self.value)
        fields = self.fields = Fields(sources, self.value, self._exported)
        self.asked = Asked(sources)
        self._made: dict[tuple[ast.Call, str], ast.Attribute] = {}
        self._rules: dict[str, Callable[..., Step]] = {
            "expression": self._expression,
            "name": self._name,
            "made": self._made_again,
            "turn": self._turn,
            "starred": self._starred,
            "imported": self._imported,
            "attribute": fields.attribute,
            "field": fields.field,
            "own_field": fields.own_field,
            "unowned": fields.unowned,
            "recorded": fields.recorded,
            "anybody": fields.anybody,
            "given_back": self._given_back,
            "returned": self._returned,
            "parameter": passed.parameter,
            "handed": passed.handed,
            "on_objects": passed.on_objects.given,
        }

    def step(self, question: Question) -> Step:
        return self._rules[question.rule](*question.about)

    def lost(self, question: Question, asked: Question) -> Origin:
        """What is known of a question that hangs on too much: that the trail is lost where it stands, so that it is taken for
        no other; of one that stands nowhere, where what was `asked` first does."""
        for about in (question.about, asked.about):
            place = next((a for a in about if isinstance(a, (Scope, Module))), None)
            nodes: Iterable[object] = about
            if isinstance(place, Scope) and isinstance(about[1], str):  # a name
                nodes = place.bindings.get(about[1], ())
            node = next((n for n in nodes if isinstance(n, ast.AST) and not isinstance(n, DEFINING)), None)
            if place is not None and node is not None:
                path = about[-1] if isinstance(about[-1], tuple) else ()
                return Origin(place.module if isinstance(place, Scope) else place, node, "unknown", path)
        first = next(iter(self.program.modules.values()))
        return Origin(first, first.tree, "unknown")

    # -- expressions -------------------------------------------------------------------------------------------------

    def value(self, scope: Scope, expr: ast.expr, path: Path) -> Part:
        """What an expression evaluated in a scope may be."""
        if len(path) > LONGEST:
            return Origin(scope.module, expr, "unknown", path)
        if type(expr) is ast.Constant:
            return Origin(scope.module, expr, "constant", path)
        if type(expr) is ast.Name:
            found = scope.binder(expr.id)
            if found is not None and (turn := _turn(found, expr)) is not None:
                return Question("turn", (found, expr.id, turn, path))
            if found is not None:
                made = is_made_again(found, expr.id) and made_by_then(found, expr)
                return Question("made" if made else "name", (found, expr.id, path))
        return Question("expression", (scope, expr, path))

    def _values(self, scope: Scope, exprs: Iterable[ast.expr], path: Path) -> list[Part]:
        return [self.value(scope, e, path) for e in exprs]

    def _expression(self, scope: Scope, expr: ast.expr, path: Path) -> Step:
        unknown = Origin(scope.module, expr, "unknown", path)
        if type(expr) is ast.Name:
            return Step([Question("starred", (scope.module, expr.id, path))], unknown)
        if type(expr) is ast.Call:
            return self._call(scope, expr, path)
        if type(expr) is ast.Attribute:
            owner = self.program.is_self(scope, expr.value)
            if owner is not None:
                return Step([Question("field", (owner, expr.attr, path, True))], unknown)
            return Step([Question("attribute", (scope, self.sources.written(scope, expr), path))], unknown)
        if isinstance(expr, ast.IfExp):
            return Step(self._values(scope, (expr.body, expr.orelse), path))
        if isinstance(expr, ast.BoolOp):
            return Step(self._values(scope, expr.values, path))
        if isinstance(expr, (ast.NamedExpr, ast.Starred, ast.Await)):
            return Step([self.value(scope, expr.value, path)])
        if isinstance(expr, ast.Subscript):
            return Step([self.value(scope, expr.value, (key_of(expr.slice), *path))], unknown)
        if not path:
            return Step([Origin(scope.module, expr, "literal")])
        if isinstance(expr, (ast.Tuple, ast.List, ast.Set)):
            return Step(self._sequence(scope, expr.elts, path), unknown)
        if isinstance(expr, ast.Dict):
            return Step(self._mapping(scope, expr, path), unknown)
        if isinstance(expr, COMPREHENSIONS):
            item = expr.value if isinstance(expr, ast.DictComp) else expr.elt
            return Step([self.value(scope, item, path[1:])])
        if isinstance(expr, ast.BinOp) and (joined := joined_items(expr, path)):
            return Step([self.value(scope, part, item) for part, item in joined], unknown)
        return Step([unknown])

    def _sequence(self, scope: Scope, items: Sequence[ast.expr], path: Path) -> list[Part]:
        first, rest = path[0], path[1:]
        starred = [e.value for e in items if isinstance(e, ast.Starred)]
        if isinstance(first, int) and not starred:
            return self._values(scope, items[first:][:1] if -len(items) <= first else (), rest)
        single = [e for e in items if not isinstance(e, ast.Starred)]
        return self._values(scope, single, rest) + self._values(scope, starred, (None, *rest))

    def _mapping(self, scope: Scope, expr: ast.Dict, path: Path) -> list[Part]:
        found: list[Part] = []
        for key, value in zip(expr.keys, expr.values, strict=True):
            if key is None:
                found.append(self.value(scope, value, path))
            elif path[0] is None or not isinstance(key, ast.Constant) or key.value == path[0]:
                found.append(self.value(scope, value, path[1:]))
        return found

    # -- names -------------------------------------------------------------------------------------------------------

    def _name(self, found: Scope, name: str, path: Path) -> Step:
        """What a name holds that a scope binds."""
        parts = [p for node in found.bindings[name] for p in self._binding(found, name, node, path)]
        if found is found.module.top:
            elsewhere = self.sources.set_elsewhere(found.module, name)
            parts += [self.value(inner, value, (*item, *path)) for inner, value, item in elsewhere]
        if path:
            puts = [(put.scope, put.holder, put) for put in put_later(found.module).get(name, ())]
            for scope, holder, put in (*puts, *self.sources.put_by_others(name)):
                within = put.within(path)
                if within is not None and isinstance(holder, ast.Name) and scope.binder(name) is found:
                    parts.append(self.value(put.scope, put.value, within))
        return Step(parts)

    def _turn(self, found: Scope, name: str, turn: ast.comprehension, path: Path) -> Step:
        """What the variable of a comprehension is in it, whatever else has its name in the function."""
        return Step(self._binding(found, name, turn, path))

    def _made_again(self, found: Scope, name: str, path: Path) -> Step:
        """What a name holds once it is what a call of it made: no more the class that it was."""
        classes = self.program._named(found, name)

        def names_class(node: ast.AST) -> bool:
            if not isinstance(node, ast.Assign):
                return isinstance(node, (ast.ClassDef, ast.Import, ast.ImportFrom))
            return any(d in classes for d in self.program.definitions(found, node.value))

        objects = [n for n in found.bindings[name] if not names_class(n)]
        return Step([p for node in objects for p in self._binding(found, name, node, path)])

    def _binding(self, scope: Scope, name: str, node: ast.AST, path: Path) -> list[Part]:
        module = scope.module
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return [Origin(module, node, "function", path)]
        if isinstance(node, ast.ClassDef):
            return [Origin(module, node, "class", path)]
        if isinstance(node, ast.arg):
            return [Question("parameter", (scope, node, path))]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return [Question("imported", (scope, node, name, path))]
        parts = [self.value(module.scope_of(v), v, (*item, *path)) for v, item in given_to(node, name)]
        return parts or [Origin(module, node, "unknown", path)]

    def _imported(self, scope: Scope, node: ast.AST, name: str, path: Path) -> Step:
        dotted = self.program._imported(scope.module, name, node)
        parts = self._exported(scope.module, dotted, path) if dotted is not None else []
        return Step(parts, Origin(scope.module, node, "unknown", path))

    def _exported(self, module: Module, dotted: str, path: Path) -> list[Part]:
        """What a file of the program holds under a full name."""
        head, _, last = dotted.rpartition(".")
        home = self.program.module_named(head, module) if head else None
        return [] if home is None else self._held(home, last, path)

    def _held(self, home: Module, name: str, path: Path) -> list[Part]:
        if name in home.top.bindings:
            return [Question("name", (home.top, name, path))]
        return [Question("starred", (home, name, path))] if self.sources.stars(home) else []

    def _starred(self, module: Module, name: str, path: Path) -> Step:
        """What `from x import *` brings under a name."""
        return Step([p for home in self.sources.stars(module) for p in self._held(home, name, path)])

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, scope: Scope, expr: ast.Call, path: Path) -> Step:
        name, func = self.program.dotted(scope, expr.func), expr.func
        own = Origin(scope.module, expr, "call", path)
        if name == "apex.amp.initialize":
            back = initialized(expr, path)
            return Step([self.value(scope, *back) if back is not None else own])
        if name not in self.sources.apart and (given := passed_on(expr, name)) is not None:
            return Step([self.value(scope, given, path)])
        if path and name is None and (whole := self._gathered(scope, expr, path)) is not None:
            return Step([self.value(scope, *whole)])
        own_name = isinstance(func, ast.Name) and scope.binder(func.id) is not None
        if (name or not own_name) and (items := picked(expr, path, name)):
            return Step([self.value(scope, *item) for item in items])
        if path and name in HOLDING and not expr.args:
            return Step([])  # but what is put into it
        if path and name == "torch.nn.Sequential":
            return Step(self._sequence(scope, expr.args, path), own)
        if path and name in HOLDING:
            return Step([self.value(scope, expr.args[0], path)])
        if isinstance(func, ast.Name) and func.id == "getattr" and len(expr.args) >= 2:
            return self._by_name(scope, expr, path)
        if path and is_mapping(expr, name, scope) and (parts := mapped(expr, path)):
            return Step([self.value(scope, value, item) for value, item in parts], own)
        found = self.program.definitions(scope, func, guess=False)
        functions = [d for d in found if isinstance(d, Function)]
        if functions:
            return self._given_back(functions, own)
        if found or (name is not None and isinstance(func, ast.Attribute)):
            return Step([own])
        if isinstance(func, ast.Attribute) and self.program.is_self(scope, func.value) is None:
            holder, method = [self.value(scope, func.value, ())], func.attr
            if method in TAKING and expr.args:  # of a mapping: functions and classes that it holds
                holder.append(self.value(scope, func.value, (key_of(expr.args[0]), *path)))
                holder += self._values(scope, expr.args[1:2], path)  # what stands for a key that is missing
            return Step([], own, holder, lambda answers: self._method_run(answers, method, own))
        return Step([], own, [self.value(scope, func, ())], lambda answers: self._run(answers[0], own))

    def _gathered(self, scope: Scope, call: ast.Call, path: Path) -> tuple[ast.expr, Path] | None:
        """What holds the items that a call of Python's own gives, not one of the program's by that name."""
        func = call.func
        own = scope.binder(func.id) if isinstance(func, ast.Name) else self.program.methods_named("values")
        return None if own else gathered(call, path)

    def _method_run(self, answers: list[Answer | None], name: str, own: Origin) -> list[Part]:
        """What a method gives back of objects that come from there; of what is not seen to have one, the call itself, and
        the functions and classes that a mapping holds under what it is asked for."""
        found = [self.program._method(cls, name) for cls, _ in self.fields.classes(answers[0] or frozenset()) or ()]
        functions = tuple(dict.fromkeys(f for methods in found for f in methods))
        if all(found) and 0 < len(functions) <= FUNCTIONS:
            return [Question("given_back", (functions, own))]
        if not functions and 0 < len(likely := self._of_one_family(name)) <= FUNCTIONS:
            return [own, Question("given_back", (likely, own))]
        held = [o for answer in answers[1:] for o in answer or ()]
        seen = all(o.kind not in ("unknown", "class") for o in held)
        if held and seen and answers[0] and all(self._is_mapping(o) for o in answers[0]):
            return [*held]
        return [own, *(o for o in held if o.kind in ("function", "class"))]

    def _is_mapping(self, origin: Origin) -> bool:
        """Whether something is a mapping that is written out."""
        node = origin.node
        if isinstance(node, ast.Call) and not origin.path:
            scope = origin.module.scope_of(node)
            return is_mapping(node, self.program.dotted(scope, node.func), scope)
        return isinstance(node, ast.Dict) and not origin.path

    @kept
    def _of_one_family(self, name: str) -> tuple[Function, ...]:
        """The methods of a name that one family of classes has alone: what an object has that is loaded out of sight."""
        methods = self.program.methods_named(name) if name not in COMMON else []
        bases = self.program.family_up(methods[0].owner) if methods and methods[0].owner is not None else []
        family = {c for base in bases for c in self.program.family(base)}
        return tuple(methods) if all(f.bound and f.owner in family for f in methods) else ()

    def _run(self, callees: Answer | None, own: Origin) -> list[Part]:
        """What a call gives whose callee may be those things: what functions give back; of anything else, itself."""
        parts: list[Part] = []
        for origin in callees or ():
            if origin.kind == "function" and not origin.path:
                parts.append(Question("given_back", ((self.program.function_of(origin.module, origin.node),), own)))
            elif isinstance(origin.node, ast.Lambda) and not origin.path:
                parts.append(self.value(origin.module.scope_for(origin.node), origin.node.body, own.path))
        if callees and all(o.kind == "class" and not o.path for o in callees):
            self.sources.of_held[own.node] = [o.module.class_of[o.node] for o in in_order(callees)]
        if len(parts) > FUNCTIONS:
            return [own]
        return parts if callees is not None and len(parts) == len(callees) else [*parts, own]

    def _given_back(self, functions: Sequence[Function], own: Origin) -> Step:
        """What functions give back; a class method that makes an object with `cls(...)` makes one where it is called, and so
        does a factory that makes what it is asked for."""
        given = [part for f in functions for part in self.passed.given_back(f, own)]
        making = [f for f in functions if f.class_method and f.parameters]
        factories = [f for f in functions if self.asked.making(f)]
        if not making and not factories:
            return Step(given)

        def then(answers: list[Answer | None]) -> list[Part]:
            returned, parts = answers[: len(making)], answers[len(making) :]
            if any(_of_own_class(f, o) for f, answer in zip(making, returned, strict=True) for o in answer or ()):
                return [own]
            if not factories or any(answer is None for answer in parts):
                return [*given]
            told = self.asked.from_call(factories, own)
            return [told(o) for answer in parts for o in answer or ()]

        watched = [Question("returned", (f, ())) for f in making] + (given if factories else [])
        return Step([], own, watched, then)

    def _returned(self, function: Function, path: Path) -> Step:
        """What a function may return."""
        at = function.module
        if len(path) > HANDED:
            return Step([Origin(at, function.node, "unknown", path)])
        return Step([self.value(at.scope_of(value), value, path) for value in self.sources.returns(function)])

    def _by_name(self, scope: Scope, call: ast.Call, path: Path) -> Step:
        """`getattr(x, name)`, where what the name may be is written down."""

        def named(name: str) -> Part:
            made = ast.copy_location(ast.Attribute(value=call.args[0], attr=name, ctx=ast.Load()), call)
            return self.value(scope, self._made.setdefault((call, name), made), path)

        def then(answers: list[Answer | None]) -> list[Part]:
            names = {_text(o) for o in answers[0] or ()}
            known = sorted(n for n in names if n is not None)
            return [named(n) for n in known] if known and len(known) == len(names) else [own]

        own = Origin(scope.module, call, "call", path)
        return Step([], own, [self.value(scope, call.args[1], ())], then)


def _text(origin: Origin) -> str | None:
    """The text that an origin is."""
    value = origin.node.value if isinstance(origin.node, ast.Constant) and not origin.path else None
    return value if isinstance(value, str) else None


def _of_own_class(function: Function, origin: Origin) -> bool:
    """Whether an object is made with the `cls(...)` of a class method."""
    func = origin.node.func if isinstance(origin.node, ast.Call) else None
    return isinstance(func, ast.Name) and origin.module is function.module and func.id == function.parameters[0].arg


def _turn(found: Scope, expr: ast.Name) -> ast.comprehension | None:
    """The comprehension around a name that gives it its value, where other things have that name, too."""
    nodes = found.bindings[expr.id]
    if len(nodes) < 2 or not any(isinstance(n, ast.comprehension) for n in nodes):
        return None
    for around in found.module.ancestors(expr) if expr in found.module.parents else ():
        for generator in around.generators if isinstance(around, COMPREHENSIONS) else ():
            if generator in nodes and not any(n is expr for n in syntax.walk(generator.iter)):
                return generator
    return None
