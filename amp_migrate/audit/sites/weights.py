"""Which network an expression is, or whose weights: `model.encoder`, `p` of `for p in model.parameters()`.

A network is known by where it is made and the attributes that lead to a part of it, so that two expressions may be told to
be one network, or one of them a part of the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module, Scope
from amp_migrate.audit.program.targets import attributes, given_to
from amp_migrate.audit.sites.forwards import Forwards
from amp_migrate.audit.sites.setups import Identity, identities
from amp_migrate.audit.values.same import SELF_RETURNING

Place = tuple[Identity, tuple[str, ...]]
# "weights": one of them, or a sequence of them; "states": a dictionary of them; "groups": those of an optimizer.
Kind = Literal["network", "weights", "states", "groups"]

DEPTH = 30
GIVING = frozenset({"parameters", "named_parameters"})
SEQUENCES = frozenset({"zip", "list", "tuple", "sorted", "reversed", "enumerate", "iter", "filter", "chain", "set"})
VIEWS = frozenset({"detach", "view", "view_as", "flatten", "reshape", "squeeze", "unsqueeze", "items", "values"})


@dataclass(frozen=True)
class Value:
    """What an expression is: parts of networks, or weights of them."""

    kind: Kind
    places: frozenset[Place]
    saved: bool = False  # weights as a `state_dict()` gives them

    @property
    def each(self) -> Value:
        """Weights that are taken out of it."""
        return Value("weights", self.places, self.saved or self.kind == "states")


@dataclass(frozen=True)
class Frame:
    """Where an expression is read: its scope, and what the names there that a call filled are."""

    scope: Scope
    names: dict[str, Value] = field(default_factory=dict)
    known: dict[ast.expr, Value | None] | None = None  # what expressions in such a frame are: see `Weights.of`


def covers(one: Place, other: Place) -> bool:
    """Whether a place is another, or holds it."""
    return one[0] == other[0] and other[1][: len(one[1])] == one[1]


def overlap(one: Place, other: Place) -> bool:
    """Whether one is a part of the other, or the same."""
    short = min(len(one[1]), len(other[1]))
    return one[0] == other[0] and one[1][:short] == other[1][:short]


class Weights:
    """Answers for one state of a program."""

    def __init__(self, forwards: Forwards) -> None:
        self.program = forwards.program
        self.values = forwards.values
        self._known: dict[tuple[Scope, frozenset[tuple[str, Value]]], dict[ast.expr, Value | None]] = {}
        self._frozen: dict[Identity, list[tuple[str, ...]]] = {}

    def of(self, frame: Frame, expr: ast.expr, depth: int = 0) -> Value | None:
        """What an expression is; None where it is neither a network nor weights."""
        if depth > DEPTH:
            return None
        known = frame.known
        if known is None:
            known = self._known.setdefault((frame.scope, frozenset(frame.names.items())), {})
            object.__setattr__(frame, "known", known)
        if expr not in known:
            known[expr] = None  # while it is being found out
            known[expr] = self._of(frame, expr, depth)
        return known[expr]

    def weights(self, frame: Frame, expr: ast.expr) -> frozenset[Place]:
        """The networks whose weights an expression is, or holds."""
        found = self.of(frame, expr)
        return found.places if found is not None and found.kind == "weights" else frozenset()

    def network(self, frame: Frame, expr: ast.expr) -> frozenset[Place]:
        found = self.of(frame, expr)
        return found.places if found is not None and found.kind == "network" else frozenset()

    def _of(self, frame: Frame, expr: ast.expr, depth: int) -> Value | None:
        if isinstance(expr, ast.Name):
            return self._name(frame, expr, depth)
        if isinstance(expr, ast.Attribute):
            return self._attribute(frame, expr, depth)
        if isinstance(expr, ast.Call):
            return self._call(frame, expr, depth)
        if isinstance(expr, ast.Subscript):
            return self._item(frame, expr, depth)
        if isinstance(expr, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self._weights_only(self.of(frame, expr.elt, depth + 1))
        if isinstance(expr, (ast.List, ast.Tuple)):
            return self._weights_only(self._union([self.of(frame, e, depth + 1) for e in expr.elts]))
        if isinstance(expr, ast.Dict):  # a group of an optimizer's
            given = (
                v for k, v in zip(expr.keys, expr.values, strict=True) if k is not None and syntax.text(k) == "'params'"
            )
            return self._weights_only(self._union([self.of(frame, v, depth + 1) for v in given]))
        if isinstance(expr, ast.Starred):
            return self.of(frame, expr.value, depth + 1)
        if isinstance(expr, ast.IfExp):
            return self._union([self.of(frame, v, depth + 1) for v in (expr.body, expr.orelse)])
        return None

    def _name(self, frame: Frame, expr: ast.Name, depth: int) -> Value | None:
        if expr.id in frame.names:
            return frame.names[expr.id]
        owner = self.program.is_self(frame.scope, expr)
        if owner is not None:
            return Value("network", frozenset({(("self", owner.node), ())}))
        found = frame.scope.binder(expr.id)
        if found is None:
            return None
        inside = frame if found is frame.scope else Frame(found)
        bound = [self._bound(inside, expr.id, node, depth) for node in found.bindings[expr.id][:8]]
        weights = self._union([v for v in bound if v is not None and v.kind != "network"])
        return weights or self._made(frame, expr, depth)

    def _bound(self, frame: Frame, name: str, node: ast.AST, depth: int) -> Value | None:
        """What a loop or an assignment gives a name."""
        for value, item in given_to(node, name):
            if isinstance(value, (ast.Tuple, ast.List)) and len(item) == 1 and isinstance(item[0], int):
                value = value.elts[item[0]] if item[0] < len(value.elts) else value
            found = self.of(frame, value, depth + 1)
            if found is not None and found.kind == "states" and item:
                return found.each
            return found
        return None

    def _attribute(self, frame: Frame, expr: ast.Attribute, depth: int) -> Value | None:
        if expr.attr == "param_groups":
            return self._optimized(frame, expr.value, depth)
        base = self.of(frame, expr.value, depth + 1)
        if base is not None and base.kind != "network":
            return base if expr.attr == "data" else None
        owner = self.program.is_self(frame.scope, expr.value)
        if base is not None and expr.attr == "module" and (owner is None or self.program.is_network(owner)):
            return base
        if base is not None and expr.attr in ("weight", "bias"):
            return Value("weights", base.places)
        made = self._made(frame, expr, depth)
        if base is None or (owner is not None and not self.program.is_network(owner)):
            return made
        if owner is not None and any(self.frozen((("self", c.node), (expr.attr,))) for c in self.program.family(owner)):
            return None
        parts = {(root, (*path, expr.attr)) for root, path in base.places}
        if (
            owner is not None and made is not None and made.kind == "network"
        ):  # what the class was handed is elsewhere, too
            family = self.program.family(owner)
            parts |= {(i, p) for i, p in made.places if not self._within(i, family)}
        return made if made is not None and made.kind != "network" else Value("network", frozenset(parts))

    @staticmethod
    def _within(identity: Identity, family: list[Class]) -> bool:
        """Whether an object is made by the class itself."""
        node, module = identity[0], identity[-1]
        if not isinstance(node, ast.AST) or not isinstance(module, Module):
            return True
        function = module.function_around(node)
        return function is not None and function.owner in family

    def _call(self, frame: Frame, expr: ast.Call, depth: int) -> Value | None:
        func = expr.func
        if isinstance(func, ast.Attribute):
            if func.attr in GIVING and not expr.args[1:]:
                base = self.of(frame, func.value, depth + 1)
                return Value("weights", base.places) if base is not None and base.kind == "network" else None
            if func.attr == "state_dict":
                base = self.of(frame, func.value, depth + 1)
                return Value("states", base.places) if base is not None and base.kind == "network" else None
            if func.attr in VIEWS:
                base = self.of(frame, func.value, depth + 1)
                return base.each if base is not None and base.kind in ("weights", "states") else None
            if func.attr in SELF_RETURNING:
                base = self.of(frame, func.value, depth + 1)
                return base if base is not None and base.kind == "network" else None
        last = syntax.last(func)
        if last in SEQUENCES:
            return self._weights_only(self._union([self.of(frame, a, depth + 1) for a in expr.args]))
        if last == "partial" and expr.args:
            return self.of(frame, expr.args[0], depth + 1)
        return self._made(frame, expr, depth)

    def _item(self, frame: Frame, expr: ast.Subscript, depth: int) -> Value | None:
        base = self.of(frame, expr.value, depth + 1)
        if base is None or base.kind == "network":
            return self._made(frame, expr, depth)
        if base.kind != "groups":
            return base.each
        key = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
        if key == "params":
            return Value("weights", base.places)
        return None if isinstance(key, str) else base

    def _made(self, frame: Frame, expr: ast.expr, depth: int) -> Value | None:
        """What the places where a value comes from say of it."""
        found: set[Place] = set()
        others: list[Value | None] = []
        for identity in identities(self.values, frame.scope, expr):
            node, module = identity[0], identity[-1]
            if isinstance(node, ast.Call) and isinstance(module, Module) and node is not expr and _gives_weights(node):
                others.append(self.of(Frame(module.scope_of(node)), node, depth + 1))
            else:
                found.add((identity, ()))
        weights = self._weights_only(self._union(others))
        if weights is not None:
            return weights
        return Value("network", frozenset(found)) if found else None

    def _optimized(self, frame: Frame, optimizer: ast.expr, depth: int) -> Value | None:
        given = self._given(frame, optimizer, depth)
        places = frozenset(p for v in given if v.kind == "weights" for p in v.places)
        return Value("groups", places) if places else None

    def of_optimizer(self, frame: Frame, optimizer: ast.expr) -> frozenset[Place]:
        """The networks whose weights an optimizer was made with."""
        return frozenset(p for v in self._given(frame, optimizer, 0) if v.kind == "weights" for p in v.places)

    def within_unseen(self, places: Iterable[Place]) -> frozenset[Place]:
        """The networks that code out of sight was given to make some of: a wrapper holds the one that it was given."""
        found, waiting = set[Place](), [*places]
        while waiting:
            node, *_, module = waiting.pop()[0]
            if not isinstance(node, ast.Call) or not isinstance(module, Module):
                continue
            scope = module.scope_of(node)
            name = self.program.dotted(scope, node.func) or ""
            if name.startswith("torch.") or self.program.definitions(scope, node.func, guess=False):
                continue
            given = (self.of(Frame(scope), value) for value in syntax.given(node))
            new = {p for v in given if v is not None and v.kind == "network" for p in v.places} - found
            found |= new
            waiting += new
        return frozenset(found)

    def held_by(self, frame: Frame, holder: ast.expr) -> frozenset[Place]:
        """The networks that an object was made with, or whose weights: a running average."""
        return frozenset(p for v in self._given(frame, holder, 0) if v.kind in ("weights", "network") for p in v.places)

    def _given(self, frame: Frame, holder: ast.expr, depth: int) -> Iterator[Value]:
        """The networks and weights that an object was made with."""
        base = self.of(frame, holder, depth + 1)
        for identity, _ in base.places if base is not None and base.kind == "network" else ():
            node, module = identity[0], identity[-1]
            if isinstance(node, ast.Call) and isinstance(module, Module):
                for given in syntax.given(node):
                    value = self.of(Frame(module.scope_of(given)), given, depth + 1)
                    if value is not None:
                        yield value

    # -- weights without gradients, of which autocast keeps no copies ------------------------------------------------

    def frozen(self, place: Place) -> bool:
        return any(place[1][: len(path)] == path for path in self._frozen.get(place[0], ()))

    def freeze(self, modules: Iterable[Module]) -> None:
        """Find the networks of which all weights are made to ask for no gradients."""
        found: set[Place] = set()
        for module in modules:
            if not module.words & {"requires_grad", "requires_grad_", "detach_"}:
                continue
            for target, value, _ in attributes(module).get("requires_grad", ()):
                if value is not None and not _conditional(module, target):
                    found |= self._stopped(module, target.value, value)
            for call, holder in (*module.method_calls("requires_grad_"), *module.method_calls("detach_")):
                asked = call.args[0] if call.args else ast.Constant(True)
                if not _conditional(module, call):
                    off = asked if syntax.last(call.func) != "detach_" else ast.Constant(False)
                    found |= self._stopped(module, holder, off)
        self._known.clear()
        self._frozen = {}
        for root, path in found:
            self._frozen.setdefault(root, []).append(path)

    def _stopped(self, module: Module, holder: ast.expr, value: ast.expr) -> frozenset[Place]:
        """The networks that are, or whose weights are, what `requires_grad` is set of."""
        scope = module.scope_of(holder)
        if isinstance(value, ast.Constant):
            found = self.of(Frame(scope), holder) if not value.value else None
            return found.places if found is not None else frozenset()
        function = scope.function
        if function is None or not isinstance(value, ast.Name) or value.id not in {p.arg for p in function.parameters}:
            return frozenset()
        places: set[Place] = set()
        for where, call in self.program.callers(function):  # set_requires_grad(model, False)
            given = self.program.arguments(function, call) or {}
            off = given.get(value.id)
            if syntax.is_false(off):
                there = Frame(where.scope_of(call))
                names = {n: v for n, e in given.items() if (v := self.of(there, e)) is not None}
                found = self.of(Frame(scope, names), holder)
                places |= found.places if found is not None else set()
        return frozenset(places)

    @staticmethod
    def _weights_only(value: Value | None) -> Value | None:
        return value if value is not None and value.kind in ("weights", "groups") else None

    @staticmethod
    def _union(values: list[Value | None]) -> Value | None:
        known = [v for v in values if v is not None]
        if not known:
            return None
        kind = next((k for k in ("weights", "groups", "states") if any(v.kind == k for v in known)), "network")
        places = frozenset(p for v in known if v.kind == kind for p in v.places)
        return Value(kind, places, any(v.saved for v in known))  # type: ignore[arg-type]


def _conditional(module: Module, node: ast.AST) -> bool:
    """Whether something is done under a condition: of some weights only."""
    for at in module.ancestors(node):
        if isinstance(at, (ast.If, ast.While, ast.IfExp)):
            return True
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
    return False


def _gives_weights(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.attr in GIVING or func.attr in VIEWS or func.attr == "state_dict"
    return isinstance(func, ast.Name) and func.id in SEQUENCES
