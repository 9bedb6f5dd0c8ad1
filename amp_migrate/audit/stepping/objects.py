"""Which optimizer, or which scaler, an expression stands for.

An object is told by where it is made. `Ident` is the text of all places where it may be made, joined: two expressions of
one ident are one object as far as can be told. Where one function calls another several times, for an object each, the
call tells them apart. A loop's target (`for optimizer in optimizers`) is an object of its own
that takes the state of its members at every turn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Class, Function, Module, Scope
from amp_migrate.audit.program.targets import Path, given_to, targets
from amp_migrate.audit.values.origins import Origin, in_order
from amp_migrate.audit.values.values import Values

Ident = str
Bound = tuple[Scope, str]  # a parameter, by the scope that binds it
SEPARATOR = " | "
CALLED = " by "  # between the place where an object is made and the call that had it made, of several in one function
DEPTH = 8
_OPTIMIZER = re.compile(r"(^|_)opt(im(izer)?)?s?(_|\d|$)|optim", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched|warmup|lr_", re.IGNORECASE)
_ADAM = re.compile(r"Adam\w*$")
_MADE = tuple("SGD RMSprop Adagrad Adadelta BFGS LAMB Lamb LARS LARC Optimizer Optim".split())


@dataclass(frozen=True)
class Ref:
    """What an expression stands for; `every`: each of the objects in turn (a comprehension over them)."""

    ident: Ident
    role: str | None  # "scaler", "optimizer", None: neither
    every: bool = False


Env = Mapping[Bound, Ref]


@dataclass
class Objects:
    """Answers for one program."""

    values: Values
    loops: dict[Ident, tuple[ast.AST, Ident]] = field(default_factory=dict)  # a loop's target: its loop, its members
    made: dict[str, Origin] = field(default_factory=dict)  # by the text of the place
    several: set[str] = field(default_factory=set)  # places whose objects are told apart by the call
    _asked: set[Bound] = field(default_factory=set)
    _plain: dict[tuple[Scope, ast.expr], Ref] = field(default_factory=dict)

    def ref(self, scope: Scope, expr: ast.expr, env: Env, depth: int = 0) -> Ref:
        """What an expression stands for, `env` being known of parameters."""
        if env or depth or self._asked:
            return self._ref(scope, expr, env, depth)
        if (scope, expr) not in self._plain:
            self._plain[scope, expr] = self._ref(scope, expr, env, depth)
        return self._plain[scope, expr]

    def _ref(self, scope: Scope, expr: ast.expr, env: Env, depth: int) -> Ref:
        if depth >= DEPTH:
            return self._of(scope, expr, self.values.origins(scope, expr))
        if isinstance(expr, ast.Name):
            binder = scope.binder(expr.id)
            if binder is not None and (binder, expr.id) in env:
                return env[binder, expr.id]
            if binder is not None:
                nodes = binder.bindings[expr.id]
                handed = [n for n in nodes if isinstance(n, ast.arg)]
                loops = [n for n in nodes if isinstance(n, (ast.For, ast.AsyncFor, ast.comprehension))]
                if loops and not handed:
                    loop = _innermost(scope, expr, loops)
                    one = _only_turn(loop, expr)
                    return (
                        self.ref(scope, one, env, depth + 1)
                        if one is not None
                        else self._looped(scope, expr, loop, env)
                    )
                given = [(binder, v, item) for n in nodes for v, item in given_to(n, expr.id)] if not loops else []
                if given and binder is binder.module.top:  # `engine.scaler = ...` in another file
                    given += self.values.set_elsewhere(binder.module, expr.id)
                refs = [self._of(binder, expr, self.values.parameter(binder, n)) for n in handed] if given else []
                if given and (binder, expr.id) not in self._asked:
                    self._asked.add((binder, expr.id))
                    refs += [self._item(scope, v, item, env, depth) for scope, v, item in given]
                    self._asked.discard((binder, expr.id))
                    return self._union(refs, expr)
                if given:
                    return self._union(refs, expr) if refs else Ref("None", None)
        if (
            env and isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name)
        ):  # a field of the one object meant
            binder = scope.binder(expr.value.id)
            if binder is not None and (binder, f"{expr.value.id}.{expr.attr}") in env:
                return env[binder, f"{expr.value.id}.{expr.attr}"]
        if isinstance(expr, ast.IfExp):
            return self._union([self.ref(scope, e, env, depth + 1) for e in (expr.body, expr.orelse)], expr)
        if isinstance(expr, ast.Call):
            return self._item(scope, expr, (), env, depth)
        found = self._of(scope, expr, self.values.origins(scope, expr))
        many = isinstance(expr, ast.Subscript) and not isinstance(expr.slice, ast.Constant)
        return Ref(found.ident, found.role, every=True) if many else found

    def _item(self, scope: Scope, expr: ast.expr, item: Path, env: Env, depth: int) -> Ref:
        """What an item of an expression's value stands for; a function of the program gives back what it was given."""
        if isinstance(expr, (ast.Tuple, ast.List)) and item and isinstance(item[0], int) and item[0] < len(expr.elts):
            return self._item(scope, expr.elts[item[0]], item[1:], env, depth + 1)
        if isinstance(expr, ast.Call) and depth < DEPTH:
            handed = [*expr.args, *(k.value for k in expr.keywords if k.arg == "optimizers")]
            if self.values.program.dotted(scope, expr.func) == "apex.amp.initialize" and item and item[0] in (0, 1):
                if handed and isinstance(handed[0], ast.Starred):
                    return self._item(scope, handed[0].value, item, env, depth + 1)
                if len(handed) > item[0]:
                    return self._item(scope, handed[item[0]], item[1:], env, depth + 1)
            found = self.values.program.definitions(scope, expr.func, guess=False)
            if found and all(isinstance(d, Function) for d in found):
                refs = [
                    r
                    for d in found
                    if isinstance(d, Function)
                    for r in self._returned(scope, d, expr, item, env, depth)
                ]
                if refs:
                    return self._union(refs, expr)
        elif not item and not isinstance(expr, ast.Call):
            return self.ref(scope, expr, env, depth + 1)
        return self._of(scope, expr, self.values.origins(scope, expr, item))

    def _returned(
        self, scope: Scope, function: Function, call: ast.Call, item: Path, env: Env, depth: int
    ) -> Iterator[Ref]:
        filled = self.values.program.arguments(function, call)
        if filled is None:
            return
        inner = {(function.scope, name): self.ref(scope, given, env, depth + 1) for name, given in filled.items()}
        for node in syntax.own(function.node, ast.Return):
            if node.value is not None:
                found = self._item(function.scope, node.value, item, inner, depth + 2)
                yield self._by_call(found, scope, call, inner) if self._called_again(function) else found

    @kept
    def _called_again(self, function: Function) -> bool:
        """Whether one body calls a function more than once."""
        calls = self.values.program.callers(function)
        bodies = [(module, module.function_around(call)) for module, call in calls]
        return len(set(bodies)) < len(bodies)

    def _by_call(self, ref: Ref, scope: Scope, call: ast.Call, given: Env) -> Ref:
        """What a function made for one of its calls, told from what it makes for others."""
        if ref.role != "optimizer" or ref.every:
            return ref
        handed = {p for r in given.values() for p in parts(r.ident)}
        at = f"{CALLED}{scope.module.path}:{call.lineno}:{call.col_offset}"
        idents: set[str] = set()
        for part in parts(ref.ident):
            origin = self.made.get(part)
            if part in handed or origin is None or origin.module.function_around(origin.node) is None:
                idents.add(part)
                continue
            self.several.add(place_made(part))
            self.made.setdefault(part + at, origin)
            idents.add(part + at)
        return Ref(joined(idents), ref.role)

    def _union(self, refs: list[Ref], expr: ast.expr) -> Ref:
        some = [r for r in refs if r.ident != "None"]
        idents = {p for r in some for p in parts(r.ident)}
        roles = {r.role for r in some}
        role = "scaler" if "scaler" in roles else "optimizer" if "optimizer" in roles else None
        if role is None and isinstance(expr, ast.Name) and _by_name(expr.id) == "optimizer" and self._unknown(idents):
            role = "optimizer"
        return Ref(joined(idents or {"None"}), role, any(r.every for r in refs))

    def _unknown(self, idents: set[str]) -> bool:
        """Whether it cannot be told of what is made at some places what that is."""
        made = [self.made.get(i) for i in idents]
        known = (o is None or self.role(o) != "unknown" or self._of_python(o) for o in made)
        return bool(made) and not any(known)

    @staticmethod
    def _of_python(origin: Origin) -> bool:
        """Whether something of Python's own makes an origin: `object()`."""
        func = origin.node.func if isinstance(origin.node, ast.Call) else None
        return isinstance(func, ast.Name) and origin.module.scope_of(func).binder(func.id) is None

    def _of(self, scope: Scope, expr: ast.expr, origins: frozenset[Origin]) -> Ref:
        idents: set[str] = set()
        roles: set[str | None] = set()
        for origin in origins:
            if isinstance(origin.node, ast.Constant):
                continue
            place = self.place(origin)
            self.made.setdefault(place, origin)
            idents.add(place)
            roles.add(self.role(origin))
        role = "scaler" if "scaler" in roles else "optimizer" if "optimizer" in roles else None
        if role is None and (roles <= {"unknown"} or "unknown" in roles):
            role = _by_name(syntax.text(expr)) if not isinstance(expr, ast.Call) else None
        return Ref(joined(idents or {"None"}), role)

    def _looped(self, scope: Scope, expr: ast.Name, loop: ast.AST, env: Env) -> Ref:
        """The target of a loop over optimizers or scalers."""
        origins = self.values.origins(scope, expr)
        of = self._of(scope, expr, origins)
        over = ((v, {n.id for n in syntax.every(t, ast.Name)}) for t, v, _ in targets(loop) if v is not None)
        iterable = next((v for v, names in over if expr.id in names), None)
        if isinstance(iterable, ast.Name):  # a parameter that the caller fills with a list of them
            binder = scope.binder(iterable.id)
            if binder is not None and (binder, iterable.id) in env:
                handed = env[binder, iterable.id]
                of = Ref(handed.ident, handed.role or of.role)
        if len(origins) == 1 and one_object(next(iter(origins))):
            return Ref(of.ident, of.role, every=True)  # the only one of its list: the loop has one turn
        if isinstance(loop, ast.comprehension):
            return Ref(of.ident, of.role, every=True)
        ident = f"{scope.module.path}:{getattr(loop, 'lineno', 0)}:each {expr.id}"
        self.loops[ident] = (loop, of.ident)
        return Ref(ident, of.role)

    def place(self, origin: Origin) -> str:
        """Where an object is made: what tells it from others."""
        item = "".join(f"[{p!r}]" for p in origin.path)
        node = origin.node
        if origin.kind == "unknown" and isinstance(node, (ast.Name, ast.Attribute)):
            where = origin.module.scope_of(node)
            return f"{_written(self.values, where, node)}{item}"
        return f"{origin.module.path}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}{item}"

    def role(self, origin: Origin) -> str | None:
        """What an origin makes; "unknown" where that cannot be told."""
        node = origin.node
        if not isinstance(node, ast.Call):
            return "unknown" if origin.kind in ("unknown", "parameter") else None
        cls = self.class_made(origin)
        if cls is not None:
            bases = self.values.program.external_bases(cls)
            if any(b.rpartition(".")[2] == "GradScaler" for b in bases):
                return "scaler"
            # One that is no torch optimizer and has a step of its own is read, not believed.
            named = may_optimize(cls.name) and not self.values.program._method(cls, "step")
            return "optimizer" if named or any(map(may_optimize, bases)) else None
        name = self.values.program.dotted(origin.module.scope_of(node), node.func) or syntax.text(node.func)
        last = name.rpartition(".")[2]
        if last == "GradScaler":
            return "scaler"
        if _SCHEDULER.search(name):
            return None
        if name.startswith("torch.optim.") or may_optimize(name):
            return "optimizer"
        if name.startswith("torch."):
            return None
        if _by_name(last) is not None and not origin.path:
            return _by_name(last)
        return "unknown"

    def class_made(self, origin: Origin) -> Class | None:
        """The program's class whose instance an origin is."""
        return next(iter(self.values.made(origin)), None)

    def methods(self, scope: Scope, receiver: ast.expr, name: str) -> list[Function]:
        """The methods of the program's classes that a call on an object of theirs runs."""
        program = self.values.program
        owner = program.is_self(scope, receiver)
        if owner is not None:
            return list(program.methods(owner, name))
        found: list[Function] = []
        for origin in in_order(self.values.origins(scope, receiver)):
            cls = self.class_made(origin)
            if cls is not None:
                found += [f for f in program._method(cls, name) if f not in found]
        return found

    def enabled(self, ident: Ident) -> list[tuple[Module, ast.expr | None]]:
        """For each place where a scaler is made, the expression that switches it on (None: nothing does)."""
        found: list[tuple[Module, ast.expr | None]] = []
        for part in sorted(parts(ident)):
            origin = self.made.get(part)
            if origin is not None and isinstance(origin.node, ast.Call):
                given = next((k.value for k in origin.node.keywords if k.arg == "enabled"), None)
                found.append((origin.module, given))
        return found


