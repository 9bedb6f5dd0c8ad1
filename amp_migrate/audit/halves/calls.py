"""Calls of whatever a program calls: forwards, its own functions, layers and losses, containers."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_migrate.audit import dtypes as known
from amp_migrate.audit import syntax
from amp_migrate.audit.forwards import Forward
from amp_migrate.audit.halves.operations import Operations, functional_of, has_axis
from amp_migrate.audit.halves.tensors import FLOAT, HALF, UNKNOWN, Env, Value, join
from amp_migrate.audit.module import Class, Function, Scope


class Calls(Operations):
    """What calls give in one body."""

    def of(self, expr: ast.expr | None) -> Value:
        """The value of an expression."""
        raise NotImplementedError

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
            integers = func.attr in known.INTEGERS or (func.attr in known.PAIRS and has_axis(expr))
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
                return self.operation(expr, functional_of(layer), given, True)
            if layer in ("Sigmoid", "LogSigmoid", "CosineSimilarity"):
                return self.operation(expr, functional_of(layer), given, True)
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
