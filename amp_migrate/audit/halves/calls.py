"""Calls of whatever a program calls: forwards, its own functions, layers and losses, containers."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.halves import distributions
from amp_migrate.audit.halves.builtins import Builtins
from amp_migrate.audit.halves.called import ALIKE, kept, made, methods, objects, of_partial
from amp_migrate.audit.halves.containers import PUTTING
from amp_migrate.audit.halves.given import Given, given_to
from amp_migrate.audit.halves.library import is_file, written
from amp_migrate.audit.halves.operations import functional_of, has_axis
from amp_migrate.audit.halves.tensors import (
    ALL_TOLD,
    CAST,
    ENCODED,
    FLOAT,
    HALF,
    HALVES,
    NOT_TOLD,
    PRODUCTS,
    UNKNOWN,
    Env,
    Told,
    Value,
    join,
    ways,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Scope
from amp_migrate.audit.program.rerun import run_by
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.origins import Origin

# How what computes nothing is called, and what only holds values.
KEEPING_BOOKS = tuple(
    "accuracy add_ append log print write save debug info format nms batched_nms set_postfix step".split()
)
TEXTS = ("json", "yaml", "ujson", "simplejson", "orjson", "csv")  # what is written with these holds no tensors
NAMED_TUPLES = ("collections.namedtuple", "typing.NamedTuple")


class Calls(Builtins):
    """What calls give in one body."""

    def call(self, expr: ast.Call) -> Value:
        func = expr.func
        scope = self.module.scope_of(expr)
        given = [self.of(a) for a in expr.args]
        named = self.by_name(expr)
        every = [*given, *named.values()]
        if expr in self.halves.running:
            handed = self.halves.running[expr].method == "data_parallel"
            return self.forward(expr, self.halves.running[expr], given[handed:], named)
        if (again := run_by(self.halves.program, scope, expr)) is not None:
            return self.applied(expr, again, given[1:])
        name = self.halves.program.dotted(scope, func)
        if isinstance(func, ast.Attribute) and name is None:
            receiver = self.of(func.value)
            cast = self.cast(expr, func, receiver)
            if cast is not None:
                return cast
            if func.attr == "scale" and given and "scaler" in syntax.text(func.value).lower():
                if given[0].half and given[0].reduced:
                    self.tell("scaled", expr, given[0], syntax.text(expr.args[0]))
                elif given[0].now == "half" and given[0].widened and not given[0].narrowed:
                    self.tell("half loss", expr, given[0], syntax.text(expr.args[0]))
                return given[0]
            if func.attr in PUTTING and (given or named) and self.put_in(expr, func, receiver, given, named):
                return UNKNOWN
            if func.attr in ("items", "values", "get", "pop", "setdefault") and receiver.followed:
                held = receiver.entry()
                asked = expr.args[0] if expr.args else None
                if receiver.keys and isinstance(asked, ast.Constant):
                    return receiver.under(str(asked.value))
                return Value("?", "?", (Value("?", "?", (UNKNOWN, held)),)) if func.attr == "items" else held
            if distributions.is_one(receiver) and func.attr in distributions.FLOATS | distributions.DRAWING:
                whole = self.plain_of(list(receiver.items or ()))
                return (
                    whole
                    if func.attr in distributions.DRAWING
                    else self.operation(expr, func.attr, [whole, *given], False)
                )
            if func.attr == "copy" and receiver.keys:
                return receiver
            if func.attr in known.IN_PLACE:
                self.product_in_place(expr, receiver, every)
                return receiver
            if receiver == UNKNOWN and func.attr in ("parameters", "named_parameters"):
                weight = self.halves.parameter(self.module)
                return Value(
                    "?", "?", (weight,) if func.attr == "parameters" else (Value("?", "?", (UNKNOWN, weight)),)
                )
            if func.attr in known.WRITES and every:
                self.write(expr, func.attr, receiver, written(func.attr, given, named))
                return receiver
            followed = self.followed(expr, scope, given, named)
            if followed is not None:
                return followed
            if func.attr in known.CONVERTING:
                return receiver
            told = func.attr in known.INTEGERS or (func.attr in ("tolist", "item") and not expr.args)
            told = told or (func.attr in known.PAIRS and has_axis(expr))
            if receiver.now != "?" or receiver.items is not None or receiver.double or told:
                entry = receiver.entry() if receiver.items else receiver
                return self.operation(expr, func.attr, [entry, *given], False)
            return self.object(expr, scope, given, named)
        if name is not None:
            first, last = name.partition(".")[0], name.rpartition(".")[2]
            if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional"):
                return UNKNOWN
            if name in ("einops.einsum", "opt_einsum.contract"):
                return self.operation(expr, "einsum", [v for v in given if v != UNKNOWN] or given, True)
            if first == "einops":
                return given[0].holding(None)
            if first == "copy" and given:
                return given[0]
            if first in known.WITHOUT_HALF:
                return UNKNOWN
            if name in known.PICKING and given:
                rows = tuple(v for v in given for _ in range(known.PICKING[name]))
                return rows[0] if len(rows) == 1 else Value("?", "?", rows)
            if first in ("torch", "numpy", "scipy") or is_file(name):
                return self.library(expr, name, last, given, named)
        followed = self.followed(expr, scope, given, named)
        if followed is not None:
            return followed
        if isinstance(func, ast.Name) and scope.binder(func.id) is None:
            return self.builtin(expr, func.id, given, named)
        return self.object(expr, scope, given, named)

    def by_name(self, expr: ast.Call) -> dict[str | None, Value]:
        """What a call is given by name; under None a mapping whose keys are not known."""
        found: dict[str | None, Value] = {}
        for keyword in expr.keywords:
            value = self.of(keyword.value)
            if keyword.arg is None and value.keys:
                found |= dict(zip(value.keys, value.items or (), strict=True))
            else:
                found[keyword.arg] = value
        return found

    def product_in_place(self, expr: ast.Call, receiver: Value, given: list[Value]) -> None:
        """`dist.addmm_(x, y.t())`: of what is given it, half or not seen, is to be of the dtype that is written into."""
        if receiver.now != "float":
            return
        half = next((v for v in given if v.half and (v.now == "half" or v.origin)), None)
        if half is not None:
            self.tell("inplace", expr, half, syntax.text(expr.func))
        elif self.halves.unseen and any(v.half or v == UNKNOWN for v in given):
            self.halves.report(
                "inplace", self.module, expr, Value("?", "maybe"), syntax.text(expr.func), self.halves.at
            )

    def applied(self, expr: ast.Call, function: ast.expr, given: list[Value]) -> Value:
        """What a function or layer gives that a call runs with these, and is not the callee of."""
        if isinstance(function, ast.Lambda):
            return self.lambda_(function, given)
        scope = self.module.scope_of(expr)
        name = self.halves.program.dotted(scope, function)
        if name is not None and name.partition(".")[0] == "torch":
            return self.library(expr, name, name.rpartition(".")[2], given, {})
        found = self.halves.program.definitions(scope, function, guess=False)
        if len(found) == 1 and isinstance(found[0], Function):
            return self.run_in(found[0], expr, given, {}, {})
        layers = self.halves.layers.all(scope, function)[:ALIKE] if not found else []
        return join(
            ways(
                self.through(way, expr, given) if isinstance(way, str) else self.forward_of(way, expr, given, {})
                for way in layers
            )
        )

    def forward(self, expr: ast.Call, forward: Forward, given: list[Value], named: dict[str | None, Value]) -> Value:
        if self.inside:
            starred = any(isinstance(a, ast.Starred) for a in expr.args)
            if not self.halves.both.after.forwards.runs(forward):
                self.doubles(expr, syntax.text(expr.func), (*given, *named.values()))
            return self.halves.output(forward, [] if starred else given, named)
        for value in (*given, *named.values()):
            halves = [v for v in (value, *(value.items or () if value.keys else ())) if v.half]
            if halves and (value.half or halves[0].now == "half"):
                self.tell("module", expr, halves[0], syntax.text(expr.func))
                break
        return UNKNOWN

    def followed(
        self, expr: ast.Call, scope: Scope, given: list[Value], named: dict[str | None, Value]
    ) -> Value | None:
        """A function of the program, run with what it is given."""
        found = self.halves.program.definitions(scope, expr.func, guess=False)
        functions = [d for d in found if isinstance(d, Function)]
        halves = any(v.followed for v in (*given, *named.values()))
        if not found and isinstance(expr.func, ast.Attribute):
            functions = methods(self.halves, scope, expr) if halves else made(self.halves, scope, expr.func)
        if not found and not functions and halves:
            functions = kept(self.halves, scope, expr.func)
        if not found and not functions and not halves:
            functions = objects(self.halves, scope, expr.func)
        partial = of_partial(self.halves, scope, expr.func) if not found and not functions and halves else None
        if partial is not None:
            return join([self.run_in(f, expr, [UNKNOWN] * first + given, named, {}) for f, first in partial[:ALIKE]])
        if functions and halves and isinstance(expr.func, ast.Name) and self.halves.layers.all(scope, expr.func):
            return None  # a function on one way, a layer or an object on another
        if len(functions) != len(found or functions) or not functions:
            if halves:
                self.construct(found, expr, given, named)
            return None if not found else UNKNOWN
        return join(ways(self.run_in(f, expr, given, named) for f in functions[:ALIKE]))

    def construct(
        self, classes: Sequence[Function | Class], expr: ast.Call, given: list[Value], named: dict[str | None, Value]
    ) -> None:
        """Run the constructors of what a call may make with half values: what they leave in the object is read of it later."""
        for cls in classes[:ALIKE]:
            for function in self.halves.program._method(cls, "__init__") if isinstance(cls, Class) else ():
                self.run_in(function, expr, given, named)

    def run_in(
        self,
        function: Function,
        expr: ast.Call,
        given: list[Value],
        named: dict[str | None, Value],
        passed: Mapping[str, Given] | None = None,
    ) -> Value:
        parameters = [p.arg for p in function.parameters]
        if self.halves.program.fills_self(function, expr):
            parameters = parameters[1:]
        env: Env = {}
        if not any(isinstance(a, ast.Starred) for a in expr.args):
            env = dict(zip(parameters, given, strict=False))
        env |= {k: v for k, v in named.items() if k is not None}
        if passed is None:
            passed = given_to(self.halves.program, function, self.module.scope_of(expr), expr, self.unbound())
        interesting = any(v.half or v.items or v.kept or v.origin for v in env.values())
        held = self.halves.holds(function.owner)
        apart = not interesting and "autocast" not in function.module.text and not held
        if apart and not self.inside:
            return UNKNOWN
        told: Told = ALL_TOLD
        if not (apart and self.halves.below):
            given_half = any(v.followed or v.origin for v in env.values())
            tells = self.halves.below or given_half or (self.inside and function in self.halves.running_in)
            # What an object holds is told of whoever calls: that caller may have been given nothing of it.
            told = self.in_region(ALL_TOLD if held else self.told if tells else NOT_TOLD)
        return self.halves.call(function, env, self.inside, told, passed)

    def in_region(self, told: Told) -> Told:
        """What is said of a function called here: in a region, of what the program computes beside its models."""
        return PRODUCTS if told and self.inside and not self.halves.below else told

    def lambda_(self, node: ast.Lambda, given: list[Value]) -> Value:
        """What a lambda gives, where it stands in this file: `flips = [lambda x: x, lambda x: x.flip(3)]`."""
        if node in self.halves.entered:
            return UNKNOWN
        saved = dict(self.env)
        self.halves.entered.add(node)
        self.env |= dict(zip([a.arg for a in node.args.args], given, strict=False))
        value = self.of(node.body)
        self.env = saved
        self.halves.entered.discard(node)
        return value

    def object(self, expr: ast.Call, scope: Scope, by_place: list[Value], named: Mapping[str | None, Value]) -> Value:
        """A call of an object: a layer, a loss, a module of the program."""
        given = [*by_place, *named.values()]
        if not self.inside and not any(v.followed for v in given):
            return UNKNOWN
        origins = self.halves.values.origins(scope, expr.func)
        lambdas = [o.node for o in origins if isinstance(o.node, ast.Lambda) and o.module is self.module]
        if lambdas and len(lambdas) == len(origins):
            return join([self.lambda_(node, given) for node in lambdas])
        names = [self.halves.program.dotted(o.module.scope_of(o.node), o.node) or "" for o in origins if _named(o.node)]
        if names and len(names) == len(origins) and all(n.startswith("torch.nn.functional.") for n in names):
            self.early = all(_kept_early(o) for o in origins)
            value = join([self.library(expr, n, n.rpartition(".")[2], given, {}) for n in names])
            self.early = False
            return value
        layers = self.halves.layers.all(scope, expr.func)[:ALIKE]
        if layers:  # one of several, where they are held in a dictionary or registered, or an option chooses
            given_by = [
                self.through(way, expr, given) if isinstance(way, str) else self.forward_of(way, expr, by_place, named)
                for way in layers
            ]
            return join(
                ways([*given_by, *(self.run_in(f, expr, given, {}) for f in kept(self.halves, scope, expr.func))])
            )
        if self.inside and isinstance(expr.func, ast.Attribute):
            owner = self.halves.program.is_self(scope, expr.func.value)
            if owner is not None and any(map(self._without_networks, origins)):
                return UNKNOWN
            if owner is not None:
                network = self.halves.program.is_network(owner)
                if not self.halves.below and not network:
                    self.out_of_sight(expr, given, origins)
                return self.piece(expr, given if network else [])
        self.out_of_sight(expr, given, origins)
        return UNKNOWN

    def _without_networks(self, origin: Origin) -> bool:
        """Whether what is called comes of a library that has no networks: `cv2.SIFT_create()`."""
        made = origin.node.func if isinstance(origin.node, ast.Call) else origin.node
        name = self.halves.program.dotted(origin.module.scope_of(made), made) if isinstance(made, ast.expr) else None
        return (name or "").partition(".")[0] in known.WITHOUT_NETWORKS

    def through(self, layer: str, expr: ast.Call, given: list[Value]) -> Value:
        """What a layer or a loss of torch's gives."""
        first = given[0] if given else UNKNOWN
        if layer in known.ENCODERS:
            return ENCODED if self.inside else UNKNOWN
        if self.inside and not (first.host and first.half):
            if layer in known.HALF_LAYERS:
                self.product(expr, layer, given[:1], False)
                return HALF
            if layer in known.LOSSES:
                self.double_loss(expr, functional_of(layer), given)
            if layer in known.FLOAT_LAYERS:
                weights_were_half = self.halves.floats(self.module) and not self.halves.patches(self.module)
                was_half = weights_were_half and (layer in known.WEIGHTED or first.was in HALVES)
                return FLOAT._replace(was="half") if was_half and layer not in known.LOSSES else FLOAT
            if layer in ("GELU", "Sigmoid"):
                return self.operation(expr, functional_of(layer), [first.entry()], True)
            return first.holding(None) if first.now != "?" else UNKNOWN
        half = next((v for v in _one_by_one(given) if v.half), None)  # the state of a recurrent layer as well
        if layer in known.HALF_LAYERS and half is not None:
            self.tell("module", expr, half, syntax.text(expr.func))
            return UNKNOWN
        if layer in known.LOSSES or layer in ("Softmax", "LogSoftmax", "Sigmoid", "LogSigmoid", "CosineSimilarity"):
            return self.operation(expr, functional_of(layer), given, True)
        return first.holding(None)

    def unbound(self) -> dict[str, Given]:
        """What the parameters were given that have it still."""
        return {name: value for name, value in self.given.items() if name not in self.bound}

    def forward_of(self, cls: Class, expr: ast.Call, given: list[Value], named: Mapping[str | None, Value]) -> Value:
        methods = [f for n in ("forward", "__call__") for f in self.halves.program._method(cls, n)]
        if len(methods) != 1:
            return UNKNOWN
        names = [p.arg for p in methods[0].parameters][1:]
        told = ALL_TOLD if self.halves.below and self.inside else self.in_region(self.told)
        passed = given_to(self.halves.program, methods[0], self.module.scope_of(expr), expr, self.unbound())
        env = dict(zip(names, given, strict=False)) | {k: v for k, v in named.items() if k is not None}
        return self.halves.call(methods[0], env, self.inside, told, passed)

    def out_of_sight(self, expr: ast.Call, given: list[Value], origins: frozenset[Origin]) -> None:
        """Half values that something gets whose code is not seen: a function kept as a value, a library's."""
        name = last_name(expr.func) or ""
        if isinstance(expr.func, ast.Attribute) and isinstance(expr.func.value, (ast.Constant, ast.JoinedStr)):
            return  # `"\\t".join(found)`
        told = next((v.entry() for v in given if v.followed), UNKNOWN)
        if not told.half or not (told.widened or (self.halves.patches(self.module) and not self.inside)):
            return
        made = {self.halves.values.maker(o) for o in origins if o.kind != "constant"}
        if not told.widened and ((told.origin == CAST and name in known.COLLECTIVES) or made == {"torch.jit.load"}):
            return  # which O1 did not reach: compiled by then, or given what the program made half
        called = self.halves.program.dotted(self.module.scope_of(expr), expr.func) or ""
        if called.partition(".")[0] in TEXTS:
            return
        if name.startswith(KEEPING_BOOKS) or name in known.KEEPING | known.SENSITIVE | known.SHAPES:
            return
        if made.isdisjoint(NAMED_TUPLES):
            beside = told.now == "half" and any(v.entry().now == "float" for v in given)
            kind = "extension" if self.inside else "unseen beside" if beside else "unseen"
            self.tell(kind, expr, told, syntax.text(expr.func))


def _one_by_one(given: list[Value]) -> list[Value]:
    """What a call is given, one by one: also what a tuple of tensors holds."""
    return [inner for v in given for inner in (v.items if v.items and not v.keys else (v,))]


def _named(node: ast.AST) -> TypeGuard[ast.expr]:
    return isinstance(node, (ast.Name, ast.Attribute))


def _kept_early(origin: Origin) -> bool:
    """Whether a value is kept where a file is imported or a model is made: before `initialize`, which patches torch."""
    function = origin.module.function_around(origin.node)
    return function is None or function.name == "__init__"
