"""What an expression stands for at one place on one way, in the order of statements: which call made it.

`Values` knows no order: a name that is bound anew is all that it ever was. Here the assignments that reach a place decide, along
the calls of the way. What that does not decide raises `Undecided`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.flow import Graph, Node, TooManyPaths, Walk, walk
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Class, Function, Module
from amp_migrate.audit.program.targets import Path, given_to, key_of, put_later, targets
from amp_migrate.audit.values.names import OPTIONS
from amp_migrate.audit.values.same import PASSING, SELF_RETURNING, gathered, initialized, picked
from amp_migrate.audit.values.search import TAKING
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.frames import NONE, Answer, Frame, Made
from amp_migrate.audit.ways.within import may_follow

DEEPEST = 24
Body = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
SEQUENCES = (ast.Tuple, ast.List, ast.Set)


class Undecided(Exception):
    """What an expression is cannot be told."""


class Ordered:
    """Answers for one state of a program."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program
        self._names_bound: dict[ast.stmt, dict[str, ast.AST]] = {}
        self._active: set[object] = set()

    def of(self, frame: Frame, at: ast.AST, expr: ast.expr, item: Path = (), depth: int = 0) -> Answer:
        """What an expression is where a node of the frame's body stands."""
        if depth > DEEPEST:
            raise Undecided
        if isinstance(expr, ast.Name):
            return self._name(frame, at, expr, item, depth)
        if isinstance(expr, ast.Attribute):
            return self._attribute(frame, at, expr, item, depth)
        if isinstance(expr, ast.Call):
            return self._call(frame, at, expr, item, depth)
        if isinstance(expr, ast.Subscript):
            return self.of(frame, at, expr.value, (key_of(expr.slice), *item), depth + 1)
        if isinstance(expr, (ast.NamedExpr, ast.Await, ast.Starred)):
            return self.of(frame, at, expr.value, item, depth + 1)
        if isinstance(expr, ast.IfExp):
            return self._all(frame, at, [(expr.body, item), (expr.orelse, item)], depth)
        if isinstance(expr, ast.Constant):
            return NONE
        if not item:
            return Answer(frozenset({Made(expr, frame)}))
        first, rest = item[0], item[1:]
        if isinstance(expr, SEQUENCES) and not any(isinstance(e, ast.Starred) for e in expr.elts):
            chosen = expr.elts if not isinstance(first, int) else expr.elts[first:][:1]
            return self._all(frame, at, [(e, rest) for e in chosen], depth)
        if isinstance(expr, ast.Dict) and None not in expr.keys:
            pairs = [(key_of(k) if k is not None else None, v) for k, v in zip(expr.keys, expr.values, strict=True)]
            return self._all(frame, at, [(v, rest) for k, v in pairs if None in (first, k) or k == first], depth)
        if isinstance(expr, COMPREHENSIONS):
            value = expr.value if isinstance(expr, ast.DictComp) else expr.elt
            return self.of(frame, value, value, rest, depth + 1)
        raise Undecided

    def _all(self, frame: Frame, at: ast.AST, exprs: Iterable[tuple[ast.expr, Path]], depth: int) -> Answer:
        found = NONE
        for expr, item in exprs:
            found |= self.of(frame, at, expr, item, depth + 1)
        return found

    # -- names -------------------------------------------------------------------------------------------------------

    def _name(self, frame: Frame, at: ast.AST, expr: ast.Name, item: Path, depth: int) -> Answer:
        name, module = expr.id, frame.module
        for around in (expr, at):
            for node in module.ancestors(around):
                for generator in getattr(node, "generators", ()):
                    if given := given_to(generator, name):
                        return self._all(frame, generator.iter, [(v, (*i, *item)) for v, i in given], depth)
        binder = module.scope_of(at).binder(name)
        if binder is not None and binder is module.top and frame.function is not None:
            below, above = frame, frame.above
            while above is not None and (above.function is not None or above.module is not module):
                below, above = above, above.above
            if above is None or below.call is None:
                nodes = binder.bindings[name]
                if len(nodes) != 1 or module.function_around(nodes[0]) is not None:
                    raise Undecided
                return self._bound(Frame(module, None), nodes[0], name, item, depth)
            return self._name(
                above, below.call, ast.copy_location(ast.Name(name, ast.Load()), below.call), item, depth + 1
            )
        elif binder is not frame.scope:
            raise Undecided
        nodes = [n for n in binder.bindings[name] if not isinstance(n, ast.comprehension)]
        if any(module.function_around(n) is not frame.function for n in nodes if not isinstance(n, ast.arg)):
            raise Undecided  # `global model` in another function
        found = NONE
        for last in self.reaching(frame, at, name):
            if last is None:
                found |= self._parameter(frame, name, item, depth)
            else:
                found |= self._bound(frame, last, name, item, depth)
        return found | self._put(frame, at, name, item, depth)

    def _bound(self, frame: Frame, node: ast.AST, name: str, item: Path, depth: int) -> Answer:
        if isinstance(node, ast.AugAssign):
            if not item:
                raise Undecided
            more = self.of(frame, node, node.value, item, depth + 1)
            return more | self.of(frame, node, ast.copy_location(ast.Name(name, ast.Load()), node), item, depth + 1)
        given = given_to(node, name)
        if not given or isinstance(node, (ast.With, ast.AsyncWith)):
            raise Undecided
        return self._all(frame, node, [(v, (*i, *item)) for v, i in given], depth)

    def _put(self, frame: Frame, at: ast.AST, name: str, item: Path, depth: int) -> Answer:
        """What was put into a container by then."""
        found = NONE
        for put in put_later(frame.module).get(name, ()) if item else ():
            if not isinstance(put.holder, ast.Name) or (within := put.within(item)) is None:
                continue
            if frame.module.scope_of(put.holder).binder(name) is not frame.module.scope_of(at).binder(name):
                continue
            if frame.module.function_around(put.holder) is not frame.function:
                raise Undecided
            if may_follow(frame.module, put.value, at):
                found |= self.of(frame, put.value, put.value, within, depth + 1)
        return replace(found, sure=found.sure and (item[:1] == (None,) or not found.made))

    def _parameter(self, frame: Frame, name: str, item: Path, depth: int) -> Answer:
        function = frame.function
        arg = next((p for p in function.parameters if p.arg == name), None) if function is not None else None
        if function is None or arg is None:
            raise Undecided
        if frame.call is not None and frame.above is not None:
            given = self.program.arguments(function, frame.call)
            written = given if given is not None else self._written(function, frame.call)
            if name in written:
                return self.of(frame.above, frame.call, written[name], item, depth + 1)
            if given is None or name not in function.defaults:
                raise Undecided
            return self.of(frame, arg, function.defaults[name], item, depth + 1)
        if item:
            raise Undecided
        own = Made(arg, None)
        origins = self.values.origins(
            function.scope, ast.copy_location(ast.Name(name, ast.Load()), function.node.body[0])
        )
        makers = {Made(o.node, None) for o in origins if isinstance(o.node, ast.Call) and not o.path}
        known = len(makers) == len([o for o in origins if not isinstance(o.node, ast.Constant)])
        return Answer(frozenset(makers), sure=False) if makers and known else Answer(frozenset({own}), sure=False)

    def _written(self, function: Function, call: ast.Call) -> dict[str, ast.expr]:
        """What a call gives parameters itself, beside `*args` and `**kwargs`, which give others."""
        plain = list(takewhile(lambda a: not isinstance(a, ast.Starred), call.args))
        own = ast.Call(call.func, plain, [k for k in call.keywords if k.arg is not None])
        return self.program.arguments(function, own, bound=self.program.fills_self(function, call)) or {}

    # -- fields ------------------------------------------------------------------------------------------------------

    def _attribute(self, frame: Frame, at: ast.AST, expr: ast.Attribute, item: Path, depth: int) -> Answer:
        scope = frame.module.scope_of(at)
        owner = self.program.is_self(scope, expr.value)
        if owner is not None:
            text = syntax.text(expr)
            found = NONE
            for node in self.reaching(frame, at, text, owner):
                if isinstance(node, ast.Call):
                    raise Undecided
                if node is None:
                    found |= self._field(owner, expr.attr, item, depth)
                else:
                    found |= self._all(frame, node, [(v, (*i, *item)) for v, i in _given(node, text)], depth)
            return found
        if self.program.imported(scope, expr) is not None:
            raise Undecided
        found = NONE
        for made in self.of(frame, at, expr.value, (), depth + 1).made:
            cls = self.class_of(made)
            if cls is not None and not self.program.is_network(cls):
                found |= self._field(cls, expr.attr, item, depth)
            elif item:
                raise Undecided
            else:
                found |= Answer(frozenset({made}))  # a part of a network
        return found

    def class_of(self, made: Made) -> Class | None:
        """The program's class whose object it is."""
        if not isinstance(made.node, ast.Call):
            return None
        module = made.frame.module if made.frame is not None else self._home(made.node)
        found = self.program.definitions(module.scope_of(made.node), made.node.func, guess=False) if module else ()
        return found[0] if len(found) == 1 and isinstance(found[0], Class) else None

    def _home(self, node: ast.AST) -> Module | None:
        return next((m for m in self.program.modules.values() if node in m.parents), None)

    def _field(self, owner: Class, name: str, item: Path, depth: int) -> Answer:
        """What a field is, whichever of its assignments was the last."""
        family = self.program.family(owner)
        found, stores = NONE, []
        for store in self.values.stored(name):
            if store.owner is not None and store.owner in family:
                stores.append(store)
            elif store.owner is None and syntax.text(store.holder).rpartition(".")[2] not in OPTIONS:
                raise Undecided  # `trainer.model = ...`
        for store in stores:
            if store.value is None or store.target is None:
                raise Undecided
            if store.value in self._active:
                continue
            self._active.add(store.value)
            try:
                run = Frame(store.scope.module, store.scope.module.function_around(store.target))
                found |= self.of(run, store.value, store.value, (*store.item, *item), depth + 1)
            finally:
                self._active.discard(store.value)
        for scope, holder, put in self.values.put(name) if item else ():
            if (within := put.within(item)) is not None and self.program.is_self(scope, holder.value) in family:
                run = Frame(put.scope.module, put.scope.module.function_around(put.value))
                found |= self.of(run, put.value, put.value, within, depth + 1)
        if not found.made and not stores:
            raise Undecided
        return found if len(stores) == 1 and not item else replace(found, sure=False)

    def _stored(self, owner: Class, stmt: ast.stmt, text: str) -> ast.AST | None:
        """What of a statement gives `self` another value of a field: the statement, or a call of a method that does."""
        if _given(stmt, text):
            return stmt
        holder, _, name = text.rpartition(".")
        for node in syntax.own_line(stmt):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if syntax.text(node.func.value) == holder and name in self._storing(owner, node.func.attr):
                    return node
        return None

    @kept
    def _storing(self, owner: Class, method: str) -> frozenset[str]:
        """The fields that a method of a class assigns, also by way of others of it, which may call each other."""
        found: set[str] = set()
        methods = [method]
        for name in methods:
            for function in self.program.methods(owner, name):
                first = function.parameters[0].arg if function.parameters else "self"
                for node in syntax.own_nodes(function.node):
                    if isinstance(node, ast.Attribute) and syntax.text(node.value) == first:
                        if isinstance(node.ctx, ast.Store):
                            found.add(node.attr)
                        elif isinstance(function.module.parents.get(node), ast.Call) and node.attr not in methods:
                            methods.append(node.attr)
        return frozenset(found)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, frame: Frame, at: ast.AST, call: ast.Call, item: Path, depth: int) -> Answer:
        scope, func = frame.module.scope_of(at), call.func
        name = self.program.dotted(scope, func)
        position = PASSING.get(name or "")
        if position is not None and len(call.args) > position:
            return self.of(frame, at, call.args[position], item, depth + 1)
        if isinstance(func, ast.Attribute) and name is None:
            if func.attr in SELF_RETURNING:
                return self.of(frame, at, func.value, item, depth + 1)
            if func.attr in TAKING and call.args:
                return self.of(frame, at, func.value, (key_of(call.args[0]), *item), depth + 1)
        own = isinstance(func, ast.Name) and scope.binder(func.id) is None
        if own and item and (whole := gathered(call, item)) is not None:
            return self.of(frame, at, *whole, depth + 1)
        if name == "apex.amp.initialize" and (given := initialized(call, item)) is not None:
            return self.of(frame, at, given[0], given[1], depth + 1)
        found = self.program.definitions(scope, func, guess=False)
        if any(isinstance(d, Function) for d in found):
            return self._returned(frame, call, found, item, depth)
        if item or name == "apex.amp.initialize" or (not found and picked(call, item, name)):
            raise Undecided
        return Answer(frozenset({Made(call, frame)}))

    def _returned(
        self, frame: Frame, call: ast.Call, found: Iterable[Function | Class], item: Path, depth: int
    ) -> Answer:
        """What a function of the program makes or gives back."""
        functions = [d for d in found if isinstance(d, Function)]
        function = functions[0]
        plain = all(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.node.decorator_list)
        returned = list(syntax.own(function.node, ast.Return))
        if len(functions) != 1 or not plain or not returned or function in frame.functions:
            raise Undecided
        inner = Frame(function.module, function, call, frame)
        answer = NONE
        for stmt in returned:
            if stmt.value is not None:
                answer |= self.of(inner, stmt, stmt.value, item, depth + 1)
        return answer if len(returned) == 1 else replace(answer, sure=False)

    # -- order -------------------------------------------------------------------------------------------------------

    def reaching(self, frame: Frame, at: ast.AST, name: str, owner: Class | None = None) -> list[ast.AST | None]:
        """The assignments of a name, or of a field of the object that a body is a method of, that may be the last one before a
        node; None: what it was when the body began."""
        body = frame.function.node if frame.function is not None else frame.module.tree
        stmt = frame.module.statement(at)
        there = [n for n in self._graph(body).of(stmt) if n.kind != "leave"]
        if not there:
            raise Undecided
        walked = self._walked(body, name, owner)
        if walked is None:
            raise Undecided
        states = [state for node in there for state in walked.at(node)]
        if isinstance(stmt, (ast.For, ast.AsyncFor)) and at is not stmt and given_to(stmt, name):
            states = [s for s in states if s is not stmt]  # its iterable is read before its first turn
        return list(dict.fromkeys(states))

    @kept
    def _graph(self, body: Body) -> Graph:
        return Graph(body.body)

    @kept
    def _walked(self, body: Body, name: str, owner: Class | None) -> Walk[ast.AST | None] | None:
        """Which assignment was the last one, at every node of a body; None where it has too many paths."""

        def step(node: Node, state: ast.AST | None) -> Iterable[ast.AST | None]:
            if node.stmt is None or node.kind == "leave":
                return [state]
            found = self._binds(node.stmt, name) if owner is None else self._stored(owner, node.stmt, name)
            return [state if found is None else found]

        try:
            return walk(self._graph(body), [(frozenset(), None)], step)
        except TooManyPaths:
            return None

    def _binds(self, stmt: ast.stmt, name: str) -> ast.AST | None:
        if stmt not in self._names_bound:
            self._names_bound[stmt] = _names_bound(stmt)
        return self._names_bound[stmt].get(name)


@kept
def ordered(values: Values) -> Ordered:
    """The answers for one state of a program: all who ask share them."""
    return Ordered(values)


def _names_bound(stmt: ast.stmt) -> dict[str, ast.AST]:
    """The names that a statement binds, each with the part of it that does."""
    if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {stmt.name: stmt}
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        return {(a.asname or a.name).partition(".")[0]: stmt for a in stmt.names}
    found: dict[str, ast.AST] = {}
    for node in (stmt, *(n for n in syntax.own_line(stmt) if isinstance(n, ast.NamedExpr))):
        for target, _, _ in targets(node):
            for n in syntax.walk(target):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                    found.setdefault(n.id, node)
    return found


def _given(node: ast.AST, text: str) -> list[tuple[ast.expr, Path]]:
    """The values that a statement gives a field."""
    found: list[tuple[ast.expr, Path]] = []
    for target, value, item in targets(node):
        parts = (
            [(target, ())]
            if not isinstance(target, (ast.Tuple, ast.List))
            else [(e, (i,)) for i, e in enumerate(target.elts)]
        )
        found += [(value, (*item, *i)) for t, i in parts if value is not None and syntax.text(t) == text]
    return found