def one_object(origin: Origin) -> bool:
    """Whether a call makes one object for the program, not one in each turn of a comprehension."""
    if origin.kind != "call" or origin.path:
        return False
    return not any(isinstance(a, COMPREHENSIONS) for a in origin.module.ancestors(origin.node))


def _innermost(scope: Scope, expr: ast.AST, loops: Sequence[ast.AST]) -> ast.AST:
    """The loop around an expression, of those that give its name a value."""
    around = list(scope.module.ancestors(expr))
    near = [a for a in around if a in loops]
    near += [g for a in around for g in getattr(a, "generators", ()) if g in loops]
    return (near or loops)[0]


def joined(idents: set[str]) -> Ident:
    return SEPARATOR.join(sorted(idents))


@lru_cache(maxsize=1 << 16)
def parts(ident: Ident) -> frozenset[str]:
    return frozenset(ident.split(SEPARATOR))


def place_made(part: str) -> str:
    """The place where an object is made, whichever call had it made."""
    return part.partition(CALLED)[0]


def may_optimize(name: str) -> bool:
    last = name.rpartition(".")[2]
    return (last.endswith(_MADE) or bool(_ADAM.search(last))) and not _SCHEDULER.search(name)


def _by_name(text: str) -> str | None:
    last = re.sub(r"\[.*\]$", "", text).rpartition(".")[2]
    if "scaler" in last.lower() and "standard" not in last.lower():
        return "scaler"
    if _OPTIMIZER.search(last) and not _SCHEDULER.search(last):
        return "optimizer"
    return None


def _only_turn(loop: ast.AST, name: ast.Name) -> ast.expr | None:
    """What a name stands for in a loop over one thing that is written out: `for each in [optimizer]`."""
    if not isinstance(loop, (ast.For, ast.comprehension)) or not isinstance(loop.target, ast.Name):
        return None
    among = loop.iter.elts if isinstance(loop.iter, (ast.List, ast.Tuple)) else []
    if len(among) != 1 or isinstance(among[0], ast.Starred):
        return None
    return None if any(n.id == name.id for n in syntax.every(among[0], ast.Name)) else among[0]


def _written(values: Values, scope: Scope, node: ast.Name | ast.Attribute) -> str:
    """An expression whose value nobody knows, as it is written; `self` by the name of its class."""
    base: ast.expr = node
    while isinstance(base, ast.Attribute):
        base = base.value
    text = syntax.text(node)
    owner = values.program.is_self(scope, base)
    if owner is not None and isinstance(base, ast.Name):
        return f"{owner.qualname}{text[len(base.id) :]}"
    return text
