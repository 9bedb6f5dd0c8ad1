"""Heads of a network that no caller reads: what a layer gives is a part of what the forward returns, and goes nowhere.

The caller runs the network as a whole, or is a network itself that has it for a part: `sequence, _ = self.encoder(x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.unused import ASKED, IN_TURN, has_parameters, in_sight, kept, named_elsewhere


def unread(program: Program, module: Module, cls: Class, model: str) -> Iterator[str]:
    """The layers of a class that only compute entries of the tuple its forward returns which nothing reads.

    `model`: what a variable of a file that holds an object of it is called, there and in the functions it is handed to.
    Silent where one of these keeps the tuple as it is, or hands it on."""
    for forward in cls.methods.get("forward", ()):
        arities = {len(entries) for entries in _returned(forward)}
        read = {n: _read(program, module, n, model) for n in arities}
        yield from (layer for layer, is_read in _heads_read(cls, forward, read) if not is_read)


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
                arities = {len(entries) for entries in _returned(forward)}
                read = {n: _read_of_part(program, network, name, n) for n in arities}
                yield from ((name, kind, layer, is_read) for layer, is_read in _heads_read(kind, forward, read))


def _heads_read(cls: Class, forward: Function, read: Mapping[int, set[int] | None]) -> Iterator[tuple[str, bool]]:
    """The heads of a forward, with whether a caller reads them: of the tuples of each length that it returns, which entries are
    read, and None of those that no caller takes."""
    returned = [entries for entries in _returned(forward) if read[len(entries)] is not None]
    for layer, names in _heads(cls, forward).items() if returned else ():
        places = ((e, i, read[len(entries)] or ()) for entries in returned for i, e in enumerate(entries))
        yield layer, any(e in names and i in taken for e, i, taken in places)


def _learns(program: Program, cls: Class, layer: str) -> bool:
    """Whether a layer of a network is seen to have parameters."""
    inits = (init for c in program.family_up(cls) for init in c.methods.get("__init__", ()))
    return any(name == layer and has_parameters(program, cls, call) for init in inits for name, call in kept(init.node))


def _read_of_part(program: Program, network: Class, part: str, arity: int) -> set[int] | None:
    """Which entries of the tuple of so many that a part of a network returns are read; None where it is used otherwise."""
    found: set[int] = set()
    seen = False
    for module in program.modules.values():
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
        place = around.slice.value if isinstance(around.slice, ast.Constant) else None
        return {place} if isinstance(place, int) and 0 <= place < arity else None
    target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
    if isinstance(target, ast.Name):
        return _entries_of_variable(module, target, arity)
    if not isinstance(target, ast.Tuple) or len(target.elts) != arity:
        return None
    return {i for i, e in enumerate(target.elts) if not isinstance(e, ast.Name) or _loaded(module, call, e.id)}


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
            place = around.slice.value if isinstance(around.slice, ast.Constant) else None
            if not isinstance(place, int) or not 0 <= place < arity:
                return None
            found.add(place)
            seen = True
            continue
        target = around.targets[0]
        if not isinstance(target, ast.Tuple) or around.value is not node:
            return None
        if len(target.elts) == arity:
            found |= {
                i for i, e in enumerate(target.elts) if not isinstance(e, ast.Name) or _loaded(module, around, e.id)
            }
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


def _heads(cls: Class, forward: Function) -> dict[str, set[str]]:
    """The layers that are used for returned entries alone, and for which."""
    found: dict[str, set[str]] = {}
    returned = [name for entries in _returned(forward) for name in entries]
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


def _read(program: Program, home: Module, arity: int, model: str) -> set[int] | None:
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
