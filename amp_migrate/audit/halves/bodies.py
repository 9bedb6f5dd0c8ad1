"""One run through the statements of a body, with what each name holds."""

from __future__ import annotations

import ast

from amp_migrate.audit.halves.calls import Calls
from amp_migrate.audit.halves.given import comes_out
from amp_migrate.audit.halves.operations import has_axis
from amp_migrate.audit.halves.tensors import (
    INTEGER,
    MASKED,
    NOTHING,
    NUMBER,
    UNKNOWN,
    Env,
    Value,
    join,
    keyed,
    narrowed,
    promoted,
    ways,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Function
from amp_migrate.audit.values.names import OPTIONS
from amp_migrate.audit.ways.chains import leaves


class Body(Calls):
    """One run through a body."""

    def result(self) -> Value:
        self.returned = ways(self.returned)
        if len({len(v.items or ()) for v in self.returned}) > 1:
            most = max(len(v.items or ()) for v in self.returned)
            longest = join(v for v in self.returned if len(v.items or ()) == most)  # what else it gives is one of these
            return longest if longest.items else UNKNOWN
        return join(self.returned)

    def left(self) -> None:
        """Note what the attributes of the object hold where one of its methods is left."""
        if self.method is None or self.method.owner is None or not self.method.parameters:
            return
        start = f"{self.method.parameters[0].arg}."
        for text, value in self.env.items():
            if text.startswith(start) and text.count(".") == 1 and "[" not in text:
                self.halves.hold(self.method.owner, text[len(start) :], value)

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for stmt in body:
            truth = self.comes_out(stmt.test) if isinstance(stmt, ast.If) else None
            self.statement(stmt)
            if truth is not None and isinstance(stmt, ast.If) and leaves(stmt.body if truth else stmt.orelse):
                break

    def statement(self, stmt: ast.stmt) -> None:
        outer = self.halves.at
        if self.module.path in self.halves.both.review.changes:
            self.halves.at = self.module, stmt
        self.run(stmt)
        self.halves.at = outer

    def run(self, stmt: ast.stmt) -> None:
        if type(stmt) is ast.Assign:
            value = self.of(stmt.value)
            for target in stmt.targets:
                if isinstance(target, ast.Subscript) and self.of(target.slice).mask and not _one_number(stmt.value):
                    self.write(target, MASKED, self.of(target.value), value)
                self.bind(target, value)
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            self.bind(stmt.target, self.of(stmt.value))
        elif isinstance(stmt, ast.AugAssign):
            value, old = self.of(stmt.value), self.env.get(syntax.text(stmt.target), UNKNOWN)
            if isinstance(stmt.value, (ast.List, ast.ListComp)) and isinstance(stmt.op, ast.Add):
                self.put(stmt.target, value)
            elif old.half or old.now == "float":
                self.bind(stmt.target, old)
            else:
                now = promoted(old.now, value.now)
                self.bind(stmt.target, value._replace(was=promoted(old.was, value.was), now=now).holding(None))
        elif isinstance(stmt, ast.Expr):
            self.of(stmt.value)
        elif isinstance(stmt, ast.Return):
            self.returned.append(self.of(stmt.value) if stmt.value is not None else UNKNOWN)
            self.left()
        elif isinstance(stmt, ast.If):
            self.of(stmt.test)
            truth = self.comes_out(stmt.test)
            self.branches(stmt.body if truth is not False else [], stmt.orelse if truth is not True else [])
        elif isinstance(stmt, (ast.For, ast.AsyncFor)):
            runs = self.halves.is_stack(self.module, stmt.iter)
            for _ in range(2):
                before, bound = dict(self.env), len(self.bound)
                self.bind(stmt.target, self.turn(stmt.iter))
                self.block(stmt.body)
                if not runs:
                    self.merge(before, self.env)
                if self.env == before and len(self.bound) == bound:
                    break  # another turn finds what this one did
            self.block(stmt.orelse)
        elif isinstance(stmt, ast.While):
            self.of(stmt.test)
            before = dict(self.env)
            self.block(stmt.body)
            self.merge(before, self.env)
        elif isinstance(stmt, (ast.With, ast.AsyncWith)):
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

    def comes_out(self, test: ast.expr) -> bool | None:
        """How a test comes out in the call that is followed: at its opt level, with what that gives the parameters."""
        truth = self.halves.at_level(test)
        return comes_out(test, self.given, self.bound) if truth is None else truth

    def branches(self, yes: list[ast.stmt], no: list[ast.stmt]) -> None:
        before = dict(self.env)
        self.block(yes)
        after_yes = self.env
        self.env = before
        self.block(no)
        if leaves(yes):
            return
        if leaves(no):
            self.env = after_yes
            return
        self.merge(after_yes, self.env)

    def merge(self, one: Env, other: Env) -> None:
        merged = {**one, **other}
        for name in one.keys() & other.keys():
            if one[name] is not other[name]:
                merged[name] = join([one[name], other[name]])
        self.env = merged

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            plain = not any(isinstance(e, ast.Starred) for e in target.elts)
            for i, e in enumerate(target.elts):
                if value.keys and plain:
                    self.bind(e, value.at(i))
                elif value.items is not None and plain and len(value.items) == len(target.elts):
                    self.bind(e, value.items[i])
                elif value.items is not None:
                    self.bind(e, UNKNOWN)
                else:
                    self.bind(e, value)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value.entry())
        elif isinstance(target, (ast.Name, ast.Attribute)):
            self.bound.add(syntax.text(target))
            name = target.id if isinstance(target, ast.Name) else target.attr
            if value.now in ("maybe", "partly") and not value.reduced and "loss" in name.lower():
                value = UNKNOWN  # what a model calls a loss was mostly computed in float32
            self.store(syntax.text(target), value)
        elif isinstance(target, ast.Subscript):
            text = syntax.text(target.value)
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                old = self.of(target.value)
                if old.keys or old in (UNKNOWN, NOTHING):
                    entries = dict(zip(old.keys, old.items or (), strict=True))
                    if value.followed or value.now in ("int", "float") or entries:
                        self.store(text, keyed({**entries, target.slice.value: value}))
                    return
            if value.half and self.env.get(syntax.text(_whole(target)), UNKNOWN).now == "float":
                return  # float32[...] = half: stays float32
            if value in (UNKNOWN, NUMBER) and self.env.get(text, UNKNOWN).followed:
                return  # half[...] = -inf: stays half
            if value == NUMBER and self.env.get(text, UNKNOWN) == UNKNOWN:
                return  # a number says nothing of what it is written into
            self.store(text, join([self.env[text], value]) if self.env.get(text, UNKNOWN) != UNKNOWN else value)

    # -- expressions -------------------------------------------------------------------------------------------------

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
            along = any(isinstance(p, ast.Call) and has_axis(p) for p in (expr.left, *expr.comparators))
            return INTEGER._replace(mask=along or any(p.half or p.now == "float" for p in parts))
        if isinstance(expr, ast.BoolOp):
            return join([self.of(v) for v in expr.values])
        if isinstance(expr, ast.IfExp):
            self.of(expr.test)
            truth = self.comes_out(expr.test)
            return join([self.of(v) for v, yes in ((expr.body, True), (expr.orelse, False)) if truth is not (not yes)])
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
        if isinstance(expr, (ast.JoinedStr, ast.FormattedValue)):
            for child in syntax.children(expr):
                if isinstance(child, ast.expr):
                    self.of(child)
        return UNKNOWN

    def named(self, name: str) -> Value:
        """What a name holds: a dictionary whose entries were filled one by one holds each of them."""
        value = self.env.get(name, UNKNOWN)
        if value.followed:
            return value
        if name not in self.keyed:
            return value
        start = f"{name}["
        entries = [v for k, v in self.env.items() if k.startswith(start)]
        return Value("?", "?", tuple(entries)) if any(v.followed for v in entries) else value

    def attribute(self, expr: ast.Attribute) -> Value:
        text = syntax.text(expr)
        if text in self.env:
            return self.env[text]
        value = self.of(expr.value)
        if expr.attr in ("shape", "device", "dtype", "loss", "grad", "is_cuda", "requires_grad"):
            return UNKNOWN
        if value.keys:
            return value.under(expr.attr)
        if expr.attr in ("values", "indices") and value.items is not None and len(value.items) == 2:
            return value.items[expr.attr == "indices"]  # of `x.max(1)`
        if (
            value == UNKNOWN
            and (owner := self.halves.program.is_self(self.module.scope_of(expr), expr.value)) is not None
        ):
            if self.halves.program.is_network(owner):
                return self.halves.weight(self.module.scope_of(expr), expr, owner)
            held = self.halves.held(owner, expr.attr)
            return held if held.followed else self.halves.field(owner, expr.attr)
        return value.entry() if value.half or value.items else UNKNOWN if value.now not in ("int", "float") else value

    def subscript(self, expr: ast.Subscript) -> Value:
        if isinstance(expr.value, ast.Name) and isinstance(expr.slice, ast.Constant):
            if (entry := self.env.get(syntax.text(expr))) is not None:
                return entry
            if not (value := self.env.get(expr.value.id, UNKNOWN)).followed and self.named(expr.value.id).items:
                return value  # another entry
        value = self.of(expr.value)
        self.of(expr.slice)
        index = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
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
        return value

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
                return Value("?", "?", tuple(v for _, v in found)).entry().holding(None)
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
            NUMBER if value == UNKNOWN and (_number(side) or self.setting(side)) else value
            for side, value in ((expr.left, self.of(expr.left)), (expr.right, self.of(expr.right)))
        )
        if isinstance(expr.op, ast.MatMult):
            return self.operation(expr, "matmul", [left, right], True)
        if isinstance(expr.op, ast.Pow):
            return self.operation(expr, "pow", [left, right], True)
        if isinstance(expr.op, ast.Add) and (left.items or right.items) and NUMBER not in (left, right):
            items = (*(left.items or (left,)), *(right.items or (right,)))
            return Value("?", "?", items)
        origin = left.origin or right.origin
        now, was = promoted(left.now, right.now), promoted(left.was, right.was)
        reduced, kept = left.reduced or right.reduced, left.kept or right.kept
        one, other = (left, right) if left.single else (right, left)
        if one.single and one.now == "float" and other.half:
            now = other.now
            if self.inside and not self.halves.below and self.halves.patches(self.module):
                self.tell("single", expr, other, "")
        single = one.single and (other.single or other.now == "number")
        own = narrowed((left, right))
        return Value(was, now, None, reduced, left.host or right.host, origin, kept, single=single, narrowed=own)

    def setting(self, expr: ast.expr) -> bool:
        """Whether a name is a number wherever it comes from: `temperature=1.0`; an attribute, one that its object was made
        with: `self.margin`, of `margin=0.2`."""
        program = self.halves.program
        if isinstance(expr, ast.Name):
            origins = self.halves.values.origins(self.module.scope_of(expr), expr)
            return bool(origins) and all(not o.path and _is_number(o.node) for o in origins)
        owner = program.is_self(self.module.scope_of(expr), expr.value) if isinstance(expr, ast.Attribute) else None
        if owner is None or not isinstance(expr, ast.Attribute):
            return False
        given = [
            (module.function_around(target), value)
            for module, target, value, _ in self.halves.values.fields(expr.attr)
            if program.is_self(module.scope_of(target), target.value) in program.family_up(owner)
        ]
        return bool(given) and all(f is not None and value is not None and _plain(f, value) for f, value in given)

    def turn(self, iterated: ast.expr) -> Value:
        """What a turn of a loop over something has: of a dictionary, a key."""
        value = self.of(iterated)
        return UNKNOWN if value.keys else value.entry()

    def comprehension(self, expr: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        saved = dict(self.env)
        each = expr.value if isinstance(expr, ast.DictComp) else expr.elt
        first = self.of(expr.generators[0].iter)
        first = UNKNOWN if first.keys else first
        if len(expr.generators) == 1 and first.items and not expr.generators[0].ifs:
            items = []
            for item in first.items:
                self.bind(expr.generators[0].target, item)
                items.append(self.of(each))
            self.env = saved
            whole = Value("?", "?", tuple(items))
            return whole.entry().holding(whole.items)
        self.bind(expr.generators[0].target, first.entry())
        for generator in expr.generators[1:]:
            self.bind(generator.target, self.turn(generator.iter))
        for test in (t for g in expr.generators for t in g.ifs):
            self.of(test)
        value = self.of(each)
        self.env = saved
        return Value(value.was, value.now, (value,), value.reduced, value.host, value.origin) if value.items else value


def _whole(expr: ast.expr) -> ast.expr:
    """What an entry of an entry belongs to: `rows` of `rows[0][i]`."""
    return _whole(expr.value) if isinstance(expr, ast.Subscript) else expr


def _plain(function: Function, value: ast.expr) -> bool:
    """Whether a function assigns a number: one that is written there, or a parameter that is one by default."""
    if isinstance(value, ast.Name):
        value = function.defaults.get(value.id) or value
    if isinstance(value, ast.BinOp):
        return _plain(function, value.left) and _plain(function, value.right)
    if isinstance(value, (ast.Attribute, ast.Call)):
        return syntax.text(value).startswith("math.")
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float))


def _one_number(expr: ast.expr) -> bool:
    """Whether an expression is a whole reduced to one number, which fills whatever it is given: `x.mean()`."""
    called = expr.func.attr if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) else ""
    return called in ("mean", "sum", "max", "min", "norm", "item", "prod", "std", "var") and not has_axis(expr)


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, (ast.AnnAssign, ast.arg)):
        return node.annotation is not None and syntax.text(node.annotation) in ("int", "float")
    return isinstance(node, ast.expr) and _number(node)


def _number(expr: ast.expr) -> bool:
    """Whether an expression is a number of Python's, as far as its name says: an option, a length, a constant."""
    if isinstance(expr, ast.Call):
        return syntax.text(expr.func) in ("len", "int", "float", "max", "min") or syntax.text(expr.func).startswith(
            "math."
        )
    if isinstance(expr, ast.Subscript):
        return isinstance(expr.slice, ast.Constant) and isinstance(expr.slice.value, str) and _number(expr.value)
    parts = syntax.text(expr).split(".")
    if isinstance(expr, ast.Name):
        return expr.id.isupper() or expr.id in OPTIONS
    return isinstance(expr, ast.Attribute) and any(p in OPTIONS for p in parts[:2])
