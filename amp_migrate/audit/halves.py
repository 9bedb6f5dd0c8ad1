"""Which values are float32, half or integer, under Apex before and under autocast now, followed through statements.

Each expression gets a pair: its dtype as the program computed it under Apex, and as it computes it now. "maybe" stands for
the output of a model whose last layer is out of sight. Statements are run in order, branches are joined, loops gone through
twice; calls of functions of the program that are given half values are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from amp_migrate.audit import dtypes as known
from amp_migrate.audit import syntax
from amp_migrate.audit.forwards import Forward
from amp_migrate.audit.mixed import Mixed
from amp_migrate.audit.program import COMPREHENSIONS, Class, Function, Module, Scope

Dtype = Literal["half", "maybe", "float", "int", "number", "?"]
DEPTH = 3
MOST = 2000  # functions followed for one migration, from whichever call


@dataclass(frozen=True)
class Value:
    """A tensor, or a container of such: `items` where it is a tuple whose entries are told apart."""

    was: Dtype
    now: Dtype
    items: tuple[Value, ...] | None = None
    reduced: bool = False  # a sum or mean outside of any region
    numpy: bool = False
    origin: str = ""  # the forward it comes from

    @property
    def half(self) -> bool:
        return self.now in ("half", "maybe")

    def entry(self) -> Value:
        if self.items:
            return join(self.items)
        return self


UNKNOWN = Value("?", "?")
NUMBER = Value("number", "number")
INTEGER = Value("int", "int")
FLOAT = Value("float", "float")
HALF = Value("half", "half")
CAST = ".half()"  # the origin of a value that the program makes half itself

Report = Callable[[str, Module, ast.AST, Value, str], None]  # kind, place, value, detail
Env = dict[str, Value]


def join(values: Iterable[Value]) -> Value:
    found = list(values)
    if not found:
        return UNKNOWN
    result = found[0]
    for value in found[1:]:
        if value == result:
            continue
        items = None
        if result.items and value.items and len(result.items) == len(value.items):
            items = tuple(join(p) for p in zip(result.items, value.items, strict=True))
        result = Value(
            _join(result.was, value.was),
            _join(result.now, value.now),
            items,
            result.reduced or value.reduced,
            result.numpy or value.numpy,
            result.origin or value.origin,
        )
    return result


def _join(one: Dtype, other: Dtype) -> Dtype:
    if one == other:
        return one
    if {one, other} <= {"half", "maybe", "?"} and "half" in (one, other):
        return "maybe"
    return "?"


def promoted(one: Dtype, other: Dtype) -> Dtype:
    for dtype in ("?", "float", "half", "maybe", "int"):
        if dtype in (one, other):
            if dtype == "maybe" and "half" in (one, other):
                return "half"
            return dtype
    return "number"


class Halves:
    """Follows values through the program after a migration; tells `report` of what is computed otherwise now."""

    def __init__(self, both: Mixed, report: Report) -> None:
        self.both = both
        self.report = report
        self.program = both.review.after
        self.values = both.after.values
        self.regions = both.after.regions
        self.patches = any(s.patches for s in both.removed)
        self.floats = both.floats
        self.running = both.running
        self._outputs: dict[Function, Value] = {}
        self._inside: dict[Function, bool | None] = {}
        self._active: list[Function] = []
        self._results: dict[tuple[Function, bool, frozenset[tuple[str, Value]]], Value] = {}
        self._followed = 0

    # -- bodies ------------------------------------------------------------------------------------------------------

    def run(self, module: Module, function: Function | None) -> None:
        """Follow the values of one function, called from wherever it is; or of a module's own code."""
        if function is None:
            Body(self, module, {}, False, True).block(module.tree.body)
            return
        inside = self.inside(function)
        if inside is None:
            return
        value = self.call(function, {}, inside, True)
        halves = [v for v in (value, *(value.items or ())) if v.half]
        if halves and (self.floats or self.patches) and not self.program.callers(function):
            for where, mention in self.both.after.chains.mentions(function):
                parent = where.parents.get(mention)
                if isinstance(parent, ast.Call) and mention in parent.args:
                    taker = self.program.dotted(where.scope_of(parent), parent.func)
                    if taker is not None and not self.program.callees(where, parent):
                        last = [n for n in syntax.walk(function.node) if isinstance(n, ast.Return)]
                        self.report("returned", module, last[-1], halves[0], taker)

    def call(self, function: Function, env: Env, inside: bool, told: bool) -> Value:
        """What a function returns, given what its parameters are."""
        if function in self._active or len(self._active) > DEPTH:
            return UNKNOWN
        key = (function, inside, frozenset((k, v) for k, v in env.items() if v != UNKNOWN))
        if not told and key in self._results:
            return self._results[key]
        self._followed += 1
        if self._followed > MOST:
            return UNKNOWN
        self._active.append(function)
        own = self.regions.of_function(function)
        body = Body(self, function.module, dict(env), inside or (own is not None and not own.off), told)
        body.block(function.node.body)
        self._active.pop()
        self._results[key] = body.result()
        return self._results[key]

    def inside(self, function: Function) -> bool | None:
        """Whether a function runs in a region that its callers open; None where some do and some do not."""
        if function not in self._inside:
            self._inside[function] = False
            found: set[bool | None] = set()
            for module, call in self.program.callers(function):
                region = self.regions.nearest(module, call)
                caller = module.function_around(call)
                if region is not None:
                    found.add(not region.off)
                else:
                    found.add(self.inside(caller) if caller is not None else False)
            for module, call in self.both.after.forwards.callers(function):
                region = self.regions.nearest(module, call)
                found.add(region is not None and not region.off)
            self._inside[function] = next(iter(found)) if len(found) == 1 else False if not found else None
        return self._inside[function]

    # -- models ------------------------------------------------------------------------------------------------------

    def output(self, forward: Forward, arity: int | None = None) -> Value:
        """What a forward gives in a region."""
        found = [self._output(f) for f in self.both.after.forwards.runs(forward)]
        if not found and forward.method == "generate":
            return INTEGER  # tokens
        if not found and self.layer(forward.scope, forward.model) in known.HALF_LAYERS:
            found = [HALF]
        value = join(found) if found else Value("maybe", "maybe")
        if value.items is None and value.now == "?":
            value = Value("maybe", "maybe")
        return self._as_apex(value, syntax.text(forward.call.func))

    def _as_apex(self, value: Value, origin: str) -> Value:
        items = tuple(self._as_apex(i, origin) for i in value.items) if value.items is not None else None
        was: Dtype = value.was if value.was not in ("half", "maybe") or not self.floats else "float"
        return replace(value, was=was, items=items, origin=origin)

    def _output(self, function: Function) -> Value:
        if function not in self._outputs:
            self._outputs[function] = UNKNOWN
            self._outputs[function] = self.call(function, {}, True, False)
        return self._outputs[function]

    def layer(self, scope: Scope, func: ast.expr) -> str | Class | None:
        """What a callable is: `Linear` of torch.nn, or a class of the program."""
        if isinstance(func, ast.Call):
            name = self.program.dotted(scope, func.func)
            return self._layer_name(name, scope, func)
        found: set[str | Class] = set()
        for origin in self.values.origins(scope, func):
            if not isinstance(origin.node, ast.Call):
                return None
            there = origin.module.scope_of(origin.node)
            classes = [
                d for d in self.program.definitions(there, origin.node.func, guess=False) if isinstance(d, Class)
            ]
            if classes:
                found.add(classes[0])
                continue
            name = self._layer_name(self.program.dotted(there, origin.node.func), there, origin.node)
            if name is None:
                return None
            found.add(name)
        return found.pop() if len(found) == 1 else None

    def _layer_name(self, name: str | None, scope: Scope, call: ast.Call) -> str | None:
        if name is None or not name.startswith("torch.nn."):
            return None
        last = name.rpartition(".")[2]
        if last == "Sequential" and call.args and isinstance(call.args[-1], ast.Call):
            inner = self.program.dotted(scope, call.args[-1].func)
            return self._layer_name(inner, scope, call.args[-1])
        return None if last == "Sequential" else last


