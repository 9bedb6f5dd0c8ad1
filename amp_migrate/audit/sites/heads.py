"""Heads of a network that no caller reads: what a layer gives is a part of what the forward returns, and goes nowhere.

The caller runs the network as a whole, or is a network itself that has it for a part: `sequence, _ = self.encoder(x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from functools import partial

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.entries import Entries, Shape
from amp_migrate.audit.sites.unused import ASKED, IN_TURN, has_parameters, in_sight, kept, named_elsewhere


def unread(program: Program, module: Module, cls: Class, model: str) -> Iterator[str]:
    """The layers of a class that only compute entries of the tuple its forward returns which nothing reads.

    `model`: what a variable of a file that holds an object of it is called, there and in the functions it is handed to.
    Silent where one of these keeps the tuple as it is, or hands it on."""
    for forward in cls.methods.get("forward", ()):
        heads = _heads_read(cls, forward, partial(_read, program, module, model))
        yield from (layer for layer, is_read in heads if not is_read)


def unread_within(program: Program, network: Class) -> Iterator[tuple[str, str, str]]:
    """The parts of a network that are networks of the program with a head which it never reads: `self.encoder`, what that is,
    and the head of it."""
    for field, kind, layer, read in heads_within(program, network):
        if not read and _learns(program, kind, layer) and not named_elsewhere(program, layer):
            yield field, kind.name, layer


def heads_within(program: Program, network: Class) -> Iterator[tuple[str, Class, str, bool]]:
    """The heads of the parts of a network that are networks themselves, each with whether the network reads what they give."""
    made: dict[str, dict[Class, None]] = {}
    for init in network.methods.get("__init__", ()) if in_sight(program, network) else ():
        for name, call in kept(init.node):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr == "from_pretrained":
                func = func.value
            kinds = program.definitions(init.scope, func, guess=False)
            made.setdefault(name, {}).update((k, None) for k in kinds if isinstance(k, Class) and program.is_network(k))
    for name, kinds_of in made.items():
        for kind in kinds_of:
            for forward in kind.methods.get("forward", ()) if in_sight(program, kind) else ():
                heads = _heads_read(kind, forward, partial(_read_of_part, program, network, name))
                yield from ((name, kind, layer, is_read) for layer, is_read in heads)


def _heads_read(
    cls: Class, forward: Function, read_of: Callable[[Shape], set[int] | None]
) -> Iterator[tuple[str, bool]]:
    """The heads of a forward, with whether a caller reads them; `read_of`: of a tuple that it returns, which entries are read,
    and None of one that no caller takes."""
    inside = Entries(forward.node.body)
    taken_of = [(shape, found) for shape in inside.returned if (found := read_of(shape)) is not None]
    entries = {e for shape in inside.returned for e in shape.items if isinstance(e, ast.expr)} - inside.read
    for layer, given in _heads(cls, forward, entries).items() if taken_of else ():
        places = ((e, i, found) for shape, found in taken_of for i, e in enumerate(shape.items))
        yield layer, any(e in given and i in taken for e, i, taken in places)


def _learns(program: Program, cls: Class, layer: str) -> bool:
    """Whether a layer of a network is seen to have parameters."""
    inits = (init for c in program.family_up(cls) for init in c.methods.get("__init__", ()))
    return any(name == layer and has_parameters(program, cls, call) for init in inits for name, call in kept(init.node))


def _read_of_part(program: Program, network: Class, part: str, shape: Shape) -> set[int] | None:
    """Which entries of the tuple of so many that a part of a network returns are read; None where it is used otherwise."""
    found: set[int] = set()
    seen = False
    for module in program.having(part):
        if any(syntax.text(c.func) != f"self.{part}" for c in module.calls_named.get(part, ())):
            return None  # run from outside, too
    for cls in program.family(network):
        for node in syntax.every(cls.node, ast.Attribute):
            if isinstance(node.ctx, ast.Load) and syntax.text(node.value) == "self" and node.attr in IN_TURN:
                return None
            if node.attr != part or syntax.text(node.value) != "self" or isinstance(node.ctx, ast.Store):
                continue
            around = cls.module.parents.get(node)
            if _asked_for(cls.module, node):
                continue
            if isinstance(around, ast.Attribute):
                asked = cls.module.parents.get(around)
                if isinstance(asked, ast.Call) and asked.func is around and around.attr not in ASKED:
                    return None
                continue
            entries = (
                _entries(cls.module, around, shape) if isinstance(around, ast.Call) and around.func is node else None
            )
            if entries is None:
                return None
            found |= entries
            seen = True
    return found if seen else None


def _entries(module: Module, call: ast.Call, shape: Shape) -> set[int] | None:
    """Which entries of a tuple that a call gives are read; None where that is not told by their places."""
    return Entries(module.around(call).body, call, Shape(tuple(range(len(shape.items))), shape.more)).of_call()


def _heads(cls: Class, forward: Function, entries: Set[ast.expr]) -> dict[str, set[ast.expr]]:
    """The layers that are used for returned entries alone, and for which."""
    found: dict[str, set[ast.expr]] = {}
    loads: dict[str, set[ast.expr]] = {}
    for name in syntax.every(forward.node, ast.Name):
        if isinstance(name.ctx, ast.Load):
            loads.setdefault(name.id, set()).add(name)
    computed: list[tuple[ast.expr, set[ast.expr]]] = [(e, {e}) for e in sorted(entries, key=_position)]
    for stmt in syntax.every(forward.node, ast.Assign):
        names = {n.id for t in stmt.targets for n in syntax.every(t, ast.Name)}
        if names and all(loads.get(name, set()) and loads[name] <= entries for name in names):
            computed.append((stmt.value, {e for name in names for e in loads[name]}))
    for value, given in computed:
        for call in syntax.every(value, ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and syntax.text(func.value) == "self" and func.attr not in cls.methods:
                found.setdefault(func.attr, set()).update(given)
    used = [
        n.attr
        for n in syntax.every(cls.node, ast.Attribute)
        if isinstance(n.ctx, ast.Load) and syntax.text(n.value) == "self" and not _asked_for(cls.module, n)
    ]
    return {layer: given for layer, given in found.items() if used.count(layer) == 1}


def _position(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _asked_for(module: Module, node: ast.Attribute) -> bool:
    """Whether it is only asked whether a field has a value: `self.pooler is not None`."""
    around = module.parents.get(node)
    return isinstance(around, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in around.ops)


def _read(program: Program, home: Module, model: str, shape: Shape) -> set[int] | None:
    """Which entries of a tuple of so many callers of a model read; None where they cannot be told."""
    found: set[int] = set()
    seen = False
    modules = {home: None}
    for call in home.calls():
        if any(syntax.text(a) == model for a in syntax.given(call)):
            modules |= {callee.module: None for callee in program.callees(home, call)}
    if not any("backward" in module.words for module in modules):
        return None  # no gradients are waited for
    for module in modules:
        for call in module.calls_named.get(model, ()):
            entries = _entries(module, call, shape)
            if entries is None:
                return None
            seen = True
            found |= entries
    return found if seen else None
