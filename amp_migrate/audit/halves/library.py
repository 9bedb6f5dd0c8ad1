"""Functions of torch and NumPy by their names, and casts: what makes tensors, joins them, writes them, hands them on."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.halves import distributions
from amp_migrate.audit.halves.doubles import DOUBLE, asks_for_double, made
from amp_migrate.audit.halves.operations import Operations
from amp_migrate.audit.halves.tensors import (
    CAST,
    FLOAT,
    HALF,
    HALVES,
    INTEGER,
    NOTHING,
    UNKNOWN,
    Value,
    join,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

DEVICES = re.compile(r"dev|cuda|cpu|gpu|rank", re.IGNORECASE)


class Library(Operations):
    """What casts and functions of libraries give in one body."""

    def cast(self, expr: ast.Call, func: ast.Attribute, receiver: Value) -> Value | None:
        attr = func.attr
        if attr in ("float", "double") and not expr.args:
            if receiver.now == "int":
                self.tell("integer", expr, receiver, syntax.text(func.value))
            return FLOAT._replace(kept=receiver.now != "int", double=attr == "double")
        if attr in known.NEW and (made := self.made_alike(expr, attr, receiver.entry())) is not None:
            return made
        if attr == "half" and not expr.args:
            return Value("half", "half", origin=CAST, narrowed=True)
        if (
            attr == "astype"
            and expr.args
            and asks_for_double(self.halves.program, self.module.scope_of(expr), expr.args[0])
        ):
            return DOUBLE
        if attr == "to" and syntax.cast_to_float(expr) is not None:
            return FLOAT._replace(kept=True)  # where mixed precision is on
        if attr in ("to", "type", "astype"):
            asked = [*expr.args, *(k.value for k in expr.keywords if k.arg in ("dtype", None))]
            for arg in asked:
                if (like := self.of(arg).names) is not None:
                    return self.as_one(like, receiver)
                if (typed := self.of_type(arg)) is not None:
                    return typed
            if attr in ("type", "astype"):
                return UNKNOWN
            if any(isinstance(a, ast.Attribute) and a.attr == "dtype" for a in asked):
                return UNKNOWN
        if attr in ("to", "type_as") and len(expr.args) == 1 and not expr.keywords:
            like = self.of(expr.args[0])
            if like.half and (like.widened or self.halves.asked) and self.counts(func.value):
                self.tell("dtype", expr, like, syntax.text(func.value))
            if (like.half or like.now == "float") and not like.items:
                return self.as_one(like, receiver)
            to_device = attr == "to" and DEVICES.search(syntax.text(expr.args[0]))
            return UNKNOWN if receiver.kept and not to_device else None
        return None

    @staticmethod
    def as_one(like: Value, receiver: Value) -> Value:
        """A tensor that is cast to the dtype of another: what was float32 under Apex as well is not made half by the program."""
        return like._replace(narrowed=like.half and receiver.now == "float" and not like.widened)

    def made_alike(self, expr: ast.Call, attr: str, like: Value) -> Value | None:
        """What `x.new_zeros(4)` makes, of the dtype of `x`; None where that is not known."""
        dtype = next((k.value for k in expr.keywords if k.arg == "dtype"), None)
        if dtype is not None:
            return self.of_type(dtype) or UNKNOWN
        if like.half and like.widened and self.fractions(expr):
            self.tell("like", expr, like, attr)
        return like.holding(None) if like.half or like.now in ("float", "int") else None

    def of_type(self, asked: ast.expr) -> Value | None:
        """A tensor of the dtype that is asked for; None where that is no dtype in sight."""
        if (like := self.of(asked).names) is not None:
            return like
        name = self.halves.program.dotted(self.module.scope_of(asked), asked) or ""
        if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
            name = "torch." + asked.value.replace("np.", "").removeprefix("torch.")
        name = name.replace("numpy.", "torch.")
        if name in known.FLOAT_TYPES:
            return FLOAT._replace(kept=True, double=name in known.DOUBLE_TYPES)
        if name in known.HALF_TYPES:
            return HALF._replace(narrowed=True)
        if name in known.INTEGER_TYPES:
            return INTEGER
        if name or not isinstance(asked, (ast.Name, ast.Attribute)) or DEVICES.search(syntax.text(asked)):
            return None
        origins = self.halves.values.origins(self.module.scope_of(asked), asked)  # of a parameter, of a setting
        names = {"" if o.path else self._type_name(o.module, o.node) for o in origins}
        if names and names <= known.FLOAT_TYPES:
            return FLOAT._replace(kept=True, double=names <= known.DOUBLE_TYPES)
        return INTEGER if names and names <= known.INTEGER_TYPES else None

    def _type_name(self, module: Module, node: ast.AST) -> str:
        return (
            self.halves.program.dotted(module.scope_of(node), node) if isinstance(node, ast.Attribute) else None
        ) or ""

    def counts(self, expr: ast.expr) -> bool:
        """Whether a tensor holds numbers that the program counts: `torch.tensor(1)`, `torch.tensor(total)`."""
        if isinstance(expr, ast.Call):
            name = self.halves.program.dotted(self.module.scope_of(expr), expr.func)
            return name in ("torch.tensor", "torch.as_tensor", "torch.LongTensor", "torch.IntTensor")
        return False

    def library(
        self, expr: ast.Call, name: str, last: str, given: list[Value], named: dict[str | None, Value]
    ) -> Value:
        every = [*given, *named.values()]
        if (double := made(self.halves.program, self.module.scope_of(expr), expr, name, given)) is not None:
            return double
        if name.startswith("torch.distributions.") and (dist := distributions.made(last, given, named)) is not None:
            return dist
        dtype = next((k.value for k in expr.keywords if k.arg == "dtype"), None)
        if last in known.MAKING:
            if dtype is None:
                return FLOAT._replace(kept=True) if name.startswith("torch.") else UNKNOWN
            asked = self.of_type(dtype) or UNKNOWN
            own = asked.half and self.of(dtype).names is None
            return asked._replace(origin=CAST, narrowed=False) if own else asked
        if last == "arange" and (dtype is not None or any(map(_fraction, expr.args))):
            return (self.of_type(dtype) or UNKNOWN) if dtype is not None else FLOAT._replace(kept=True)
        if last in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"):
            if dtype is not None:
                return self.of_type(dtype) or UNKNOWN
            if not given:
                return UNKNOWN
            if given[0].half and given[0].widened and self.fractions(expr):
                self.tell("like", expr, given[0], last)
            return given[0]
        if last in ("all_gather", "all_reduce", "broadcast", "reduce", "gather", "all_gather_into_tensor"):
            if ".distributed" in name and len(given) >= 2:
                kinds = {v.entry().now for v in given[:2]}
                if "float" in kinds and kinds & set(HALVES):
                    self.tell("gather", expr, next(v.entry() for v in given[:2] if v.entry().half), last)
            return UNKNOWN
        if is_file(name):
            stored = next((v for v in every if v.followed), None)
            if stored is not None and (entry := stored.entry()).widened and entry.half:
                self.tell("file", expr, entry, name)
            return UNKNOWN
        if last == "where" and len(given) == 3:
            return self.plain_of(given[1:])
        if last in known.WRITES and len(given) > 1:
            self.write(expr, last, given[0], written(last, given[1:], named))
            return given[0]
        if last in ("cat", "stack", "concat", "hstack", "vstack", "concatenate") and given:
            parts = self.added_to(expr, given[0])
            joined = (join(parts) if parts else given[0].entry()).holding(None)
            if joined.half and any(i.now == "float" for i in parts):  # what is joined takes the widest dtype
                return joined._replace(was="float", now="float")
            if joined.half and any(i == UNKNOWN for i in parts):
                return UNKNOWN
            return joined if name.startswith("torch.") else self.array(expr, joined)
        if last == "einsum" and len(given) > 1:
            operands = [i for v in given[1:] for i in v.items or (v,)]
            return self.operation(expr, "einsum", operands, True) if _multiplies(expr) else self.plain_of(operands)
        if not name.startswith("torch."):
            halves = [e for v in every if v.followed and (e := v.entry()).half]
            if halves and last not in known.INTEGERS and last not in known.SHAPES:
                self.array(expr, halves[0])
                return UNKNOWN
            return given[0].entry() if given and last in known.STACKING else UNKNOWN
        if "out" in named and given and last not in known.INTO_ANY:
            self.alike(expr, f"{last} with out=", last, [*given, named["out"]])
        given = [*given, named["grid"]] if last in known.PROMOTED and "grid" in named else given
        return self.operation(expr, last, given or every, name.startswith("torch.nn.functional."))

    def added_to(self, expr: ast.Call, given: Value) -> tuple[Value, ...]:
        """The parts that are joined, less the one that they are added to: `self.found = torch.cat([self.found, x])`."""
        parts, stmt = given.items or (), self.module.statement(expr)
        listed = expr.args[0].elts if expr.args and isinstance(expr.args[0], (ast.List, ast.Tuple)) else []
        if not isinstance(stmt, ast.Assign) or len(listed) != len(parts):
            return parts
        own = {syntax.text(t) for t in stmt.targets}
        others = tuple(
            v for e, v in zip(listed, parts, strict=True) if v not in (UNKNOWN, NOTHING) or syntax.text(e) not in own
        )
        return others or parts

    def fractions(self, made: ast.Call) -> bool:
        """Whether a tensor that is made like another is filled with what may be no whole number: smoothed labels."""
        filled = made.args[1:2] if syntax.last(made.func) in ("full_like", "new_full") else []
        stmt = self.module.parents.get(made)
        if isinstance(stmt, ast.Assign) and isinstance(target := stmt.targets[0], ast.Name):
            function = self.module.function_around(made)
            for node in syntax.every(function.node if function is not None else self.module.tree, ast.Call):
                func = node.func
                if isinstance(func, ast.Attribute) and func.attr in ("fill_", "scatter_") and node.args:
                    if isinstance(func.value, ast.Name) and func.value.id == target.id:
                        filled = [*filled, node.args[-1]]
        return any(not (isinstance(v, ast.Constant) and v.value in (0, 1)) for v in filled)

    def array(self, expr: ast.expr, value: Value) -> Value:
        """What NumPy makes of a value: of a half tensor, an array of float16, which is told where Apex had it in float32."""
        if not value.half or not value.widened:
            return value
        self.tell("numpy", expr, value, "an array")
        return UNKNOWN


def _fraction(expr: ast.expr) -> bool:
    """Whether a number is written with a point: `-1.0`."""
    expr = expr.operand if isinstance(expr, ast.UnaryOp) else expr
    return isinstance(expr, ast.Constant) and isinstance(expr.value, float)


def written(name: str, given: list[Value], named: Mapping[str | None, Value]) -> Value:
    """What is written by `x.scatter_(1, index, src)`, of the arguments of the method."""
    at = known.WRITES[name]
    return given[at] if len(given) > at else next((v for k, v in named.items() if k in known.WRITTEN), UNKNOWN)


def is_file(name: str) -> bool:
    """Whether a function writes values down, under whichever name pickle is imported."""
    module, _, last = name.rpartition(".")
    return name in known.FILES or (module.rpartition(".")[2] in ("pickle", "cPickle") and last in ("dump", "dumps"))


def _multiplies(einsum: ast.Call) -> bool:
    """Whether an einsum comes to a product of matrices: some index stands in two operands and is summed over. What only permutes,
    sums one operand or multiplies item by item casts nothing."""
    equation = einsum.args[0].value if einsum.args and isinstance(einsum.args[0], ast.Constant) else None
    if not isinstance(equation, str):
        return True
    given, arrow, result = equation.replace(" ", "").partition("->")
    several = {index for index, parts in Counter(i for part in given.split(",") for i in {*part}).items() if parts > 1}
    return any(index.isalpha() and (not arrow or index not in result) for index in several)