class Body:
    """One run through a body."""

    def __init__(self, halves: Halves, module: Module, env: Env, inside: bool, told: bool) -> None:
        self.halves = halves
        self.module = module
        self.env = env
        self.inside = inside
        self.told = told
        self.returned: list[Value] = []

    def result(self) -> Value:
        if len({len(v.items or ()) for v in self.returned}) > 1:
            longest = max(self.returned, key=lambda v: len(v.items or ()))
            return longest if longest.items else UNKNOWN
        return join(self.returned)

    def tell(self, kind: str, node: ast.AST, value: Value, detail: str) -> None:
        if self.told and (value.now == "half" or value.origin or kind == "integer"):
            self.halves.report(kind, self.module, node, value, detail)

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign):
            value = self.of(stmt.value)
            for target in stmt.targets:
                self.bind(target, value)
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            self.bind(stmt.target, self.of(stmt.value))
        elif isinstance(stmt, ast.AugAssign):
            value, old = self.of(stmt.value), self.env.get(syntax.text(stmt.target), UNKNOWN)
            if old.now in ("float", "half", "maybe"):
                self.bind(stmt.target, old)
            else:
                now = promoted(old.now, value.now)
                self.bind(stmt.target, replace(value, was=promoted(old.was, value.was), now=now, items=None))
        elif isinstance(stmt, ast.Expr):
            self.of(stmt.value)
        elif isinstance(stmt, ast.Return):
            self.returned.append(self.of(stmt.value) if stmt.value is not None else UNKNOWN)
        elif isinstance(stmt, ast.If):
            self.of(stmt.test)
            self.branches(stmt.body, stmt.orelse)
        elif isinstance(stmt, ast.For | ast.AsyncFor):
            self.bind(stmt.target, self.of(stmt.iter).entry())
            for _ in range(2):
                before = dict(self.env)
                self.block(stmt.body)
                self.merge(before, self.env)
            self.block(stmt.orelse)
        elif isinstance(stmt, ast.While):
            self.of(stmt.test)
            before = dict(self.env)
            self.block(stmt.body)
            self.merge(before, self.env)
        elif isinstance(stmt, ast.With | ast.AsyncWith):
            outside = self.inside
            for item in stmt.items:
                region = self.halves.regions.opened(self.module, item.context_expr)
                if region is not None:
                    self.inside = not region.off
                else:
                    self.of(item.context_expr)
            self.block(stmt.body)
            self.inside = outside
        elif isinstance(stmt, ast.Try):
            self.block(stmt.body)
            for handler in stmt.handlers:
                self.branches(handler.body, [])
            self.block(stmt.orelse)
            self.block(stmt.finalbody)
        elif isinstance(stmt, ast.Assert):
            self.of(stmt.test)

    def branches(self, yes: list[ast.stmt], no: list[ast.stmt]) -> None:
        before = dict(self.env)
        self.block(yes)
        after_yes = self.env
        self.env = before
        self.block(no)
        if yes and isinstance(yes[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            return
        if no and isinstance(no[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            self.env = after_yes
            return
        self.merge(after_yes, self.env)

    def merge(self, one: Env, other: Env) -> None:
        self.env = {
            k: join([one[k], other[k]]) if k in one and k in other else one.get(k) or other[k] for k in {**one, **other}
        }

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            plain = not any(isinstance(e, ast.Starred) for e in target.elts)
            for i, e in enumerate(target.elts):
                if value.items is not None and plain and len(value.items) == len(target.elts):
                    self.bind(e, value.items[i])
                elif value.items is not None:
                    self.bind(e, UNKNOWN)
                else:
                    self.bind(e, value)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value.entry())
        elif isinstance(target, ast.Name | ast.Attribute):
            name = target.id if isinstance(target, ast.Name) else target.attr
            if value.now == "maybe" and not value.reduced and "loss" in name.lower():
                value = UNKNOWN  # what a model calls a loss was mostly computed in float32
            self.env[syntax.text(target)] = value
        elif isinstance(target, ast.Subscript):
            text = syntax.text(target.value)
            if text in self.env and self.env[text].now == "float" and value.half:
                return  # float32[...] = half: stays float32
            self.env[text] = join([self.env[text], value]) if self.env.get(text, UNKNOWN) != UNKNOWN else value

    # -- expressions -------------------------------------------------------------------------------------------------

    def of(self, expr: ast.expr | None) -> Value:
        if expr is None or isinstance(expr, ast.Lambda):
            return UNKNOWN
        if isinstance(expr, ast.Constant):
            return NUMBER if isinstance(expr.value, int | float) else UNKNOWN
        if isinstance(expr, ast.Name):
            return self.env.get(expr.id, UNKNOWN)
        if isinstance(expr, ast.Attribute):
            return self.attribute(expr)
        if isinstance(expr, ast.Subscript):
            return self.subscript(expr)
        if isinstance(expr, ast.BinOp):
            return self.binary(expr)
        if isinstance(expr, ast.UnaryOp):
            value = self.of(expr.operand)
            return UNKNOWN if isinstance(expr.op, ast.Not) else value
        if isinstance(expr, ast.Compare):
            for part in (expr.left, *expr.comparators):
                self.of(part)
            return INTEGER
        if isinstance(expr, ast.BoolOp):
            return join([self.of(v) for v in expr.values])
        if isinstance(expr, ast.IfExp):
            self.of(expr.test)
            return join([self.of(expr.body), self.of(expr.orelse)])
        if isinstance(expr, ast.Tuple | ast.List):
            items = tuple(self.of(e) for e in expr.elts)
            if any(isinstance(e, ast.Starred) for e in expr.elts):
                return join(items)
            if not items:
                return UNKNOWN
            whole = join(items)
            return replace(whole, items=items)
        if isinstance(expr, ast.Dict):
            found = [self.of(v) for v in expr.values]
            return replace(join(found), items=None) if found else UNKNOWN
        if isinstance(expr, COMPREHENSIONS):
            return self.comprehension(expr)
        if isinstance(expr, ast.Call):
            return self.call(expr)
        if isinstance(expr, ast.NamedExpr):
            value = self.of(expr.value)
            self.bind(expr.target, value)
            return value
        if isinstance(expr, ast.Starred | ast.Await):
            return self.of(expr.value)
        if isinstance(expr, ast.JoinedStr | ast.FormattedValue):
            for child in syntax.children(expr):
                if isinstance(child, ast.expr):
                    self.of(child)
        return UNKNOWN

    def attribute(self, expr: ast.Attribute) -> Value:
        text = syntax.text(expr)
        if text in self.env:
            return self.env[text]
        value = self.of(expr.value)
        if expr.attr in ("shape", "device", "dtype", "loss", "grad", "is_cuda", "requires_grad"):
            return UNKNOWN
        return value.entry() if value.half or value.items else UNKNOWN if value.now not in ("int", "float") else value

    def subscript(self, expr: ast.Subscript) -> Value:
        value = self.of(expr.value)
        self.of(expr.slice)
        index = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
        if isinstance(expr.slice, ast.UnaryOp) and isinstance(expr.slice.operand, ast.Constant):
            inner = expr.slice.operand.value
            index = -inner if isinstance(inner, int) and isinstance(expr.slice.op, ast.USub) else None
        if value.items is not None and isinstance(index, int) and -len(value.items) <= index < len(value.items):
            return value.items[index]
        if value.items is not None and not isinstance(expr.slice, ast.Slice):
            return value.entry()
        if isinstance(index, str) and "loss" in index:
            return UNKNOWN
        return value

    def binary(self, expr: ast.BinOp) -> Value:
        left, right = self.of(expr.left), self.of(expr.right)
        if isinstance(expr.op, ast.MatMult):
            return self.operation(expr, "matmul", [left, right], True)
        if isinstance(expr.op, ast.Pow):
            return self.operation(expr, "pow", [left, right], True)
        origin = left.origin or right.origin
        now, was = promoted(left.now, right.now), promoted(left.was, right.was)
        reduced = left.reduced or right.reduced
        return Value(was, now, None, reduced, left.numpy or right.numpy, origin)

    def comprehension(self, expr: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        saved = dict(self.env)
        for generator in expr.generators:
            self.bind(generator.target, self.of(generator.iter).entry())
        value = self.of(expr.value if isinstance(expr, ast.DictComp) else expr.elt)
        self.env = saved
        return replace(value, items=None)

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, expr: ast.Call) -> Value:
        func = expr.func
        scope = self.module.scope_of(expr)
        given = [self.of(a) for a in expr.args]
        named = {k.arg: self.of(k.value) for k in expr.keywords}
        every = [*given, *named.values()]
        if expr in self.halves.running:
            return self.forward(expr, self.halves.running[expr], every)
        name = self.halves.program.dotted(scope, func)
        if isinstance(func, ast.Attribute) and name is None:
            receiver = self.of(func.value)
            cast = self.cast(expr, func, receiver)
            if cast is not None:
                return cast
            if func.attr == "scale" and given and "scaler" in syntax.text(func.value).lower():
                if given[0].half and given[0].reduced:
                    self.tell("scaled", expr, given[0], syntax.text(expr.args[0]))
                return given[0]
            if func.attr in ("append", "extend", "add", "insert", "update", "appendleft") and given:
                self.put(func.value, given[-1])
                return UNKNOWN
            if func.attr.endswith("_") and func.attr[:-1] in ("addmm", "addmv", "addbmm", "baddbmm", "addr"):
                if receiver.now == "float" and any(v.half for v in every):
                    self.tell("inplace", expr, next(v for v in every if v.half), func.attr)
                return receiver
            followed = self.followed(expr, scope, given, named)
            if followed is not None:
                return followed
            integers = func.attr in known.INTEGERS or (func.attr in known.PAIRS and _axis(expr))
            if receiver.now != "?" or receiver.items is not None or integers:
                return self.operation(
                    expr, func.attr, [receiver.entry() if receiver.items else receiver, *given], False
                )
            return self.object(expr, scope, every)
        if name is not None:
            last = name.rpartition(".")[2]
            first = name.partition(".")[0]
            if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional"):
                return UNKNOWN
            if first in ("torch", "numpy", "scipy"):
                return self.library(expr, name, last, given, named)
        followed = self.followed(expr, scope, given, named)
        if followed is not None:
            return followed
        if isinstance(func, ast.Name) and func.id in (
            "list",
            "tuple",
            "sum",
            "float",
            "int",
            "len",
            "zip",
            "enumerate",
        ):
            if func.id in ("list", "tuple") and given:
                return given[0]
            return UNKNOWN
        return self.object(expr, scope, every)

    def put(self, container: ast.expr, value: Value) -> None:
        text = syntax.text(container)
        old = self.env.get(text, UNKNOWN)
        value = replace(value.entry(), items=None)
        self.env[text] = value if old == UNKNOWN else join([old, value])

    def cast(self, expr: ast.Call, func: ast.Attribute, receiver: Value) -> Value | None:
        attr = func.attr
        if attr in ("float", "double") and not expr.args:
            if receiver.now == "int":
                self.tell("integer", expr, receiver, syntax.text(func.value))
            return FLOAT
        if attr == "half" and not expr.args:
            return Value("half", "half", origin=CAST)
        if attr in ("to", "type", "astype"):
            asked = [*expr.args, *(k.value for k in expr.keywords if k.arg in ("dtype", None))]
            for arg in asked:
                name = self.halves.program.dotted(self.module.scope_of(arg), arg) or ""
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                    name = "torch." + arg.value.replace("np.", "")
                name = name.replace("numpy.", "torch.")
                if name in known.FLOAT_TYPES:
                    return FLOAT
                if name in known.HALF_TYPES:
                    return HALF
                if name in known.INTEGER_TYPES:
                    return INTEGER
            if attr in ("type", "astype"):
                return UNKNOWN
            if any(isinstance(a, ast.Attribute) and a.attr == "dtype" for a in asked):
                return UNKNOWN
        return None

    def forward(self, expr: ast.Call, forward: Forward, given: list[Value]) -> Value:
        if self.inside:
            return self.halves.output(forward)
        for value in given:
            if value.half:
                self.tell("module", expr, value, syntax.text(expr.func))
                break
        return UNKNOWN

    def followed(
        self, expr: ast.Call, scope: Scope, given: list[Value], named: dict[str | None, Value]
    ) -> Value | None:
        """A function of the program, run with what it is given."""
        found = self.halves.program.definitions(scope, expr.func, guess=False)
        functions = [d for d in found if isinstance(d, Function)]
        if len(functions) != 1 or len(found) != 1:
            return None if not found else UNKNOWN
        (function,) = functions
        parameters = [p.arg for p in function.parameters]
        if function.bound and parameters:
            parameters = parameters[1:]
        env: Env = {}
        if not any(isinstance(a, ast.Starred) for a in expr.args):
            env = dict(zip(parameters, given, strict=False))
        env |= {k: v for k, v in named.items() if k is not None}
        interesting = any(v.half or v.items for v in env.values())
        if not interesting and "autocast" not in function.module.text:
            return UNKNOWN if not self.inside else self.halves.call(function, env, self.inside, False)
        told = self.told and any(v.half for v in env.values()) and not self.inside
        return self.halves.call(function, env, self.inside, told)

    def object(self, expr: ast.Call, scope: Scope, given: list[Value]) -> Value:
        """A call of an object: a layer, a loss, a module of the program."""
        first = given[0] if given else UNKNOWN
        if not self.inside and not any(v.half for v in given):
            return UNKNOWN
        layer = self.halves.layer(scope, expr.func)
        if isinstance(layer, str):
            if self.inside:
                if layer in known.HALF_LAYERS:
                    return HALF
                if layer in known.FLOAT_LAYERS:
                    return FLOAT
                return replace(first, items=None) if first.now != "?" else UNKNOWN
            if layer in known.HALF_LAYERS and first.half:
                self.tell("module", expr, first, syntax.text(expr.func))
                return UNKNOWN
            if layer in known.LOSSES or layer in ("Softmax", "LogSoftmax"):
                return self.operation(expr, _functional(layer), given, True)
            if layer in ("Sigmoid", "LogSigmoid", "CosineSimilarity"):
                return self.operation(expr, _functional(layer), given, True)
            return replace(first, items=None)
        if isinstance(layer, Class) and self.inside:
            methods = self.halves.program._method(layer, "forward")
            if len(methods) == 1:
                names = [p.arg for p in methods[0].parameters][1:]
                env = dict(zip(names, given, strict=False))
                return self.halves.call(methods[0], env, True, False)
        if layer is None and self.inside and isinstance(expr.func, ast.Attribute):
            if self.halves.program.is_self(scope, expr.func.value) is not None:
                return Value("maybe", "maybe")  # a part of the model that is out of sight
        if isinstance(layer, Class) and not self.inside and any(v.half for v in given):
            methods = self.halves.program._method(layer, "forward")
            if len(methods) == 1:
                names = [p.arg for p in methods[0].parameters][1:]
                env = dict(zip(names, given, strict=False))
                return self.halves.call(methods[0], env, False, self.told)
        return UNKNOWN

    def library(
        self, expr: ast.Call, name: str, last: str, given: list[Value], named: dict[str | None, Value]
    ) -> Value:
        every = [*given, *named.values()]
        if last in ("zeros", "ones", "empty", "full", "rand", "randn", "linspace", "eye"):
            dtype = next((k.value for k in expr.keywords if k.arg == "dtype"), None)
            if dtype is None:
                return FLOAT if name.startswith("torch.") else UNKNOWN
            asked = self.halves.program.dotted(self.module.scope_of(dtype), dtype)
            return HALF if asked in known.HALF_TYPES else INTEGER if asked in known.INTEGER_TYPES else UNKNOWN
        if last in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"):
            return UNKNOWN if any(k.arg == "dtype" for k in expr.keywords) or not given else given[0]
        if last in ("all_gather", "all_reduce", "broadcast", "reduce", "gather", "all_gather_into_tensor"):
            if ".distributed" in name and len(given) >= 2:
                kinds = {v.entry().now for v in given[:2]}
                if "float" in kinds and kinds & {"half", "maybe"}:
                    self.tell("gather", expr, next(v.entry() for v in given[:2] if v.entry().half), last)
            return UNKNOWN
        if name == "torch.save":
            return UNKNOWN
        if last in ("cat", "stack", "concat", "hstack", "vstack", "concatenate") and given:
            return replace(given[0].entry(), items=None)
        if last == "einsum" and len(given) > 1:
            return self.operation(expr, "einsum", given[1:], True)
        if name.startswith("numpy."):
            halves = [v for v in every if v.half]
            if halves and last in (
                "exp",
                "log",
                "sum",
                "power",
                "cumsum",
                "dot",
                "matmul",
                "mean",
                "linalg.norm",
                "norm",
            ):
                if halves[0].was == "float":
                    self.tell("operation", expr, halves[0], f"np.{last}")
                return UNKNOWN
            return (
                given[0].entry()
                if given and last in ("array", "asarray", "concatenate", "vstack", "stack")
                else UNKNOWN
            )
        return self.operation(expr, last, given or every, True)

    def operation(self, expr: ast.expr, name: str, given: list[Value], functional: bool) -> Value:
        """An operation of torch on values: what it computed in before, and what it computes in now."""
        if not given:
            return UNKNOWN
        first = given[0].entry() if given[0].items else given[0]
        if name in known.INTEGERS:
            return INTEGER
        if name in known.PAIRS and (len(given) > 1 or name in ("topk", "sort") or _axis(expr)):
            values = replace(first, items=None)
            return replace(values, items=(values, INTEGER))
        if name in ("numpy", "tolist", "item"):
            return self.out(expr, name, first)
        origin = next((v.origin for v in given if v.origin), "")
        now, was = self.plain([v.now for v in given]), self.plain([v.was for v in given])
        floats = name in known.FLOAT_BOTH or name in known.FLOAT_APEX or (name in known.SOFTMAX and functional)
        upcasts = name in known.FLOAT_BOTH or name in known.FLOAT_NATIVE or name in known.SOFTMAX
        if name == "cpu" and self.halves.patches and now in ("half", "maybe"):
            was = "float"
        if self.inside:
            if name in known.HALF_BOTH or name == "einsum":
                return Value("half", "half", origin=origin)
            if upcasts:
                return FLOAT
            return Value(was, now, origin=origin) if name in known.KEEPING else UNKNOWN
        if self.halves.patches and floats:
            was = "float"
        elif self.halves.patches and name in known.HALF_BOTH:
            was = "half"
        halves = [v for v in given if v.half]
        if halves and name in known.SENSITIVE and was == "float" and now in ("half", "maybe"):
            known_was = halves[0].was == "float" or (self.halves.patches and floats)
            if known_was:
                self.tell("operation", expr, halves[0], name)
                if name in ("sum", "mean"):
                    return Value("float", now, reduced=True, origin=origin)
                return Value("float", "?", origin=origin)
        if name in known.KEEPING or name in known.SENSITIVE:
            return replace(Value(was, now, origin=origin), reduced=any(v.reduced for v in given))
        return UNKNOWN

    def plain(self, given: list[Dtype]) -> Dtype:
        result: Dtype = given[0]
        for dtype in given[1:]:
            if dtype not in ("?", "number", "int"):
                result = promoted(result, dtype)
        return result

    def out(self, expr: ast.expr, name: str, value: Value) -> Value:
        """Values that leave torch: half becomes float16 for NumPy, which computes in it."""
        if name != "numpy" or not value.half or value.was != "float":
            return UNKNOWN if name != "numpy" else value
        parent = self.module.parents.get(expr)
        if isinstance(parent, ast.Attribute) and parent.attr in (
            "tolist",
            "astype",
            "argmax",
            "item",
            "shape",
            "argsort",
        ):
            return UNKNOWN
        self.tell("numpy", expr, value, "")
        return UNKNOWN


def _axis(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and (any(k.arg in ("dim", "axis") for k in expr.keywords) or bool(expr.args))


def _functional(layer: str) -> str:
    return {
        "Softmax": "softmax",
        "LogSoftmax": "log_softmax",
        "Sigmoid": "sigmoid",
        "LogSigmoid": "logsigmoid",
        "CosineSimilarity": "cosine_similarity",
        "CrossEntropyLoss": "cross_entropy",
        "NLLLoss": "nll_loss",
        "MSELoss": "mse_loss",
        "L1Loss": "l1_loss",
        "SmoothL1Loss": "smooth_l1_loss",
        "KLDivLoss": "kl_div",
        "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    }.get(layer, layer)
