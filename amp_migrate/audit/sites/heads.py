"""Heads of a network that no caller reads: what a layer gives is a part of what the forward returns, and goes nowhere.

The caller runs the network as a whole, or is a network itself that has it for a part: `sequence, _ = self.encoder(x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
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


def _heads_read(cls: Class, forward: Function, read_of: Callable[[int], set[int] | None]) -> Iterator[tuple[str, bool]]:
    """The heads of a forward, with whether a caller reads them; `read_of`: of the tuples of a length that it returns, which
    entries are read, and None of those that no caller takes."""
    returned = _returned(forward)
    read = {arity: read_of(arity) for arity in {len(entries) for entries in returned}}
    taken_of = [(entries, found) for entries in returned if (found := read[len(entries)]) is not None]
    for layer, names in _heads(cls, forward, returned).items() if taken_of else ():
        places = ((e, i, found) for entries, found in taken_of for i, e in enumerate(entries))
        yield layer, any(e in names and i in taken for e, i, taken in places)


def _learns(program: Program, cls: Class, layer: str) -> bool:
    """Whether a layer of a network is seen to have parameters."""
    inits = (init for c in program.family_up(cls) for init in c.methods.get("__init__", ()))
    return any(name == layer and has_parameters(program, cls, call) for init in inits for name, call in kept(init.node))


def _read_of_part(program: Program, network: Class, part: str, arity: int) -> set[int] | None:
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
            if isinstance(around, ast.Compare):
                continue  # `self.encoder is not None`
            if isinstance(around, ast.Attribute):
                asked = cls.module.parents.get(around)
                if isinstance(asked, ast.Call) and asked.func is around and around.attr not in ASKED:
                    return None
                continue
            entries = (
                _entries(cls.module, around, arity) if isinstance(around, ast.Call) and around.func is node else None
            )
            if entries is None:
                return None
            found |= entries
            seen = True
    return found if seen else None


def _entries(module: Module, call: ast.Call, arity: int) -> set[int] | None:
    """Which entries of a tuple that a call gives are read: `sequence, _ = self.encoder(x)`, `self.encoder(x)[0]`."""
    around = module.parents.get(call)
    if isinstance(around, ast.Subscript) and around.value is call:
        return _item(around, arity)
    target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
    if isinstance(target, ast.Name):
        return _entries_of_variable(module, target, arity)
    if not isinstance(target, ast.Tuple) or len(target.elts) != arity:
        return None
    return _taken_apart(module, call, target)


def _item(item: ast.Subscript, arity: int) -> set[int] | None:
    """Which entry is asked for by its place; None where that is not written, or counted from the end."""
    place = item.slice.value if isinstance(item.slice, ast.Constant) else None
    return {place} if isinstance(place, int) and 0 <= place < arity else None


def _taken_apart(module: Module, at: ast.AST, target: ast.Tuple) -> set[int]:
    """Which entries are read once they have names of their own."""
    return {i for i, e in enumerate(target.elts) if not isinstance(e, ast.Name) or _loaded(module, at, e.id)}


def _entries_of_variable(module: Module, variable: ast.Name, arity: int) -> set[int] | None:
    """Which entries are read of a tuple that a variable holds, where it is only taken apart: `outputs = self.encoder(x)`. One
    that is taken apart into another number is another tuple."""
    found: set[int] = set()
    seen = False
    for node in syntax.every(module.around(variable), ast.Name):
        if node.id != variable.id or node is variable:
            continue
        around = module.parents.get(node)
        if isinstance(node.ctx, ast.Store) or not isinstance(around, (ast.Assign, ast.Subscript)):
            return None
        if isinstance(around, ast.Subscript):
            entry = _item(around, arity)
            if entry is None:
                return None
            found |= entry
            seen = True
            continue
        target = around.targets[0]
        if not isinstance(target, ast.Tuple) or around.value is not node:
            return None
        if len(target.elts) == arity:
            found |= _taken_apart(module, around, target)
            seen = True
    return found if seen else None


def _returned(forward: Function) -> list[list[str]]:
    """The names that each return of a forward gives; none where one gives something else than a tuple of names."""
    found: list[list[str]] = []
    for stmt in syntax.every(forward.node, ast.Return):
        names = [e.id for e in stmt.value.elts if isinstance(e, ast.Name)] if isinstance(stmt.value, ast.Tuple) else []
        if not isinstance(stmt.value, ast.Tuple) or len(names) != len(stmt.value.elts):
            return []
        found.append(names)
    return found


def _heads(cls: Class, forward: Function, entries: list[list[str]]) -> dict[str, set[str]]:
    """The layers that are used for returned entries alone, and for which."""
    found: dict[str, set[str]] = {}
    returned = [name for names in entries for name in names]
    counted = [n.id for n in syntax.every(forward.node, ast.Name) if isinstance(n.ctx, ast.Load)]
    for stmt in syntax.walk(forward.node):
        if not isinstance(stmt, ast.Assign):
            continue
        given = {n.id for t in stmt.targets for n in syntax.every(t, ast.Name)}
        if given and given <= {*returned} and all(counted.count(name) == returned.count(name) for name in given):
            for call in syntax.every(stmt.value, ast.Call):
                func = call.func
                if (
                    isinstance(func, ast.Attribute)
                    and syntax.text(func.value) == "self"
                    and func.attr not in cls.methods
                ):
                    found.setdefault(func.attr, set()).update(given)
    used = [
        n.attr
        for n in syntax.every(cls.node, ast.Attribute)
        if isinstance(n.ctx, ast.Load) and syntax.text(n.value) == "self"
    ]
    return {layer: names for layer, names in found.items() if used.count(layer) == 1}


def _read(program: Program, home: Module, model: str, arity: int) -> set[int] | None:
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
            entries = _entries(module, call, arity)
            if entries is None:
                return None
            seen = True
            found |= entries
    return found if seen else None


def _loaded(module: Module, call: ast.AST, name: str) -> bool:
    names = syntax.every(module.around(call), ast.Name)
    return any(n.id == name and isinstance(n.ctx, ast.Load) for n in names)
