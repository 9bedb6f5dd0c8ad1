"""What expressions give in one body, with what each name holds."""

from __future__ import annotations

import ast

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.halves.asked import asked_to_float, not_half
from amp_migrate.audit.halves.given import comes_out
from amp_migrate.audit.halves.implied import Implied
from amp_migrate.audit.halves.numbers import is_number
from amp_migrate.audit.halves.tensors import (
    FLOAT,
    HALF,
    INTEGER,
    NOTHING,
    NUMBER,
    UNKNOWN,
    Value,
    came_of,
    join,
    keyed,
    narrowed,
    promoted,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS

COMPARING = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)  # what tensors answer one by one


class Expressions(Implied):
    """What the expressions of one body give."""

    def bind(self, target: ast.expr, value: Value) -> None:
        """What a target holds from here on."""
        raise NotImplementedError

    def comes_out(self, test: ast.expr) -> bool | None:
        """How a test comes out in the call that is followed: at its opt level, with what that gives the parameters."""
        asked = (
            asked_to_float(self.halves.program, self.module.scope_of(test), test)
            if isinstance(test, ast.Call)
            else None
        )
        if asked is not None and self.of(asked).now in (INTEGER.now, FLOAT.now, HALF.now):
            return self.of(asked).now != INTEGER.now
        truth = self.halves.at_level(test)
        return comes_out(test, self.given, self.bound) if truth is None else truth

    def of(self, expr: ast.expr | None) -> Value:
        kind = type(expr)
        if kind is ast.Name:
            name: str = expr.id  # type: ignore[union-attr]
            value = self.named(name)
            return self.halves.variable(self.module.scope_of(expr), name) if value == UNKNOWN else value  # type: ignore[arg-type]
        if kind is ast.Attribute:
            return self.attribute(expr)  # type: ignore[arg-type]
        if kind is ast.Call:
            return self.call(expr)  # type: ignore[arg-type]
        if expr is None or kind is ast.Lambda:
            return UNKNOWN
        if type(expr) is ast.Constant:
            if expr.value is None:
                return NOTHING
            return NUMBER if isinstance(expr.value, (int, float)) else UNKNOWN
        if isinstance(expr, ast.Subscript):
            return self.subscript(expr)
        if isinstance(expr, ast.BinOp):
            return self.binary(expr)
        if isinstance(expr, ast.UnaryOp):
            value = self.of(expr.operand)
            return UNKNOWN if isinstance(expr.op, ast.Not) else value
        if isinstance(expr, ast.Compare):
            parts = [self.of(part) for part in (expr.left, *expr.comparators)]
            texts = any(isinstance(p, ast.Constant) and isinstance(p.value, str) for p in expr.comparators)
            compares = isinstance(expr.ops[0], COMPARING) and not texts
            return INTEGER._replace(mask=compares and any(p != NUMBER for p in parts))
        if isinstance(expr, ast.BoolOp):
            return join([self.of(v) for v in expr.values])
        if isinstance(expr, ast.IfExp):
            self.of(expr.test)
            truth = self.comes_out(expr.test)
            if truth is not None:
                return self.of(expr.body if truth else expr.orelse)
            asked = not_half(self.halves.program, self.module.scope_of(expr), expr.test)
            return join([self.beside(side, no) for side, no in zip((expr.body, expr.orelse), asked, strict=True)])
        if isinstance(expr, (ast.Tuple, ast.List)):
            items = tuple(self.of(e) for e in expr.elts)
            if any(isinstance(e, ast.Starred) for e in expr.elts):
                return join(items)
            if not items:
                return NOTHING
            whole = join(items)
            return whole.holding(items)
        if isinstance(expr, ast.Dict):
            return self.dictionary([(k, self.of(v)) for k, v in zip(expr.keys, expr.values, strict=True)])
        if isinstance(expr, COMPREHENSIONS):
            return self.comprehension(expr)
        if isinstance(expr, ast.NamedExpr):
            value = self.of(expr.value)
            self.bind(expr.target, value)
            return value
        if isinstance(expr, (ast.Starred, ast.Await)):
            return self.of(expr.value)
        if isinstance(expr, (ast.Yield, ast.YieldFrom)):  # one of what a loop over the call gets
            value = self.of(expr.value)
            self.returned.append(Value("?", "?", (value,)) if isinstance(expr, ast.Yield) else value)
            return UNKNOWN
        if isinstance(expr, (ast.JoinedStr, ast.FormattedValue)):
            for child in syntax.children(expr):
                if isinstance(child, ast.expr):
                    self.of(child)
        return UNKNOWN

    def beside(self, expr: ast.expr, tensors: list[str]) -> Value:
        """What an expression gives where some tensors are known not to be half."""
        halves = {text: self.env[text] for text in tensors if text in self.env}
        self.env.update(dict.fromkeys(halves, UNKNOWN))
        value = self.of(expr)
        self.env.update(halves)
        return value

    def named(self, name: str) -> Value:
        """What a name holds: a dictionary whose entries were filled one by one holds each of them, and an object what it was
        given."""
        value = self.env.get(name, UNKNOWN)
        if (value.keys or value == UNKNOWN) and (filled := self.filled(name)):
            return keyed({**dict(zip(value.keys, value.items or (), strict=True)), **filled})
        if value.followed:
            return value
        if name not in self.keyed:
            return value
        start = f"{name}["
        entries = [v for k, v in self.env.items() if k.startswith(start)]
        return Value("?", "?", tuple(entries)) if any(v.followed for v in entries) else value

    def filled(self, name: str) -> dict[str, Value]:
        """What attributes an object was given here, where some of it is half: not that of whom a method is."""
        start = f"{name}."
        if name == self.own:
            return {}
        given = ((text[len(start) :], value) for text, value in self.env.items() if text.startswith(start))
        found = {attribute: value for attribute, value in given if attribute.isidentifier()}
        return found if any(v.followed for v in found.values()) else {}

    @property
    def own(self) -> str:
        """What the method that is followed calls its object."""
        parameters = self.method.parameters if self.method is not None else ()
        return parameters[0].arg if parameters else ""

    def attribute(self, expr: ast.Attribute) -> Value:
        text = syntax.text(expr)
        if text in self.env:
            return self.env[text]
        value = self.of(expr.value)
        if value == UNKNOWN and (given := self.implied(expr.value, expr.attr)) != UNKNOWN:
            return given
        if expr.attr == "dtype":
            entry = value.entry()
            return Value("?", "?", names=entry.holding(None)) if entry.half or entry.now == "float" else UNKNOWN
        if expr.attr in ("shape", "device", "loss", "grad", "is_cuda", "requires_grad"):
            return UNKNOWN
        if value == UNKNOWN and expr.attr in ("weight", "bias") and isinstance(expr.value, (ast.Name, ast.Attribute)):
            layers = self.halves.layers.all(self.module.scope_of(expr), expr.value)
            if layers and all(layer in known.HALF_LAYERS | known.WEIGHTED for layer in layers):
                return self.halves.parameter(self.module)
        if value.keys:
            return value.under(expr.attr)
        if expr.attr in ("values", "indices") and value.items is not None and len(value.items) == 2:
            return value.items[expr.attr == "indices"]  # of `x.max(1)`
        if (
            value == UNKNOWN
            and (owner := self.halves.program.is_self(self.module.scope_of(expr), expr.value)) is not None
        ):
            held = self.halves.held(owner, expr.attr)
            if held.followed:
                return held
            made = self.halves.field(owner, expr.attr)
            if not self.halves.program.is_network(owner) or made == INTEGER:
                return made
            return self.halves.weight(self.module.scope_of(expr), expr, owner)
        if value == UNKNOWN:
            return self.halves.held_by(self.module.scope_of(expr), expr)
        return value.entry() if value.half or value.items else UNKNOWN if value.now not in ("int", "float") else value

    def subscript(self, expr: ast.Subscript) -> Value:
        if isinstance(expr.value, ast.Name) and isinstance(expr.slice, ast.Constant):
            if (entry := self.env.get(syntax.text(expr))) is not None:
                return entry
            value = self.env.get(expr.value.id, UNKNOWN)
            if not value.followed and not value.items and self.named(expr.value.id).items:
                return value  # another entry
        value = self.of(expr.value)
        value = self.implied(expr.value, "__getitem__") if value == UNKNOWN else value
        if not self.indexes(expr.slice) and not isinstance(expr.slice, (ast.Slice, ast.Tuple)) and value.places:
            value = value.turn()
        index = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
        if isinstance(index, str) and value.dictionary is not None:
            value = value.dictionary
        if value.beside and isinstance(index, str) and index in self.halves.inputs.keys:
            return UNKNOWN
        if value.keys and isinstance(index, str):
            return UNKNOWN if "loss" in index else value.under(index)
        if value.keys and isinstance(index, int):
            return value.at(index)
        if isinstance(expr.slice, ast.UnaryOp) and isinstance(expr.slice.operand, ast.Constant):
            inner = expr.slice.operand.value
            index = -inner if isinstance(inner, int) and isinstance(expr.slice.op, ast.USub) else None
        if (
            value.items is not None
            and isinstance(index, int)
            and not value.keys
            and -len(value.items) <= index < len(value.items)
        ):
            return value.items[index]
        if value.items is not None and isinstance(expr.slice, ast.Slice) and not value.keys:
            return self.part(value, expr.slice)
        if value.items is not None:
            return value.entry()
        if isinstance(index, str) and "loss" in index:
            return UNKNOWN
        flat = value.now == "float" and isinstance(index, int) and isinstance(expr.value, (ast.Name, ast.Attribute))
        return NUMBER if flat and self.halves.own_tensors.flat(self.module.scope_of(expr), expr.value) else value

    def indexes(self, places: ast.expr) -> bool:
        """Whether an item is taken by a mask, or by indices in a tensor or a list: torch writes there what is of one dtype alone."""
        parts = places.elts if isinstance(places, ast.Tuple) else [places]
        found = [self.of(part) for part in parts]
        return any(v.mask or v.places for v in found) or any(
            isinstance(part, (ast.List, ast.ListComp)) for part in parts
        )

    @staticmethod
    def dictionary(found: list[tuple[ast.expr | None, Value]]) -> Value:
        """`{"logits": out, **others}`."""
        entries: dict[str, Value] = {}
        for key, value in found:
            if key is None and (value.keys or value in (UNKNOWN, NOTHING)):
                entries |= dict(zip(value.keys, value.items or (), strict=True))
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                entries[key.value] = value
            else:
                beside = any(k is None and v == UNKNOWN for k, v in found)
                return Value("?", "?", tuple(v for _, v in found)).entry().holding(None)._replace(beside=beside)
        return keyed(entries)

    @staticmethod
    def part(value: Value, part: ast.Slice) -> Value:
        """`outputs[:2]`, `outputs[1:]`."""
        bounds = [part.lower, part.upper, part.step]
        known = [b.value if isinstance(b, ast.Constant) else None for b in bounds]
        if value.items is None or any(
            b is not None and not isinstance(k, int) for b, k in zip(bounds, known, strict=True)
        ):
            return value
        items = value.items[slice(*[k if isinstance(k, int) else None for k in known])]
        return value.holding(items) if items else UNKNOWN

    def binary(self, expr: ast.BinOp) -> Value:
        left, right = (
            NUMBER if value == UNKNOWN and is_number(self.halves.values, self.module, side) else value
            for side, value in ((expr.left, self.of(expr.left)), (expr.right, self.of(expr.right)))
        )
        if left.mask and right.mask:
            return left  # `(x > 0) & seen`
        if isinstance(expr.op, ast.MatMult):
            return self.operation(expr, "matmul", [left, right], True)
        if isinstance(expr.op, ast.Pow):
            return self.operation(expr, "pow", [left, right], True)
        if isinstance(expr.op, ast.Add) and (left.items or right.items) and NUMBER not in (left, right):
            items = (*(left.items or (left,)), *(right.items or (right,)))
            return Value("?", "?", items)
        return self.promoting(expr, left, right)

    def arithmetic(self, expr: ast.expr, given: list[Value]) -> Value:
        left, *others = given
        side = expr.args[-1] if isinstance(expr, ast.Call) and expr.args else None
        right = others[0] if others else NUMBER
        if side is not None and right == UNKNOWN and is_number(self.halves.values, self.module, side):
            right = NUMBER
        return self.promoting(expr, left.entry(), right.entry())

    def promoting(self, expr: ast.expr, left: Value, right: Value) -> Value:
        """What arithmetic gives of two values."""
        origin = came_of((left, right))
        now, was = promoted(left.now, right.now), promoted(left.was, right.was)
        reduced, kept = left.reduced or right.reduced, left.kept or right.kept
        one, other = (left, right) if left.single else (right, left)
        if one.single and one.now == "float" and other.half:
            now = other.now
            if self.inside and not self.halves.below and self.halves.patches(self.module):
                self.tell("single", expr, other, "")
        single = one.single and (other.single or other.now == "number")
        own = narrowed((left, right))
        host, double = left.host or right.host, left.double or right.double
        whole = Value(was, now, None, reduced, host, origin, kept, single=single, narrowed=own, double=double)
        return whole._replace(either=(other.either and one.now == "number") or (one.either and other.now == "number"))

    def turn(self, iterated: ast.expr) -> Value:
        """What a turn of a loop over something has: of a dictionary, a key."""
        value = self.of(iterated)
        value = self.implied(iterated, "__iter__") if value == UNKNOWN else value
        known = value.keys or value.followed or value.double
        double = UNKNOWN if known else self.halves.loaders.turn(self.module.scope_of(iterated), iterated)
        return double if double != UNKNOWN else UNKNOWN if value.keys else value.turn()

    def comprehension(self, expr: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        saved = dict(self.env)
        each = expr.value if isinstance(expr, ast.DictComp) else expr.elt
        first = self.of(expr.generators[0].iter)
        first = self.implied(expr.generators[0].iter, "__iter__") if first == UNKNOWN else first
        first = UNKNOWN if first.keys else first
        if len(expr.generators) == 1 and first.items and not expr.generators[0].ifs:
            items = []
            for item in first.items:
                self.bind(expr.generators[0].target, item)
                items.append(self.of(each))
            self.env = saved
            whole = Value("?", "?", tuple(items))
            return whole.entry().holding(whole.items)
        self.bind(expr.generators[0].target, first.turn())
        for generator in expr.generators[1:]:
            self.bind(generator.target, self.turn(generator.iter))
        for test in (t for g in expr.generators for t in g.ifs):
            self.of(test)
        value = self.of(each)
        self.env = saved
        return Value(value.was, value.now, (value,), value.reduced, value.host, value.origin) if value.items else value
