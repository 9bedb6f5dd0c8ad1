"""A place seen from both sides of a call: `args.scaler` of the caller is `options.scaler` of a callee with that parameter. Also
of calls through something that stands between: `fn = self.prepare`, `fn()`; `partial(run, args)(model)`; `phases["train"](args)`;
`go = lambda: self.prepare()`, `go()`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from amp_migrate.audit.paths.facts import Facts
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.unset.places import Body, Event, Guards, below, place_of, root
from amp_migrate.audit.values.same import is_partial
from amp_migrate.audit.values.values import Values

SETTING = ("update", "setdefault", "add_scaler", "__setattr__", "register_buffer", "register_parameter")  # of an object
ANY = "*"
DEPTH = 4


class Passing:
    """How calls of one program hand places on."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program
        self._callees: dict[ast.Call, list[Function]] = {}
        self._written: dict[ast.Call, ast.Call] = {}
        self._given: dict[ast.Call, tuple[str, ...]] = {}
        self._concerning: dict[tuple[Body, str], list[tuple[ast.stmt, Event]]] = {}
        self._handing: dict[Body, list[tuple[ast.stmt, Event, frozenset[str]]]] = {}
        self._inner: dict[Scope, set[str]] = {}

    def callees(self, body: Body, call: ast.Call) -> list[Function]:
        """The functions of the program that a call runs, as far as that is known without guessing."""
        if call not in self._callees:
            found = list(dict.fromkeys(self._resolve(body, call)))
            if len(found) > 1:  # a name that is defined twice
                found = [f for f in found if fits(f, self._direct(body, call), self.fills_self(body, call, f))] or found
            self._callees[call] = found
        return self._callees[call]

    def _direct(self, body: Body, call: ast.Call) -> ast.Call:
        """A call as it would be written without what stands between: see `directly`."""
        if call not in self._written:
            self._written[call] = directly(self.program, body.module.scope_of(call), call)
        return self._written[call]

    def _resolve(self, body: Body, call: ast.Call) -> list[Function]:
        scope = body.module.scope_of(call)
        call = self._direct(body, call)
        found = self.program.definitions(scope, call.func, guess=False)
        if found or not isinstance(call.func, ast.Attribute) or place_of(call.func.value) is None:
            return self.program.run_by(found)
        named = self.program.methods_named(call.func.attr)
        return self.values.methods(scope, call.func.value, call.func.attr) if named else []

    def concerning(self, body: Body, place: str) -> Sequence[tuple[ast.stmt, Event]]:
        """What of that which runs other code in a body, or stores where it is not known, can have to do with a place."""
        name = root(place)
        known = self._concerning.get((body, name))
        if known is None:
            if body not in self._handing:
                self._handing[body] = [(s, e, self._names_handed(body, e)) for s, e in body.running]
            free = body.scope.binder(name)
            known = self._concerning[body, name] = [
                (stmt, event)
                for stmt, event, names in self._handing[body]
                if name in names or ANY in names or (free is not None and self._may_run(free, event))
            ]
        return known

    def _names_handed(self, body: Body, event: Event) -> frozenset[str]:
        """The names that begin what an event hands on, or stores to; `ANY` where these may be all."""
        node = event.node
        if event.kind == "store":
            return frozenset({root(event.text)})
        if event.kind == "mention":
            named = isinstance(node, ast.Name) and self.program.definitions(
                body.module.scope_of(node), node, guess=False
            )
            return frozenset({ANY}) if named else frozenset()
        assert isinstance(node, ast.Call)
        if _is_super(node) or (isinstance(node.func, ast.Attribute) and node.func.attr in SETTING):
            return frozenset({ANY})
        return frozenset(root(text) for text in (*self._handed(node), *self._handed(self._direct(body, node))))

    def _may_run(self, free: Scope, event: Event) -> bool:
        return isinstance(event.node, ast.Call) and event.kind == "call" and self._may_reach(free, event.node)

    def down(self, body: Body, call: ast.Call, place: str) -> Iterator[tuple[Function, str]]:
        """The functions that a call runs and that can reach a place, each with what they write for it."""
        handed = any(t != place and below(place, t) for t in self._handed(self._direct(body, call)))
        free = body.scope.binder(root(place))
        if not handed and not _is_super(call) and not (free is not None and self._may_reach(free, call)):
            return
        for callee in self.callees(body, call):
            inner = self._inside(body, call, callee, place)
            if inner is not None:
                yield callee, inner

    def _handed(self, call: ast.Call) -> tuple[str, ...]:
        """The places that a call is given, its receiver among them."""
        known = self._given.get(call)
        if known is None:
            given = [place_of(a) for a in syntax.given(call)]
            given += [place_of(call.func.value)] if isinstance(call.func, ast.Attribute) else []
            known = self._given[call] = tuple(t for t in given if t is not None)
        return known

    def _may_reach(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call may run a function that sees the names of a scope: one that is defined in it."""
        if scope.is_class:
            return False
        if scope not in self._inner:
            self._read_inner(scope.module)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        return name in self._inner[scope] or (isinstance(call.func, ast.Name) and not _is_imported(scope, call.func.id))

    def _read_inner(self, module: Module) -> None:
        """Of each scope of a file the names of those that stand in it."""
        for scope in module.scopes:
            self._inner.setdefault(scope, set())
            at = scope.parent
            while at is not None:
                self._inner.setdefault(at, set()).add(getattr(scope.node, "name", ""))
                at = at.parent

    def _inside(self, body: Body, call: ast.Call, callee: Function, place: str) -> str | None:
        bound = self.fills_self(body, call, callee)
        call = self._direct(body, call)
        first = callee.parameters[0].arg if callee.bound and callee.parameters else None
        if first is not None and isinstance(call.func, ast.Attribute) and callee.name == call.func.attr:
            receiver = place_of(call.func.value)
            if _is_super(call) and body.function is not None and body.function.parameters:
                receiver = body.function.parameters[0].arg
            if receiver is not None and place != receiver and below(place, receiver):
                return first + place[len(receiver) :]
        filled = self.program.arguments(callee, call, bound=bound) or {}
        for name, value in filled.items():
            text = place_of(value)
            if text is not None and text != place and below(place, text):
                return name + place[len(text) :]
        scope = callee.scope.binder(root(place))
        return place if scope is not None and scope is body.scope.binder(root(place)) else None

    def up(self, body: Body, call: ast.Call, callee: Function, place: str) -> str | None:
        """What the caller writes for a place of a function that it calls; None where it writes nothing for it."""
        name, rest = root(place), place[len(root(place)) :]
        bound = self.fills_self(body, call, callee)
        call = self._direct(body, call)
        if callee.bound and callee.parameters and callee.parameters[0].arg == name:
            if _is_super(call) and body.function is not None and body.function.parameters:
                return body.function.parameters[0].arg + rest
            if not isinstance(call.func, ast.Attribute) or callee.name != call.func.attr:
                return None
            receiver = place_of(call.func.value)
            return receiver + rest if receiver is not None else None
        if callee.scope.binder(name) is callee.scope:
            filled = self.program.arguments(callee, call, bound=bound) or {}
            text = place_of(filled[name]) if name in filled else None
            return text + rest if text is not None else None
        return place if body.scope.binder(name) is callee.scope.binder(name) else None

    def mentioned(self, body: Body, event: Event, place: str) -> Iterator[tuple[Function, str]]:
        """A function handed on as a value, if it can reach the place through the scope around it."""
        assert isinstance(event.node, ast.expr)
        if not isinstance(event.node, ast.Name):
            return
        for d in self.program.definitions(body.module.scope_of(event.node), event.node, guess=False):
            if isinstance(d, Function):
                scope = d.scope.binder(root(place))
                if scope is not None and scope is body.scope.binder(root(place)):
                    yield d, place

    def guards(self, body: Body, call: ast.Call, callee: Function, facts: Facts) -> Guards | None:
        """What facts at the start of a callee say of the caller's values; None where they contradict its arguments."""
        bound = self.fills_self(body, call, callee)
        call = self._direct(body, call)
        filled = {**callee.defaults, **(self.program.arguments(callee, call, bound=bound) or {})}
        if callee.bound and callee.parameters and isinstance(call.func, ast.Attribute):
            filled.setdefault(callee.parameters[0].arg, call.func.value)
        guards: list[tuple[ast.expr, bool]] = []
        for key, holds in sorted(facts):
            swapped = _Swap(filled, callee, body)
            try:
                test = swapped.visit(ast.parse(key, mode="eval")).body
            except SyntaxError:
                continue
            if not swapped.lost:
                guards.append((test, holds))
        return tuple(guards)

    def fills_self(self, body: Body, call: ast.Call, callee: Function) -> bool:
        """Whether a call of a method fills `self` by itself: not `Trainer.fit(trainer, x)`."""
        if not callee.bound:
            return False
        scope, call = body.module.scope_of(call), self._direct(body, call)
        if isinstance(call.func, ast.Attribute) and callee.name == call.func.attr and callee.name != "__init__":
            on = self.program.definitions(scope, call.func.value, guess=False)
            return not any(isinstance(d, Class) for d in on)
        return not (
            callee.name == "__init__" and isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
        ) or _is_super(call)


def constants_given(function: Function, filled: Mapping[str, ast.expr]) -> Iterator[tuple[str, ast.Constant]]:
    """The constants that parameters hold in a call: those among its arguments, and the defaults of the others."""
    for name, value in {**function.defaults, **filled}.items():
        if isinstance(value, ast.Constant):
            yield name, value


def _is_imported(scope: Scope, name: str) -> bool:
    found = scope.binder(name)
    bindings = found.bindings[name] if found is not None else []
    return all(isinstance(b, (ast.Import, ast.ImportFrom)) for b in bindings)


def fits(function: Function, call: ast.Call, bound: bool) -> bool:
    """Whether a call gives each parameter of a function that needs a value one, and nothing that it does not take."""
    return misfit(function.node.args, call, 1 if bound else 0) is None


def misfit(a: ast.arguments, call: ast.Call, filled: int) -> str | None:
    """What is wrong with the arguments of a call for a signature whose first parameters are `filled`; None if nothing."""
    positional = [p.arg for p in (*a.posonlyargs, *a.args)][filled:]
    only = {p.arg for p in a.posonlyargs}
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    unpacked = any(k.arg is None for k in call.keywords)
    given = len([x for x in call.args if not isinstance(x, ast.Starred)])
    if given > len(positional) and a.vararg is None:
        return f"it takes {len(positional)} positional arguments, and {given} are given"
    names = [k.arg for k in call.keywords if k.arg is not None]
    takes = {n for n in positional if n not in only} | {p.arg for p in a.kwonlyargs}
    for name in names:
        if name not in takes and a.kwarg is None:
            return f"it has no parameter {name}"
        if not starred and name in positional[:given]:
            return f"{name} is given twice"
    if unpacked:
        return None
    required = positional[: len(positional) - len(a.defaults)] if len(a.defaults) < len(positional) else []
    missing = [] if starred else [n for n in required[given:] if n not in names]
    missing += [p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is None and p.arg not in names]
    return f"{' and '.join(missing)} is missing" if missing else None


def _is_super(call: ast.Call) -> bool:
    f = call.func
    if not isinstance(f, ast.Attribute) or not isinstance(f.value, ast.Call):
        return False
    return isinstance(f.value.func, ast.Name) and f.value.func.id == "super"


class _Swap(ast.NodeTransformer):
    """Puts the arguments of a call in the place of the parameters; `lost` where a name means nothing to the caller."""

    def __init__(self, filled: dict[str, ast.expr], callee: Function, body: Body) -> None:
        self.filled = filled
        self.callee = callee
        self.body = body
        self.lost = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.filled:
            return copy.deepcopy(self.filled[node.id])
        scope = self.callee.scope.binder(node.id)
        if scope is self.callee.scope or (scope is not None and scope is not self.body.scope.binder(node.id)):
            self.lost = True
        return node


def directly(program: Program, scope: Scope, call: ast.Call) -> ast.Call:
    """A call with what it runs, and all that this is given, written out; the call itself where nothing stands between, or
    where that may be more than one thing."""
    func, args, keywords = call.func, call.args, call.keywords
    for _ in range(DEPTH):
        value = _kept(scope, func)
        if isinstance(value, ast.Lambda) and isinstance(value.body, ast.Call) and not syntax.walk(value.args)[1:]:
            if args or keywords:
                break
            func, args, keywords = value.body.func, value.body.args, value.body.keywords
            continue
        value = func if value is None else value
        if is_partial(value, program, scope):
            func, args, keywords = value.args[0], [*value.args[1:], *args], [*value.keywords, *keywords]
        elif value is not func and isinstance(value, (ast.Name, ast.Attribute)):
            func = value
        else:
            break
    return call if func is call.func else ast.copy_location(ast.Call(func, args, keywords), call)


def _kept(scope: Scope, func: ast.expr) -> ast.expr | None:
    """The one value of a name, or of an entry of a mapping that is written out there."""
    if isinstance(func, ast.Subscript) and isinstance(func.slice, ast.Constant) and isinstance(func.value, ast.Name):
        table = _once(scope, func.value.id)
        if isinstance(table, ast.Dict) and _only_looked_up(scope, func.value.id):
            found = [v for k, v in zip(table.keys, table.values, strict=True) if _same(k, func.slice)]
            return found[0] if len(found) == 1 else None
    return _once(scope, func.id) if isinstance(func, ast.Name) else None


def _only_looked_up(scope: Scope, name: str) -> bool:
    """Whether the entries of a mapping are read, and nothing else is done with it."""
    uses = [(n, scope.module.parents.get(n)) for n in scope.module.loads.get(name, ())]
    return all(isinstance(p, ast.Subscript) and p.value is n and isinstance(p.ctx, ast.Load) for n, p in uses)


def _same(key: ast.expr | None, other: ast.Constant) -> bool:
    return isinstance(key, ast.Constant) and key.value == other.value


def _once(scope: Scope, name: str) -> ast.expr | None:
    """What a name is given by the only statement that binds it."""
    binder = scope.binder(name)
    bindings = binder.bindings[name] if binder is not None else []
    made = bindings[0] if len(bindings) == 1 else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
        return None
    return made.value
