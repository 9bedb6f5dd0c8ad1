"""Parts that a loop of a forward runs in turn, of the last of which nothing reads what it hands to the next: `h, s = block(h)`.

Too little rather than too much: a value that may be read counts as read, tests that are not settled go both ways, and a part
that is used anywhere else is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.audit.paths.facts import Facts, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.unused import IN_TURN, has_parameters, in_sight, kept, named_elsewhere
from amp_migrate.audit.values.values import Values

LIST = "torch.nn.ModuleList"
Unread = frozenset[int] | None  # entries of the tuple that a part gives which nothing reads; None: all of it


def unread_in_last(values: Values, network: Class) -> Iterator[tuple[str, str]]:
    """The fields of a network with such parts, and what of the last of them gets no gradient: a layer, or "" for all of it."""
    program = values.program
    for forward in network.methods.get("forward", ()) if in_sight(program, network) else ():
        nodes = syntax.walk(forward.node)
        if any(isinstance(n, (ast.Global, ast.Nonlocal, ast.Lambda)) for n in nodes):
            continue
        turns = _Turns(_settled(values, network, forward))
        turns.back(forward.node.body, frozenset())
        for loop, live in list(turns.loops.items()):
            for field, part in _parts(loop).items():
                uses = turns.uses(loop, live, part)
                unread = uses[0] if len(uses) == 1 else frozenset()
                if unread == frozenset() or not _only_here(program, network, field, loop):
                    continue
                if (layer := _without_gradient(program, network, field, unread)) is not None:
                    yield field, layer


def _parts(loop: ast.For) -> dict[str, str]:
    """The fields of `self` that a loop goes through, each with how it writes the part of the turn."""
    pairs: list[tuple[ast.expr, ast.expr]] = [(loop.target, loop.iter)]
    found: dict[str, str] = {}
    for target, items in pairs:
        called = syntax.text(items.func) if isinstance(items, ast.Call) and not items.keywords else ""
        given = items.args if isinstance(items, ast.Call) else []
        elements = target.elts if isinstance(target, ast.Tuple) else []
        if called == "enumerate" and len(elements) == 2 and given:
            pairs.append((elements[1], given[0]))
        elif called == "zip" and len(elements) == len(given):
            pairs += zip(elements, given, strict=True)
        elif called == "reversed" and len(given) == 1:
            pairs.append((target, given[0]))
        elif called == "range" and len(given) == 1 and syntax.text(given[0]).startswith("len(self."):
            field = syntax.text(given[0])[len("len(self.") : -1]
            found[field] = f"self.{field}[{syntax.text(target)}]"
        elif isinstance(items, ast.Attribute) and syntax.text(items.value) == "self" and isinstance(target, ast.Name):
            found[items.attr] = target.id
    return found


class _Turns:
    """A forward from its end back: what is still read of each value, after a loop and in the last turn of it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.loops: dict[ast.For, frozenset[str]] = {}  # with what is read after each
        self._part = ""
        self._uses: list[Unread] = []

    def uses(self, loop: ast.For, live: frozenset[str], part: str) -> list[Unread]:
        """What nothing reads of what the part of a turn gives, for each use of it."""
        ends = (ast.Break, ast.Continue, ast.Return, ast.Try)
        if loop.orelse or any(isinstance(n, ends) for n in syntax.walk(loop)):
            return []
        self._part, self._uses = part, []
        self.back(loop.body, live)
        return self._uses

    def back(self, body: Sequence[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        """What is read before a body runs, of what is read after it."""
        for stmt in reversed(body):
            names = _named(stmt)
            if isinstance(stmt, ast.If):
                came_out = outcome(stmt.test, self.facts)
                ways = [b for b, when in ((stmt.body, True), (stmt.orelse, False)) if came_out is not (not when)]
                live = _loads(stmt.test).union(*(self.back(b, live) for b in ways))
            elif isinstance(stmt, ast.With):
                live = self.back(stmt.body, live).union(*(_loads(i) for i in stmt.items))
            elif isinstance(stmt, ast.Assign) and names and not _in_place(stmt):
                unread = frozenset(i for i, n in enumerate(names) if n not in live)
                self._note(stmt, None if len(unread) == len(names) else unread)
                live = live if len(unread) == len(names) else (live - set(names)) | _loads(stmt.value)
            else:
                if isinstance(stmt, ast.For):
                    self.loops[stmt] = live
                self._note(stmt, frozenset())
                live = _loads(stmt) if isinstance(stmt, ast.Return) else live | _loads(stmt)
        return live

    def _note(self, stmt: ast.stmt, unread: Unread) -> None:
        """Take down what is read of the part where a statement uses it."""
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        for node in syntax.walk(stmt) if self._part else ():
            if isinstance(getattr(node, "ctx", None), ast.Load) and syntax.text(node) == self._part:
                taken_apart = isinstance(value, ast.Call) and value.func is node
                self._uses.append(unread if unread is None or taken_apart else frozenset())


def _loads(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in syntax.every(node, ast.Name) if isinstance(n.ctx, ast.Load))


def _named(stmt: ast.stmt) -> list[str]:
    """The names that an assignment gives values to; none where it gives them to anything else."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [e.id for e in elements if isinstance(e, ast.Name)]
    return names if len(names) == len(elements) else []


def _in_place(stmt: ast.stmt) -> bool:
    """Whether a statement may change more than what it names: `x.add_(y)`, `torch.add(x, y, out=z)`, `(y := x)`."""
    if syntax.every(stmt, ast.NamedExpr):
        return True
    calls = syntax.every(stmt, ast.Call)
    names = [syntax.last(c.func) for c in calls]
    return any(n.endswith("_") and not n.endswith("__") for n in names) or any(
        k.arg in ("out", "inplace") for c in calls for k in c.keywords
    )


def _settled(values: Values, network: Class, forward: Function) -> Facts:
    """How the tests for fields of a network come out that its `__init__` sets, once."""
    asked = [n for t in syntax.every(forward.node, ast.If) for n in syntax.every(t.test, ast.Attribute)]
    facts: set[tuple[str, bool]] = set()
    for name in dict.fromkeys(n.attr for n in asked if syntax.text(n.value) == "self"):
        stored = values.stored(name)
        own = [s for s in stored if s.owner in values.program.family(network)]
        if len(own) != 1 or any(s.owner is None for s in stored) or own[0].value is None or own[0].item:
            continue
        truth = _truth(values, own[0].scope.module.function_around(own[0].holder), own[0].value)
        if truth is not None:
            facts.add((f"self.{name}", truth))
    return frozenset(facts)


def _truth(values: Values, init: Function | None, expr: ast.expr) -> bool | None:
    """Whether what a field is given in `__init__` is true of all objects that are made."""
    if init is None or init.name != "__init__":
        return None
    if isinstance(expr, ast.IfExp):
        asked = _truth(values, init, expr.test)
        return None if asked is None else _truth(values, init, expr.body if asked else expr.orelse)
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Not):
        inner = _truth(values, init, expr.operand)
        return None if inner is None else not inner
    if isinstance(expr, ast.Compare) and len(expr.ops) == 1 and syntax.is_none(expr.comparators[0]):
        found = values.constants(init.scope, expr.left)
        told = {c is None for c in found or ()}
        if len(told) == 1 and isinstance(expr.ops[0], (ast.Is, ast.IsNot)):
            return told.pop() is isinstance(expr.ops[0], ast.Is)
        return None
    told = {bool(c) for c in values.constants(init.scope, expr) or ()}
    return told.pop() if len(told) == 1 else None


def _only_here(program: Program, network: Class, field: str, loop: ast.For) -> bool:
    """Whether what a field holds runs in one loop alone."""
    inside = set(syntax.walk(loop))
    for cls in program.family(network):
        for node in syntax.every(cls.node, ast.Attribute):
            if syntax.text(node.value) != "self" or not isinstance(node.ctx, ast.Load):
                continue
            function = cls.module.function_around(node)
            made = function is not None and function.name == "__init__"
            counted = isinstance(parent := cls.module.parents.get(node), ast.Call) and syntax.text(parent.func) == "len"
            if node.attr in IN_TURN or (node.attr == field and node not in inside and not made and not counted):
                return False
    return not named_elsewhere(program, field)


def _without_gradient(program: Program, network: Class, field: str, unread: Unread) -> str | None:
    """What of any part that a field holds gets no gradient where some of what it gives is not read; None where that is none."""
    found: set[str | None] = set()
    for cls in program.family(network):
        for node in syntax.every(cls.node, ast.Attribute):
            function = cls.module.function_around(node)
            if syntax.text(node) == f"self.{field}" and not (function is not None and function.name == "forward"):
                made = _made(program, cls, node)
                found |= {_dead(program, cls, m, unread) for m in made} if made is not None else {None}
    return None if None in found else min((f for f in found if f is not None), default=None)


def _made(program: Program, cls: Class, node: ast.Attribute) -> Sequence[ast.expr] | None:
    """The parts that a statement puts into a field; None where what it does is not seen."""
    parent = cls.module.parents.get(node)
    around = cls.module.parents.get(parent) if parent is not None else None
    if isinstance(parent, ast.Assign) and isinstance(node.ctx, ast.Store) and isinstance(parent.value, ast.Call):
        call = parent.value
        if program.dotted(cls.module.scope_of(call), call.func) != LIST or call.keywords or len(call.args) > 1:
            return None
        items = call.args[0] if call.args else ast.List(elts=[], ctx=ast.Load())
        if isinstance(items, (ast.ListComp, ast.GeneratorExp)):
            return [items.elt]
        return items.elts if isinstance(items, (ast.List, ast.Tuple)) else None
    if isinstance(parent, ast.Attribute) and parent.attr == "append" and isinstance(around, ast.Call):
        return around.args
    return [] if isinstance(parent, ast.Call) and syntax.text(parent.func) == "len" else None


def _dead(program: Program, cls: Class, made: ast.expr, unread: Unread) -> str | None:
    """What of a part that is made so gets no gradient: a layer of it, or "" for all of it."""
    if not isinstance(made, ast.Call) or not has_parameters(program, cls, made):
        return None
    scope = cls.module.scope_of(made)
    kinds = program.definitions(scope, made.func, guess=False)
    if not kinds:
        known = (program.dotted(scope, made.func) or "").startswith("torch.nn.")
        return "" if unread is None and known else None
    layers = {_dead_layer(program, k, unread) if isinstance(k, Class) else None for k in kinds}
    return next(iter(layers)) if len(layers) == 1 else None


def _dead_layer(program: Program, kind: Class, unread: Unread) -> str | None:
    """A layer of a network, made in each, that only computes those entries of what its forward returns."""
    forwards = program._method(kind, "forward")
    inits = program._method(kind, "__init__")
    if len(forwards) != 1 or len(inits) != 1 or not in_sight(program, kind) or "requires_grad" in kind.module.words:
        return None
    forward = forwards[0]
    if any(isinstance(n, (ast.Global, ast.Nonlocal, ast.Lambda)) for n in syntax.walk(forward.node)):
        return None
    read = _read(forward, unread)
    if read is None:
        return None
    living = {n.attr for r in read for n in syntax.every(r, ast.Attribute) if syntax.text(n.value) == "self"}
    used = {n.attr for n in syntax.every(forward.node, ast.Attribute) if syntax.text(n.value) == "self"}
    others = (f for c in program.family(kind) for n in c.methods for f in c.methods[n] if f not in (*forwards, *inits))
    living |= {n.attr for f in others for n in syntax.every(f.node, ast.Attribute)}
    for stmt in inits[0].node.body:
        for name, call in kept(stmt) if isinstance(stmt, ast.Assign) else ():
            if name in used - living and has_parameters(program, kind, call) and living.isdisjoint(IN_TURN):
                if not named_elsewhere(program, name):
                    return name
    return None


def _read(forward: Function, unread: Unread) -> list[ast.AST] | None:
    """What of a forward may come to what is read of what it returns; None where that is no tuple of such a length."""
    read: list[ast.AST] = []
    waiting: list[tuple[set[str], ast.AST]] = []
    for stmt in (n for n in syntax.own_nodes(forward.node) if isinstance(n, ast.stmt)):
        names = _named(stmt)
        if isinstance(stmt, ast.Return):
            entries = stmt.value.elts if isinstance(stmt.value, ast.Tuple) else None
            if unread is not None and (entries is None or max(unread) >= len(entries)):
                return None
            read += [] if unread is None else [e for i, e in enumerate(entries or ()) if i not in unread]
        elif isinstance(stmt, ast.Assign) and names and not _in_place(stmt):
            waiting.append((set(names), stmt.value))
        elif isinstance(stmt, (ast.If, ast.While)):
            read.append(stmt.test)
        elif isinstance(stmt, (ast.For, ast.With)):
            read += [stmt.iter] if isinstance(stmt, ast.For) else [i.context_expr for i in stmt.items]
        else:
            read.append(stmt)
    for node in read:  # which grows
        loaded = {n.id for n in syntax.every(node, ast.Name) if isinstance(n.ctx, ast.Load)}
        come = [w for w in waiting if w[0] & loaded]
        waiting = [w for w in waiting if w not in come]
        read += [value for _, value in come]
    return read
