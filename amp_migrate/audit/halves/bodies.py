"""One run through the statements of a body, with what each name holds."""

from __future__ import annotations

import ast
from functools import cached_property

from amp_migrate.audit.halves.asked import not_half
from amp_migrate.audit.halves.expressions import Expressions
from amp_migrate.audit.halves.operations import has_axis
from amp_migrate.audit.halves.tensors import (
    INDEXED,
    MASKED,
    NOTHING,
    NUMBER,
    PERHAPS_INDEXED,
    UNKNOWN,
    Env,
    Value,
    join,
    keyed,
    promoted,
    ways,
)
from amp_migrate.audit.program import syntax
from amp_migrate.audit.ways.within import leaves


class Body(Expressions):
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
        start = f"{self.own}."
        for text, value in self.env.items():
            name, entry, _ = text.removeprefix(start).partition("[")
            if text.startswith(start) and "." not in name:
                self.halves.hold(self.method.owner, name, Value("?", "?", (value,)) if entry else value)

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        """Run statements up to what surely leaves; whether something does, as tests come out in the call that is followed."""
        return any(self.statement(stmt) for stmt in body)

    def statement(self, stmt: ast.stmt) -> bool:
        """Run one; whether it leaves."""
        outer = self.halves.at
        if self.module.path in self.halves.both.review.changes and (outer is None or not self.of_network):
            self.halves.at = self.module, stmt
        left = self.run(stmt)
        self.halves.at = outer
        return left

    @cached_property
    def of_network(self) -> bool:
        """Whether this is the body of a network's method, which stands in a region where who runs it opens one."""
        owner = self.method.owner if self.method is not None else None
        return owner is not None and self.halves.program.is_network(owner)

    def run(self, stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.If):
            return self.either(stmt)
        if type(stmt) is ast.Assign:
            value = self.of(stmt.value)
            for target in stmt.targets:
                if isinstance(target, ast.Subscript):
                    self.assigned(target, stmt.value, value)
                self.bind(target, value)
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            self.bind(stmt.target, self.of(stmt.value))
        elif isinstance(stmt, ast.AugAssign):
            value, old = self.of(stmt.value), self.env.get(syntax.text(stmt.target), UNKNOWN)
            if isinstance(stmt.target, ast.Subscript):
                whole = self.of(stmt.target.value)
                if (
                    whole.half and value.now == "float" and not _one_number(stmt.value)
                ):  # the sum is float32, and is written into half
                    self.assigned(stmt.target, stmt.value, value)
            if isinstance(stmt.value, (ast.List, ast.ListComp)) and isinstance(stmt.op, ast.Add):
                self.put(syntax.text(stmt.target), value)
            elif old.half or old.now == "float":
                self.bind(stmt.target, old)
            else:
                now = promoted(old.now, value.now)
                self.bind(stmt.target, value._replace(was=promoted(old.was, value.was), now=now).holding(None))
        elif isinstance(stmt, ast.Expr):
            self.of(stmt.value)
        elif isinstance(stmt, ast.Return):
            value = self.of(stmt.value) if stmt.value is not None else UNKNOWN
            self.returned.append(value)
            if value.followed:
                self.halves.returned[stmt] = value
            self.left()
        elif isinstance(stmt, (ast.For, ast.AsyncFor)):
            runs = self.halves.is_stack(self.module, stmt.iter)
            turn = self.turn(stmt.iter)  # asked for once, whatever its names hold later
            for _ in range(2):
                before, bound = dict(self.env), len(self.bound)
                self.bind(stmt.target, turn)
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
                    on = region.enabled is None or self.comes_out(region.enabled) is not False
                    self.inside = on and not region.off
                else:
                    self.of(item.context_expr)
            left = self.block(stmt.body)
            self.inside = outside
            return left
        elif isinstance(stmt, ast.Try):
            self.block(stmt.body)
            for handler in stmt.handlers:
                self.branches(handler.body, [])
            self.block(stmt.orelse)
            self.block(stmt.finalbody)
        elif isinstance(stmt, ast.Assert):
            self.of(stmt.test)
        return leaves([stmt])

    def either(self, stmt: ast.If) -> bool:
        """Run the branch of an `if` that is taken in the call that is followed, or both of them; whether it leaves."""
        self.of(stmt.test)
        truth = self.comes_out(stmt.test)
        if truth is not None:
            return self.block(stmt.body if truth else stmt.orelse)
        self.branches(stmt.body, stmt.orelse, not_half(self.halves.program, self.module.scope_of(stmt), stmt.test))
        return False

    def assigned(self, target: ast.Subscript, expr: ast.expr, value: Value) -> None:
        """`x[mask] = y`, `x[rows, columns] = y`: one number fills what a mask shows, in whichever dtype."""
        places = self.of(target.slice)
        if self.indexes(target.slice):
            if not (places.mask and _one_number(expr)):
                self.write(target, MASKED if places.mask else INDEXED, self.of(target.value), value)
        elif (
            places == UNKNOWN
            and isinstance(target.slice, (ast.Name, ast.Attribute))
            and not _one_number(expr)
            and not self.has_keys(target.value)
        ):
            self.write(target, PERHAPS_INDEXED, self.of(target.value), value)

    def has_keys(self, holder: ast.expr) -> bool:
        """Whether entries of what is written into have names, here or where it is handed on under the same name in this file:
        `states["user"]`."""
        return any(
            isinstance(at := self.module.parents[read], ast.Subscript)
            and at.value is read
            and isinstance(at.slice, ast.Constant)
            and isinstance(at.slice.value, str)
            and syntax.text(read) == syntax.text(holder)
            for read in self.module.loads.get(syntax.last(holder), ())
        )

    def branches(self, yes: list[ast.stmt], no: list[ast.stmt], asked: tuple[list[str], list[str]] = ([], [])) -> None:
        """Either; `asked`: what is no half tensor in the one, and in the other."""
        before = dict(self.env)
        self.without(asked[0], yes, kept=leaves(no))
        after_yes = self.env
        self.env = before
        self.without(asked[1], no, kept=leaves(yes))
        if leaves(yes):
            return
        if leaves(no):
            self.env = after_yes
            return
        self.merge(after_yes, self.env)

    def without(self, tensors: list[str], body: list[ast.stmt], kept: bool) -> None:
        """Run statements where some tensors are known not to be half; `kept`: what follows comes from there alone."""
        halves = {text: self.env[text] for text in tensors if self.env.get(text, UNKNOWN).followed}
        other = UNKNOWN._replace()
        self.env.update(dict.fromkeys(halves, other))
        self.block(body)
        if not kept:
            self.env.update({text: value for text, value in halves.items() if self.env.get(text) is other})

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
            if isinstance(target, ast.Name) and target.id != self.own:  # another object: nothing was given to that
                start = f"{target.id}."
                self.env = {k: v for k, v in self.env.items() if not k.startswith(start)}
            name = target.id if isinstance(target, ast.Name) else target.attr
            value = value.under_name(name)
            self.store(syntax.text(target), value)
            if value.followed and isinstance(target, ast.Name):
                self.halves.hold_variable(self.module.scope_of(target), name, value)
        elif isinstance(target, ast.Subscript):
            text = syntax.text(target.value)
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                old = self.of(target.value)
                old = old.dictionary or old
                if old.keys or old in (UNKNOWN, NOTHING):
                    entries = dict(zip(old.keys, old.items or (), strict=True))
                    if value.followed or value.now in ("int", "float") or entries:
                        self.store(text, keyed({**entries, target.slice.value: value}))
                    return
            if value.half and self.of(syntax.whole(target)).now in ("float", "int"):
                return  # float32[...] = half: stays float32
            if value in (UNKNOWN, NUMBER) and self.env.get(text, UNKNOWN).followed:
                return  # half[...] = -inf: stays half
            if value == NUMBER and self.env.get(text, UNKNOWN) == UNKNOWN:
                return  # a number says nothing of what it is written into
            if value.followed and not isinstance(target.slice, ast.Slice):
                value = self.appended(value)
            self.store(text, join([self.env[text], value]) if self.env.get(text, UNKNOWN) != UNKNOWN else value)


def _one_number(expr: ast.expr) -> bool:
    """Whether an expression is a whole reduced to one number, which fills whatever it is given: `x.mean()`."""
    called = expr.func.attr if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) else ""
    return called in ("mean", "sum", "max", "min", "norm", "item", "prod", "std", "var") and not has_axis(expr)
